#include <ggml-cpp.h>
#include <ggml.h>
#include <gguf.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <type_traits>

#include "core/fail.h"
#include "core/hash.h"
#include "format/ctz.h"
#include "format/ctz_layout.h"
#include "format/ctz_recall.h"
#include "format/gguf_reader.h"
#include "format/key_writer.h"
#include "format/plain_text.h"

namespace ctxzip {
namespace {

static_assert(kTensorI8 == GGML_TYPE_I8 && kTensorI32 == GGML_TYPE_I32);
static_assert(static_cast<uint32_t>(RowType::kF32) == GGML_TYPE_F32);
static_assert(static_cast<uint32_t>(RowType::kF16) == GGML_TYPE_F16);
static_assert(kGgufAlignment == GGUF_DEFAULT_ALIGNMENT);

// The tensors of one file: table and bytes.
struct Body {
  std::vector<TensorSpec> specs;
  std::vector<std::byte> bitmaps;
  std::vector<std::vector<std::byte>> partitions;  // VestigeKV: (global layer)
  std::vector<std::span<const std::byte>> data;    // (spec)
};

void check_arguments(const CtzMeta& meta, const ContextRows& rows) {
  const ZippedRows& global = rows.global;
  const KvShape& shape = global.shape;
  CHECK(meta.model.layers == rows.layers.kinds() && meta.model.window == rows.layers.window());
  CHECK(meta.model.n_layer == rows.layers.n_layer() && shape.n_layer == rows.layers.n_global());
  CHECK(meta.model.n_kv_head == shape.n_kv_head && meta.model.head_dim == shape.head_dim);
  CHECK((meta.model.value_dim > 0) == shape.value_in_key);
  CHECK(rows.states.n_layer == rows.layers.n_recurrent() &&
        rows.states.size == meta.model.state_size);
  CHECK(global.kept.n_layer == shape.n_layer && global.kept.n_kv_head == shape.n_kv_head);
  CHECK(global.kept.rows.size() == static_cast<size_t>(shape.n_layer * shape.n_kv_head));
  CHECK(static_cast<int64_t>(meta.prefix_tokens.size()) == global.n_prefix);
  CHECK(static_cast<int64_t>(meta.context_tokens.size()) == global.kept.n_context);
  CHECK(global.kept.n_context > 0 && meta.chunk_tokens >= 0);
  if (rows.layers.n_local() > 0) {
    CHECK(rows.local.n_prefix == frozen_window_rows(rows.layers, rows.n_positions()));
    CHECK(rows.local.shape.n_layer == rows.layers.n_local());
    CHECK(rows.local.shape.row_type == window_row_type(shape.row_type));
  }
  if (meta.recall != nullptr) check_recall(meta.model, rows, *meta.recall);
  for (const auto* tokens : {&meta.prefix_tokens, &meta.context_tokens, &meta.question_tokens,
                             &meta.turn_tokens, &meta.next_turn_tokens}) {
    for (const int32_t token : *tokens) CHECK(token >= 0 && token < meta.model.n_vocab);
  }
  auto problem = limit_exceeded(shape, rows.layers, static_cast<uint64_t>(rows.n_positions()));
  if (!problem) problem = state_size_wrong(rows.layers, meta.model.state_size);
  if (problem) {
    fail(ErrorKind::kUnsupported, "a .ctz file cannot hold this context: {}", *problem);
  }
}

std::vector<std::byte> make_bitmaps(const KeepSet& kept) {
  const size_t stride = bitmap_bytes(static_cast<uint64_t>(kept.n_context));
  std::vector<std::byte> bitmaps(stride * kept.rows.size());
  for (size_t head = 0; head < kept.rows.size(); ++head) {
    for (const uint32_t row : kept.rows[head]) {
      CHECK(row < kept.n_context);
      bitmaps[head * stride + row / 8] |= std::byte{1} << (row % 8);
    }
  }
  return bitmaps;
}

Body make_body(const CtzMeta& meta, const ContextRows& rows) {
  const LayerMap& layers = rows.layers;
  const auto store = [&](int64_t layer) -> const ZippedRows& {
    return layers.is_local(layer) ? rows.local : rows.global;
  };
  std::vector<LayerSize> sizes;
  for (int64_t layer = 0; layer < layers.n_layer(); ++layer) {
    const int64_t at = layers.index(layer);
    if (layers.is_recurrent(layer)) {
      sizes.push_back({.n_state = static_cast<uint64_t>(rows.states.size)});
      continue;
    }
    sizes.push_back({.n_rows = static_cast<uint64_t>(store(layer).layer_rows(at)),
                     .k_bytes = store(layer).layer_key_bytes(at),
                     .v_bytes = store(layer).layer_value_bytes(at)});
  }
  Body body;
  body.specs = tensor_layout(rows.global.shape, layers,
                             static_cast<uint64_t>(rows.global.kept.n_context), sizes);
  body.bitmaps = make_bitmaps(rows.global.kept);
  body.data.push_back(body.bitmaps);
  for (int64_t layer = 0; layer < layers.n_layer(); ++layer) {
    const LayerSize& size = sizes[static_cast<size_t>(layer)];
    if (size.n_state > 0) {
      body.data.push_back(
          std::as_bytes(std::span(rows.states.layer(layers.index(layer)), size.n_state)));
    }
    if (size.n_rows == 0) continue;
    const auto at = static_cast<size_t>(layers.index(layer));
    body.data.emplace_back(store(layer).k_layers[at], size.k_bytes);
    if (size.v_bytes > 0) body.data.emplace_back(store(layer).v_layers[at], size.v_bytes);
  }
  if (meta.recall == nullptr) return body;
  const MlaShape shape = recall_shape(meta.model);
  append_recall_layout(body.specs, layers, shape, meta.recall->options,
                       recall_sizes(*meta.recall, shape.n_head));
  for (const RecallState& state : meta.recall->layers) {
    body.partitions.push_back(partition_bitmap(state));
    append_recall_data(body.data, state, body.partitions.back());
  }
  return body;
}

void set_keys(KeyWriter& keys, const CtzMeta& meta, const ContextRows& rows) {
  keys.set(kKeyArchitecture, std::string(kCtzArchitecture));
  keys.set(kKeyAlignment, static_cast<uint32_t>(kGgufAlignment));
  keys.set(kKeyVersion, meta.recall == nullptr ? kVersionWithoutRecall : kCtzVersion);
  keys.set(kKeyRowType, static_cast<uint32_t>(rows.global.shape.row_type));
  keys.set(kKeyModelName, to_plain_text(meta.model_name, kMaxTextBytes));
  for_each_field(meta.model, [&](const char* name, const auto& value, int) {
    keys.set((std::string(kKeyModelPrefix) + name).c_str(), value);
  });
  keys.set(kKeyPrefixTokens, meta.prefix_tokens);
  keys.set(kKeyContextTokens, meta.context_tokens);
  keys.set(kKeyQuestionTokens, meta.question_tokens);
  keys.set(kKeyTurnTokens, meta.turn_tokens);
  keys.set(kKeyNextTurnTokens, meta.next_turn_tokens);
  keys.set(kKeyTemplated, meta.templated);
  keys.set(kKeyMethod, meta.method);
  keys.set(kKeyAllocation, meta.allocation);
  keys.set(kKeyReconAttention, meta.recon_attention);
  keys.set(kKeySchedule, meta.schedule);
  keys.set(kKeyChunkTokens, meta.chunk_tokens);
  keys.set(kKeySeed, meta.seed);
  keys.set(kKeyDeltaNll, meta.delta_nll);
  keys.set(kKeyDeltaNllProbe, meta.delta_nll_probe);
  std::vector<uint32_t> counts;
  for (const auto& list : rows.global.kept.rows)
    counts.push_back(static_cast<uint32_t>(list.size()));
  keys.set(kKeyCounts, counts);
  if (meta.recall != nullptr) set_recall_keys(keys, *meta.recall);
}

void add_tensors(gguf_context* gguf, const std::vector<TensorSpec>& specs) {
  const ggml_context_ptr tensors(ggml_init({.mem_size = ggml_tensor_overhead() * specs.size(),
                                            .mem_buffer = nullptr,
                                            .no_alloc = true}));
  if (!tensors) fail(ErrorKind::kOutOfMemory, "no memory for the tensor table of a .ctz file");
  for (const TensorSpec& spec : specs) {
    std::array<int64_t, 4> ne{};
    std::copy(spec.ne.begin(), spec.ne.end(), ne.begin());
    ggml_tensor* const tensor =
        ggml_new_tensor(tensors.get(), static_cast<ggml_type>(spec.type), 4, ne.data());
    ggml_set_name(tensor, spec.name.c_str());
    gguf_add_tensor(gguf, tensor);
    const int64_t at = gguf_get_n_tensors(gguf) - 1;
    CHECK(gguf_get_tensor_offset(gguf, at) == spec.offset);
    CHECK(gguf_get_tensor_size(gguf, at) == spec.n_bytes);
  }
}

std::vector<std::byte> metadata_bytes(const gguf_context* gguf) {
  std::vector<std::byte> bytes(gguf_get_meta_size(gguf));
  gguf_get_meta_data(gguf, bytes.data());
  return bytes;
}

// The metadata with `tensor_checksums` and its own checksum.
std::vector<std::byte> make_metadata(const CtzMeta& meta, const ContextRows& rows, const Body& body,
                                     const std::vector<uint64_t>& tensor_checksums) {
  const gguf_context_ptr gguf(gguf_init_empty());
  KeyWriter keys(gguf.get());
  set_keys(keys, meta, rows);
  keys.set(kKeyTensorChecksums, tensor_checksums);
  add_tensors(gguf.get(), body.specs);
  keys.set(kKeyMetadataChecksum, uint64_t{0});
  const uint64_t checksum = hash64(metadata_bytes(gguf.get()));
  keys.set(kKeyMetadataChecksum, checksum);
  return metadata_bytes(gguf.get());
}

}  // namespace

void write_ctz(const CtzMeta& meta, const ContextRows& rows, const WriteFn& sink) {
  check_arguments(meta, rows);
  const Body body = make_body(meta, rows);
  std::vector<uint64_t> checksums;
  for (const auto data : body.data) checksums.push_back(hash64(data));
  sink(make_metadata(meta, rows, body, checksums));
  constexpr std::byte kPadding[kGgufAlignment] = {};
  for (const auto data : body.data) {
    sink(data);
    const size_t n_padding = padded_bytes(data.size()) - data.size();
    if (n_padding != 0) sink(std::span(kPadding).first(n_padding));
  }
}

int64_t ctz_bytes(const CtzMeta& meta, const ContextRows& rows) {
  check_arguments(meta, rows);
  const Body body = make_body(meta, rows);
  const std::vector<uint64_t> checksums(body.specs.size());
  const TensorSpec& last = body.specs.back();
  return static_cast<int64_t>(make_metadata(meta, rows, body, checksums).size() + last.offset +
                              padded_bytes(last.n_bytes));
}

}  // namespace ctxzip
