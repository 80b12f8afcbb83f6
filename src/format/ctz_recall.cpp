#include "format/ctz_recall.h"

#include <algorithm>
#include <array>
#include <cstring>

#include "recall/recall_cache.h"

namespace ctxzip {
namespace {

constexpr auto kTensorF32 = static_cast<uint32_t>(RowType::kF32);
constexpr int64_t kMaxSteps = 1 << 16;
constexpr char kKeyWindow[] = "ctxzip.policy.window";
constexpr char kKeyControl[] = "ctxzip.policy.control";
constexpr char kKeyZ[] = "ctxzip.policy.z";

std::string policy_key(const char* name) { return std::string(kKeyPolicyPrefix) + name; }

// field(name, value) for each setting but the window's form.
template <typename Options, typename Field>
void for_each_option(Options& options, Field field) {
  field("block_rows", options.block_rows);
  field("bins_per_4096", options.bins_per_4096);
  field("keep_ratio", options.keep_ratio);
  field("sinks", options.n_sinks);
  field("recent", options.n_recent);
  field("recall", options.recall);
  field("sound", options.sound);
  field("sketch_rank", options.sketch_rank);
  field("target", options.target.recall);
  field("z_max", options.z_max);
  field("min_steps", options.min_steps);
  field("max_steps", options.max_steps);
  field("top_per_head", options.top_per_head);
  field("max_fetched", options.max_fetched);
  field("dense_below", options.dense_below);
}

// The counts of one layer; each is an entry of an array of all layers.
struct Count {
  const char* name;
  uint32_t most;
};
constexpr std::array<Count, 13> kCounts = {{{"closed", INT32_MAX},
                                            {"observed", kMaxSteps},
                                            {"phase", 2},
                                            {"notes", kAllNotes},
                                            {"z_rank", INT32_MAX},
                                            {"hard", INT32_MAX},
                                            {"steps", INT32_MAX},
                                            {"gated", INT32_MAX},
                                            {"stage", 3},
                                            {"completed", 1},
                                            {"labelled", kMaxSteps},
                                            {"labelled_rows", INT32_MAX},
                                            {"rebuilt", INT32_MAX}}};
using CountValues = std::array<uint32_t, kCounts.size()>;

CountValues counts_of(const RecallState& state, int64_t n_steps) {
  const CalibrationRecord& record = state.calibration;
  const auto n = [](int64_t value) { return static_cast<uint32_t>(value); };
  return {n(state.n_closed),
          n(n_steps),
          static_cast<uint32_t>(record.state.phase),
          record.state.notes,
          n(record.state.rank),
          n(record.state.n_hard),
          n(record.state.n_steps),
          n(record.state.n_gated),
          static_cast<uint32_t>(record.stage),
          record.completed ? 1u : 0u,
          n(record.n_labelled),
          n(record.labelled_rows),
          n(record.n_rebuilt)};
}

void set_counts(const CountValues& values, RecallState& state, RecallSize& size) {
  CalibrationRecord& record = state.calibration;
  state.n_closed = size.n_closed = values[0];
  size.n_steps = values[1];
  record.state.phase = static_cast<CalibrationPhase>(values[2]);
  record.state.notes = values[3];
  record.state.rank = values[4];
  record.state.n_hard = values[5];
  record.state.n_steps = values[6];
  record.state.n_gated = values[7];
  record.stage = static_cast<CalibrationStage>(values[8]);
  record.completed = values[9] == 1;
  record.n_labelled = values[10];
  record.labelled_rows = values[11];
  record.n_rebuilt = values[12];
}

std::optional<std::string> shape_problem(const KvShape& rows, const LayerMap& layers,
                                         const MlaShape& shape, const RecallOptions& options) {
  if (layers.n_global() > kMaxRecallLayers || layers.n_local() > 0) {
    return fmt::format("{} MLA and {} local layers, expected at most {} and none",
                       layers.n_global(), layers.n_local(), kMaxRecallLayers);
  }
  if (rows.n_kv_head != 1 || !rows.value_in_key || is_quantised(rows.row_type)) {
    return fmt::format("{} KV heads, expected rows of latent attention", rows.n_kv_head);
  }
  if (options.max_steps > kMaxSteps) {
    return fmt::format("max_steps is {}, expected at most {}", options.max_steps, kMaxSteps);
  }
  return options_problem(shape, options);
}

template <typename T>
std::span<const std::byte> bytes_of(const std::vector<T>& values) {
  return std::as_bytes(std::span(values));
}

template <typename T>
void copy_to(std::vector<T>& values, std::span<const std::byte> bytes) {
  values.resize(bytes.size() / sizeof(T));
  if (!bytes.empty()) std::memcpy(values.data(), bytes.data(), bytes.size());
}

std::vector<uint32_t> read_partition(const Source& source, std::span<const std::byte> bitmap,
                                     int64_t n_closed) {
  std::vector<uint32_t> rows;
  for (size_t at = 0; at < 8 * bitmap.size(); ++at) {
    if ((bitmap[at / 8] >> at % 8 & std::byte{1}) == std::byte{}) continue;
    if (static_cast<int64_t>(at) >= n_closed) {
      source.corrupt("a partition marks row {} of {}", at, n_closed);
    }
    rows.push_back(static_cast<uint32_t>(at));
  }
  return rows;
}

}  // namespace

MlaShape recall_shape(const ModelFingerprint& model) {
  return {.latent = model.value_dim,
          .branch = model.head_dim - model.value_dim,
          .n_head = model.n_head};
}

std::vector<RecallSize> recall_sizes(const RecallContext& recall, int64_t n_head) {
  std::vector<RecallSize> sizes;
  for (const RecallState& state : recall.layers) {
    sizes.push_back(
        {state.n_closed, static_cast<int64_t>(state.calibration.best_kept.size()) / n_head});
  }
  return sizes;
}

void check_recall(const ModelFingerprint& model, const ContextRows& rows,
                  const RecallContext& recall) {
  const MlaShape shape = recall_shape(model);
  const KeepSet& kept = rows.global.kept;
  CHECK(kept.pairs_kept() == kept.pairs_total());
  CHECK(static_cast<int64_t>(recall.layers.size()) == rows.layers.n_global());
  for (const RecallState& state : recall.layers) {
    CHECK(state.n_rows() == rows.n_positions());
    auto problem = shape_problem(rows.global.shape, rows.layers, shape, recall.options);
    if (!problem) problem = state_problem(state, shape, recall.options);
    if (problem) {
      fail(ErrorKind::kUnsupported, "a .ctz file cannot hold this context: {}", *problem);
    }
  }
}

void set_recall_keys(KeyWriter& keys, const RecallContext& recall) {
  keys.set(kKeyPolicy, std::string(kPolicyVestige));
  for_each_option(recall.options, [&](const char* name, const auto& value) {
    keys.set(policy_key(name).c_str(), value);
  });
  const bool prefix = recall.options.window == WindowForm::kPrefix;
  keys.set(kKeyWindow, std::string(prefix ? "prefix" : "block"));
  keys.set(kKeyControl, recall.control);
  const auto n_head = static_cast<int64_t>(recall.layers[0].calibration.gates.size());
  const std::vector<RecallSize> sizes = recall_sizes(recall, n_head);
  std::array<std::vector<uint32_t>, kCounts.size()> counts;
  std::vector<double> z;
  for (size_t layer = 0; layer < recall.layers.size(); ++layer) {
    const RecallState& state = recall.layers[layer];
    const CountValues values = counts_of(state, sizes[layer].n_steps);
    for (size_t at = 0; at < values.size(); ++at) counts[at].push_back(values[at]);
    z.push_back(state.calibration.state.z);
  }
  for (size_t at = 0; at < counts.size(); ++at) {
    keys.set(policy_key(kCounts[at].name).c_str(), counts[at]);
  }
  keys.set(kKeyZ, z);
}

std::vector<std::byte> partition_bitmap(const RecallState& state) {
  std::vector<std::byte> bitmap(bitmap_bytes(static_cast<uint64_t>(state.n_closed)));
  for (const uint32_t row : state.kept) bitmap[row / 8] |= std::byte{1} << (row % 8);
  return bitmap;
}

void append_recall_layout(std::vector<TensorSpec>& specs, const LayerMap& layers,
                          const MlaShape& shape, const RecallOptions& options,
                          std::span<const RecallSize> sizes) {
  const auto add = [&](const char* kind, size_t layer, uint32_t type, std::array<int64_t, 3> ne) {
    TensorSpec spec = {.name = fmt::format("{}.{}", kind, layers.global_layers()[layer]),
                       .type = type};
    spec.n_bytes = type == kTensorI8 ? 1 : 4;
    for (size_t at = 0; at < ne.size(); ++at) {
      spec.ne[at] = static_cast<uint64_t>(ne[at]);
      spec.n_bytes *= spec.ne[at];
    }
    spec.offset = specs.back().offset + padded_bytes(specs.back().n_bytes);
    specs.push_back(std::move(spec));
  };
  for (size_t layer = 0; layer < sizes.size(); ++layer) {
    const auto [n_closed, n_steps] = sizes[layer];
    if (n_closed > 0) {
      add("sigma", layer, kTensorF32, {n_closed, 1, 1});
      add("partition", layer, kTensorI8, {(n_closed + 7) / 8, 1, 1});
    }
    add("basis", layer, kTensorF32, {shape.latent, sketch_rank(shape, options), 1});
    add("gates", layer, kTensorF32, {shape.n_head, 1, 1});
    if (n_steps == 0) continue;
    add("queries", layer, kTensorF32, {shape.row_dim(), shape.n_head, n_steps});
    for (const char* kind : {"best_kept", "entropy", "best_archived"}) {
      add(kind, layer, kTensorF32, {shape.n_head, n_steps, 1});
    }
    add("target", layer, kTensorI32, {shape.n_head, n_steps, 1});
  }
}

void append_recall_data(std::vector<std::span<const std::byte>>& data, const RecallState& state,
                        std::span<const std::byte> partition) {
  if (state.n_closed > 0) {
    data.push_back(bytes_of(state.sigma));
    data.push_back(partition);
  }
  data.push_back(bytes_of(state.basis));
  const CalibrationRecord& record = state.calibration;
  data.push_back(bytes_of(record.gates));
  if (record.best_kept.empty()) return;
  data.push_back(bytes_of(record.queries));
  for (const auto* values : {&record.best_kept, &record.entropy, &record.best_archived}) {
    data.push_back(bytes_of(*values));
  }
  data.push_back(bytes_of(record.target));
}

RecallKeys read_recall_keys(const Source& source, const ModelFingerprint& model,
                            const KvShape& rows, const LayerMap& layers, int64_t n_rows) {
  const auto policy = source.get<std::string>(kKeyPolicy);
  if (policy != kPolicyVestige) {
    source.corrupt("{} is '{}', expected '{}'", kKeyPolicy, policy, kPolicyVestige);
  }
  RecallKeys keys;
  RecallOptions& options = keys.context.options;
  for_each_option(options, [&]<typename T>(const char* name, T& value) {
    value = source.get<T>(policy_key(name).c_str());
  });
  const auto window = source.get<std::string>(kKeyWindow);
  if (window != "block" && window != "prefix") {
    source.corrupt("{} is '{}', expected 'block' or 'prefix'", kKeyWindow, window);
  }
  options.window = window == "prefix" ? WindowForm::kPrefix : WindowForm::kBlock;
  keys.context.control = source.get<bool>(kKeyControl);
  if (const auto problem = shape_problem(rows, layers, recall_shape(model), options)) {
    source.corrupt("VestigeKV: {}", *problem);
  }
  const auto n_layer = static_cast<size_t>(layers.n_global());
  const auto numbers = [&](const char* name, uint32_t most) {
    std::vector<uint32_t> values = source.get_array<uint32_t>(policy_key(name).c_str());
    const bool fits = values.size() == n_layer &&
                      std::ranges::all_of(values, [&](uint32_t value) { return value <= most; });
    if (!fits) {
      source.corrupt("{} has {} entries, expected {}, each at most {}", policy_key(name),
                     values.size(), n_layer, most);
    }
    return values;
  };
  std::vector<CountValues> counts(n_layer);
  for (size_t at = 0; at < kCounts.size(); ++at) {
    const std::vector<uint32_t> values = numbers(kCounts[at].name, kCounts[at].most);
    for (size_t layer = 0; layer < n_layer; ++layer) counts[layer][at] = values[layer];
  }
  const std::vector<double> z = source.get_array<double>(kKeyZ);
  const auto finite = [](double value) { return std::isfinite(value); };
  if (z.size() != n_layer || !std::ranges::all_of(z, finite)) {
    source.corrupt("{} has {} entries, expected {} finite numbers", kKeyZ, z.size(), n_layer);
  }
  keys.context.layers.resize(n_layer);
  keys.sizes.resize(n_layer);
  for (size_t layer = 0; layer < n_layer; ++layer) {
    RecallState& state = keys.context.layers[layer];
    set_counts(counts[layer], state, keys.sizes[layer]);
    state.calibration.state.z = z[layer];
    state.n_tail = n_rows - state.n_closed;
    if (state.n_tail < 0 || state.n_tail >= 2 * options.block_rows ||
        state.n_closed != keys.context.layers[0].n_closed) {
      source.corrupt(
          "{} of {} rows are closed with blocks of {}, expected the rest to be less "
          "than two blocks and all layers alike",
          state.n_closed, n_rows, options.block_rows);
    }
  }
  return keys;
}

RecallContext read_recall(const Source& source, const MlaShape& shape, RecallKeys keys,
                          std::span<const std::span<const std::byte>> tensors) {
  size_t next = 0;
  for (size_t layer = 0; layer < keys.sizes.size(); ++layer) {
    RecallState& state = keys.context.layers[layer];
    CalibrationRecord& record = state.calibration;
    if (state.n_closed > 0) {
      copy_to(state.sigma, tensors[next++]);
      state.kept = read_partition(source, tensors[next++], state.n_closed);
    }
    copy_to(state.basis, tensors[next++]);
    copy_to(record.gates, tensors[next++]);
    if (keys.sizes[layer].n_steps > 0) {
      copy_to(record.queries, tensors[next++]);
      for (auto* values : {&record.best_kept, &record.entropy, &record.best_archived}) {
        copy_to(*values, tensors[next++]);
      }
      copy_to(record.target, tensors[next++]);
    }
    if (const auto problem = state_problem(state, shape, keys.context.options)) {
      source.corrupt("VestigeKV's layer {}: {}", layer, *problem);
    }
  }
  return std::move(keys.context);
}

}  // namespace ctxzip
