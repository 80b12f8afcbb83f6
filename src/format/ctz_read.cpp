#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <memory>
#include <type_traits>
#include <utility>

#include "core/fail.h"
#include "core/hash.h"
#include "format/byte_reader.h"
#include "format/ctz.h"
#include "format/ctz_layout.h"
#include "format/ctz_recall.h"
#include "format/ctz_source.h"
#include "format/gguf_reader.h"
#include "format/plain_text.h"

namespace ctxzip {
namespace {

void check_kind(const Source& source) {
  const auto architecture = source.get_optional<std::string>(kKeyArchitecture).value_or("");
  if (architecture != kCtzArchitecture) {
    fail(ErrorKind::kUnsupported,
         "{} is a GGUF file of architecture '{}', expected '{}'; give a file that 'ctxzip zip' "
         "wrote, not a model",
         source.object, architecture, kCtzArchitecture);
  }
  const auto version = source.get<uint32_t>(kKeyVersion);
  if (version < 1 || version > kCtzVersion) {
    fail(ErrorKind::kUnsupported,
         "{} has .ctz version {}, supported are 1 to {}; use a ctxzip that knows it or make the "
         "file "
         "anew",
         source.object, version, kCtzVersion);
  }
  const auto alignment = source.get<uint32_t>(kKeyAlignment);
  if (alignment != kGgufAlignment) {
    source.corrupt("the key {} is {}, expected {}", kKeyAlignment, alignment, kGgufAlignment);
  }
}

void check_metadata_checksum(const Source& source) {
  const auto stated = source.get<uint64_t>(kKeyMetadataChecksum);
  const std::byte* const field = source.gguf.find(kKeyMetadataChecksum)->payload.data();
  const auto metadata = source.bytes.first(source.gguf.data_offset);
  const auto n_before = static_cast<size_t>(field - metadata.data());
  Hasher64 hasher;
  hasher.update(metadata.first(n_before));
  hasher.update_value(uint64_t{0});
  hasher.update(metadata.subspan(n_before + sizeof(uint64_t)));
  if (hasher.digest() != stated) {
    source.corrupt("the checksum of the metadata is {}, expected {}", to_hex(hasher.digest()),
                   to_hex(stated));
  }
}

std::vector<int32_t> read_tokens(const Source& source, const char* key, int64_t n_vocab) {
  std::vector<int32_t> tokens = source.get_array<int32_t>(key);
  for (size_t at = 0; at < tokens.size(); ++at) {
    if (tokens[at] < 0 || tokens[at] >= n_vocab) {
      source.corrupt("token {} of {} is {}, expected 0 to {}", at, key, tokens[at], n_vocab - 1);
    }
  }
  return tokens;
}

CtzMeta read_meta(const Source& source) {
  CtzMeta meta;
  const auto version = static_cast<int>(source.get<uint32_t>(kKeyVersion));
  for_each_field(meta.model, [&]<typename T>(const char* name, T& value, int since) {
    if (since <= version) value = source.get<T>((std::string(kKeyModelPrefix) + name).c_str());
  });
  if (meta.model.n_layer < 1 || meta.model.n_layer > kMaxLayers) {
    source.corrupt("{}n_layer is {}, expected 1 to {}", kKeyModelPrefix, meta.model.n_layer,
                   kMaxLayers);
  }
  if (version == 1) meta.model.layers.assign(static_cast<size_t>(meta.model.n_layer), 'g');
  const int64_t n_vocab = meta.model.n_vocab;
  if (n_vocab < 1 || n_vocab > INT32_MAX) {
    source.corrupt("{}n_vocab is {}, expected 1 to {}", kKeyModelPrefix, n_vocab, INT32_MAX);
  }
  meta.model_name = source.get<std::string>(kKeyModelName);
  meta.prefix_tokens = read_tokens(source, kKeyPrefixTokens, n_vocab);
  meta.context_tokens = read_tokens(source, kKeyContextTokens, n_vocab);
  meta.question_tokens = read_tokens(source, kKeyQuestionTokens, n_vocab);
  meta.turn_tokens = read_tokens(source, kKeyTurnTokens, n_vocab);
  meta.next_turn_tokens = read_tokens(source, kKeyNextTurnTokens, n_vocab);
  if (meta.context_tokens.empty()) source.corrupt("{} is empty", kKeyContextTokens);
  meta.templated = source.get<bool>(kKeyTemplated);
  meta.method = source.get<std::string>(kKeyMethod);
  meta.allocation = source.get<std::string>(kKeyAllocation);
  meta.recon_attention = source.get<std::string>(kKeyReconAttention);
  if (version >= 2) meta.schedule = source.get<std::string>(kKeySchedule);
  meta.chunk_tokens = source.get<int64_t>(kKeyChunkTokens);
  if (meta.chunk_tokens < 0) {
    source.corrupt("{} is {}, expected 0 or more", kKeyChunkTokens, meta.chunk_tokens);
  }
  meta.seed = source.get<uint64_t>(kKeySeed);
  meta.delta_nll = source.get_optional<double>(kKeyDeltaNll);
  meta.delta_nll_probe = source.get_optional<double>(kKeyDeltaNllProbe);
  return meta;
}

LayerMap read_layers(const Source& source, const ModelFingerprint& model) {
  const auto n_kinds = static_cast<int64_t>(model.layers.size());
  if (n_kinds != model.n_layer || !LayerMap::valid(model.layers, model.window)) {
    source.corrupt(
        "{}layers has {} letters for {} layers and a window of {}: expected one of 'g', 'l' "
        "and 'r' for each, and a window if there is an 'l'",
        kKeyModelPrefix, n_kinds, model.n_layer, model.window);
  }
  return LayerMap(model.layers, model.window);
}

KvShape read_shape(const Source& source, const CtzMeta& meta, const LayerMap& layers) {
  const auto row_type = source.get<uint32_t>(kKeyRowType);
  constexpr uint32_t kKnown[] = {
      static_cast<uint32_t>(RowType::kF32), static_cast<uint32_t>(RowType::kF16),
      static_cast<uint32_t>(RowType::kQ8), static_cast<uint32_t>(RowType::kQ4)};
  if (std::find(std::begin(kKnown), std::end(kKnown), row_type) == std::end(kKnown)) {
    fail(ErrorKind::kUnsupported,
         "{} has rows of type {}, supported are 0 (f32), 1 (f16), 100 (q8) and 101 (q4); use a "
         "later "
         "ctxzip",
         source.object, row_type);
  }
  const KvShape shape = {.n_layer = layers.n_global(),
                         .n_kv_head = meta.model.n_kv_head,
                         .head_dim = meta.model.head_dim,
                         .row_type = static_cast<RowType>(row_type),
                         .value_in_key = meta.model.value_dim != 0};
  const auto problem =
      limit_exceeded(shape, layers, meta.prefix_tokens.size() + meta.context_tokens.size());
  if (problem) source.corrupt("{}", *problem);
  if (const auto wrong = state_size_wrong(layers, meta.model.state_size)) {
    source.corrupt("{}", *wrong);
  }
  if (meta.model.value_dim < 0 || meta.model.value_dim > shape.head_dim) {
    source.corrupt("value_dim is {}, expected 0 to the head_dim of {}", meta.model.value_dim,
                   shape.head_dim);
  }
  if (is_quantised(shape.row_type) && shape.value_in_key) {
    source.corrupt("the rows are quantised and have values in keys, expected f16 or f32");
  }
  if (is_quantised(shape.row_type) && shape.head_dim % 8 != 0) {
    source.corrupt("head_dim is {} with quantised rows, expected a multiple of 8", shape.head_dim);
  }
  return shape;
}

std::vector<uint32_t> read_counts(const Source& source, const KvShape& shape, uint64_t n_context) {
  std::vector<uint32_t> counts = source.get_array<uint32_t>(kKeyCounts);
  const auto n_heads = static_cast<size_t>(shape.n_layer * shape.n_kv_head);
  if (counts.size() != n_heads) {
    source.corrupt("{} has {} entries, expected {} (layers x heads)", kKeyCounts, counts.size(),
                   n_heads);
  }
  for (size_t head = 0; head < n_heads; ++head) {
    if (counts[head] > n_context) {
      source.corrupt("entry {} of {} is {}, expected at most the {} tokens of the context", head,
                     kKeyCounts, counts[head], n_context);
    }
  }
  return counts;
}

void check_tensor(const Source& source, const GgufTensor& found, const TensorSpec& expected) {
  if (found.name != expected.name) {
    source.corrupt("found the tensor '{}' where '{}' is expected", to_plain_text(found.name, 63),
                   expected.name);
  }
  if (found.type != expected.type) {
    source.corrupt("the tensor {} has type {}, expected {}", expected.name, found.type,
                   expected.type);
  }
  if (found.ne != expected.ne) {
    source.corrupt("the tensor {} is {} x {} x {} x {}, expected {} x {} x {} x {}", expected.name,
                   found.ne[0], found.ne[1], found.ne[2], found.ne[3], expected.ne[0],
                   expected.ne[1], expected.ne[2], expected.ne[3]);
  }
  if (found.offset != expected.offset) {
    source.corrupt("the tensor {} starts at {} of the data, expected {}", expected.name,
                   found.offset, expected.offset);
  }
}

// The bytes of each tensor, after table, extent, padding and checksums were found right.
std::vector<std::span<const std::byte>> read_tensors(const Source& source,
                                                     std::span<const TensorSpec> specs) {
  const std::vector<GgufTensor>& found = source.gguf.tensors;
  if (found.size() != specs.size()) {
    source.corrupt("the file has {} tensors, expected {}", found.size(), specs.size());
  }
  for (size_t at = 0; at < specs.size(); ++at) check_tensor(source, found[at], specs[at]);
  const auto data = source.bytes.subspan(source.gguf.data_offset);
  const uint64_t n_expected = specs.back().offset + padded_bytes(specs.back().n_bytes);
  if (data.size() != n_expected) {
    source.corrupt("{} bytes follow the metadata, expected {}", data.size(), n_expected);
  }
  const auto checksums = source.get_array<uint64_t>(kKeyTensorChecksums);
  if (checksums.size() != specs.size()) {
    source.corrupt("{} has {} entries, expected {}", kKeyTensorChecksums, checksums.size(),
                   specs.size());
  }
  std::vector<std::span<const std::byte>> tensors;
  tensors.reserve(specs.size());
  for (size_t at = 0; at < specs.size(); ++at) {
    const TensorSpec& spec = specs[at];
    const auto padded = data.subspan(spec.offset, padded_bytes(spec.n_bytes));
    const auto bytes = tensors.emplace_back(padded.first(spec.n_bytes));
    const uint64_t checksum = hash64(bytes);
    if (checksum != checksums[at]) {
      source.corrupt("the checksum of the tensor {} is {}, expected {}", spec.name,
                     to_hex(checksum), to_hex(checksums[at]));
    }
    const auto padding = padded.subspan(spec.n_bytes);
    if (std::any_of(padding.begin(), padding.end(), [](std::byte b) { return b != std::byte{}; })) {
      source.corrupt("the padding after the tensor {} is not zero", spec.name);
    }
  }
  return tensors;
}

// The rows of one head's bitmap, ascending.
std::vector<uint32_t> read_bitmap(std::span<const std::byte> bitmap, uint32_t count) {
  std::vector<uint32_t> rows;
  rows.reserve(count);
  for (size_t at = 0; at < bitmap.size(); ++at) {
    for (auto bits = static_cast<uint32_t>(bitmap[at]); bits != 0; bits &= bits - 1) {
      rows.push_back(static_cast<uint32_t>(8 * at) + static_cast<uint32_t>(std::countr_zero(bits)));
    }
  }
  return rows;
}

KeepSet read_keep_set(const Source& source, const KvShape& shape, uint64_t n_context,
                      std::span<const uint32_t> counts, std::span<const std::byte> bitmaps) {
  KeepSet kept{.n_layer = shape.n_layer,
               .n_kv_head = shape.n_kv_head,
               .n_context = static_cast<int64_t>(n_context),
               .rows = {}};
  kept.rows.reserve(counts.size());
  const size_t stride = bitmap_bytes(n_context);
  for (size_t head = 0; head < counts.size(); ++head) {
    const auto bitmap = bitmaps.subspan(head * stride, stride);
    uint64_t n_set = 0;
    for (const std::byte bits : bitmap) {
      n_set += static_cast<uint64_t>(std::popcount(static_cast<uint8_t>(bits)));
    }
    if (n_set != counts[head]) {
      source.corrupt("bitmap {} has {} bits set, expected {} (its entry in {})", head, n_set,
                     counts[head], kKeyCounts);
    }
    const uint64_t n_used = n_context % 8;
    if (n_used != 0 && static_cast<uint8_t>(bitmap.back()) >> n_used != 0) {
      source.corrupt("bitmap {} marks a position after the last of {}", head, n_context);
    }
    kept.rows.push_back(read_bitmap(bitmap, counts[head]));
  }
  return kept;
}

// (layer of the model)
std::vector<LayerSize> layer_sizes(const ContextRows& rows, std::span<const uint32_t> counts) {
  const LayerMap& layers = rows.layers;
  std::vector<LayerSize> sizes;
  for (int64_t layer = 0; layer < layers.n_layer(); ++layer) {
    LayerSize size;
    if (layers.is_recurrent(layer)) {
      size.n_state = static_cast<uint64_t>(rows.states.size);
      sizes.push_back(size);
      continue;
    }
    const bool local = layers.is_local(layer);
    const ZippedRows& store = local ? rows.local : rows.global;
    for (int64_t head = 0; head < store.shape.n_kv_head; ++head) {
      const auto at = static_cast<size_t>(layers.index(layer) * store.shape.n_kv_head + head);
      const int64_t n_rows = store.n_prefix + (local ? 0 : int64_t{counts[at]});
      size.n_rows += static_cast<uint64_t>(n_rows);
      size.k_bytes += stored_key_bytes(store.shape, n_rows);
      size.v_bytes += stored_value_bytes(store.shape, n_rows);
    }
    sizes.push_back(size);
  }
  return sizes;
}

// Points both stores at their tensors, which follow the bitmaps in the order of layers; copies
// states.
void place_rows(ContextRows& rows, std::span<const LayerSize> sizes,
                std::span<const std::span<const std::byte>> tensors) {
  size_t next = 1;
  const bool shared = rows.global.shape.value_in_key;
  rows.states.values.reserve(static_cast<size_t>(rows.states.n_layer * rows.states.size));
  for (size_t layer = 0; layer < sizes.size(); ++layer) {
    if (sizes[layer].n_state > 0) {
      const std::span<const std::byte> state = tensors[next++];
      const size_t at = rows.states.values.size();
      rows.states.values.resize(at + sizes[layer].n_state);
      std::memcpy(rows.states.values.data() + at, state.data(), state.size());
      continue;
    }
    ZippedRows& store =
        rows.layers.is_local(static_cast<int64_t>(layer)) ? rows.local : rows.global;
    const bool any = sizes[layer].n_rows > 0;
    store.k_layers.push_back(any ? tensors[next++].data() : nullptr);
    store.v_layers.push_back(shared ? store.k_layers.back()
                             : any  ? tensors[next++].data()
                                    : nullptr);
  }
  index_rows(rows.global);
  index_rows(rows.local);
}

// Everything but `storage`.
CtzFile parse_ctz(std::span<const std::byte> bytes, const std::string& object) {
  const Source source = {.bytes = bytes, .object = object, .gguf = parse_gguf(bytes, object)};
  check_kind(source);
  check_metadata_checksum(source);
  CtzFile file;
  file.file_bytes = static_cast<int64_t>(bytes.size());
  file.version = source.get<uint32_t>(kKeyVersion);
  file.meta = read_meta(source);
  ContextRows& rows = file.rows;
  rows.layers = read_layers(source, file.meta.model);
  const KvShape shape = read_shape(source, file.meta, rows.layers);
  const size_t n_prefix = file.meta.prefix_tokens.size();
  const uint64_t n_context = file.meta.context_tokens.size();
  rows.global.shape = shape;
  rows.global.n_prefix = static_cast<int64_t>(n_prefix);
  rows.local.shape = shape;
  rows.local.shape.n_layer = rows.layers.n_local();
  rows.local.shape.row_type = window_row_type(shape.row_type);
  rows.local.n_prefix = frozen_window_rows(rows.layers, static_cast<int64_t>(n_prefix + n_context));
  rows.local.kept = keep_nothing(rows.layers.n_local(), shape.n_kv_head);
  rows.states = {
      .n_layer = rows.layers.n_recurrent(), .size = file.meta.model.state_size, .values = {}};
  const auto counts = read_counts(source, shape, n_context);
  const auto sizes = layer_sizes(rows, counts);
  std::vector<TensorSpec> specs = tensor_layout(shape, rows.layers, n_context, sizes);
  const size_t n_row_tensors = specs.size();
  std::optional<RecallKeys> recall;
  const MlaShape latent = recall_shape(file.meta.model);
  if (file.version > kVersionWithoutRecall) {
    recall = read_recall_keys(source, file.meta.model, shape, rows.layers,
                              static_cast<int64_t>(n_prefix + n_context));
    append_recall_layout(specs, rows.layers, latent, recall->context.options, recall->sizes);
  }
  const auto tensors = read_tensors(source, specs);
  rows.global.kept = read_keep_set(source, shape, n_context, counts, tensors[0]);
  place_rows(rows, sizes, tensors);
  if (!recall) return file;
  if (rows.global.kept.pairs_kept() != rows.global.kept.pairs_total()) {
    source.corrupt("{} of {} rows are there, expected all of them under VestigeKV",
                   rows.global.kept.pairs_kept(), rows.global.kept.pairs_total());
  }
  file.meta.recall = std::make_shared<const RecallContext>(
      read_recall(source, latent, std::move(*recall), std::span(tensors).subspan(n_row_tensors)));
  return file;
}

}  // namespace

CtzFile read_ctz(const std::string& path) {
  auto mapped = std::make_shared<const MappedFile>(path);
  CtzFile file = parse_ctz(mapped->bytes(), fmt::format("'{}'", path));
  file.rows.global.storage = mapped;
  file.rows.local.storage = std::move(mapped);
  return file;
}

CtzFile read_ctz(std::vector<std::byte> bytes) {
  auto owned = std::make_shared<const std::vector<std::byte>>(std::move(bytes));
  CtzFile file = parse_ctz(*owned, "the .ctz data in memory");
  file.rows.global.storage = owned;
  file.rows.local.storage = std::move(owned);
  return file;
}

}  // namespace ctxzip
