#include "model/model_state.h"

#include <sched.h>

#include <algorithm>
#include <filesystem>
#include <map>

#include "cache/kv_shape.h"
#include "core/fail.h"
#include "core/hash.h"

namespace ctxzip {
namespace {

constexpr size_t kSampledBytes = 4096;

uint64_t hash_tensor_table(const GgufFile& file) {
  Hasher64 hasher;
  for (const TensorInfo& tensor : file.tensors()) {
    hasher.update(std::as_bytes(std::span(tensor.name.data(), tensor.name.size() + 1)));
    hasher.update_value(static_cast<int32_t>(tensor.type));
    hasher.update_value(tensor.ne);
  }
  return hasher.digest();
}

// The start, middle and end of every tensor: a few MB of reading instead of the whole file.
uint64_t hash_weights(const GgufFile& file) {
  Hasher64 hasher;
  for (const TensorInfo& tensor : file.tensors()) {
    const size_t n = std::min(kSampledBytes, tensor.n_bytes);
    const size_t last = tensor.n_bytes - n;
    for (const size_t offset : {size_t{0}, last / 2, last})
      hasher.update({tensor.data + offset, n});
  }
  return hasher.digest();
}

int usable_cores() {
  cpu_set_t set;
  CPU_ZERO(&set);
  if (sched_getaffinity(0, sizeof(set), &set) != 0) return 1;
  return std::max(1, CPU_COUNT(&set));
}

const Architecture& supported_architecture(const GgufFile& file) {
  const std::string name = file.require_string("general.architecture");
  const Architecture* architecture = find_architecture(name);
  if (architecture == nullptr) {
    fail(ErrorKind::kUnsupported, "{}: architecture '{}' is not supported (supported: {})",
         file.path(), name, architecture_names());
  }
  return *architecture;
}

Hyperparameters complete_hyperparameters(const GgufFile& file, const Architecture& architecture) {
  Hyperparameters hp = read_hyperparameters(file);
  const int64_t n_listed = file.array_size("tokenizer.ggml.tokens");
  hp.n_vocab =
      n_listed > 0 ? n_listed : file.require_int(hp.architecture + ".vocab_size", 1, 1 << 24);
  architecture.complete(file, hp);
  return hp;
}

std::string describe_types(const GgufFile& file) {
  std::map<std::string, size_t> bytes;
  for (const TensorInfo& tensor : file.tensors())
    bytes[ggml_type_name(tensor.type)] += tensor.n_bytes;
  std::vector<std::pair<std::string, size_t>> types(bytes.begin(), bytes.end());
  std::stable_sort(types.begin(), types.end(),
                   [](const auto& a, const auto& b) { return a.second > b.second; });
  std::string text;
  for (const auto& [type, n] : types) text += (text.empty() ? "" : " + ") + type;
  return text;
}

ModelInfo describe(const detail::ModelState& model) {
  const Hyperparameters& hp = model.hp;
  ModelInfo info;
  info.path = model.file.path();
  info.architecture = hp.architecture;
  info.name = model.file.find_string("general.name")
                  .value_or(std::filesystem::path(info.path).stem().string());
  info.n_layer = hp.n_layer;
  info.n_local_layer = hp.layers.n_local();
  info.n_recurrent_layer = hp.layers.n_recurrent();
  info.window = hp.layers.window();
  info.n_embd = hp.n_embd;
  info.n_head = hp.n_head;
  info.n_kv_head = hp.n_kv_head;
  info.head_dim = hp.head_dim;
  info.n_vocab = hp.n_vocab;
  info.n_ctx_train = hp.n_ctx_train;
  for (const TensorInfo& tensor : model.file.tensors()) {
    info.n_parameters += tensor.ne[0] * tensor.ne[1] * tensor.ne[2] * tensor.ne[3];
  }
  info.file_bytes = static_cast<int64_t>(model.file.bytes().size());
  const KvShape rows = {
      .n_kv_head = hp.n_kv_head, .head_dim = hp.head_dim, .value_in_key = hp.latent.content > 0};
  const int64_t row_in_layer = hp.n_kv_head * static_cast<int64_t>(rows.pair_size());
  info.kv_bytes_per_token = hp.layers.n_global() * row_in_layer;
  info.kv_bytes_window = hp.layers.n_local() * hp.layers.window_rows() * row_in_layer;
  info.state_bytes = hp.layers.n_recurrent() * hp.state_size * static_cast<int64_t>(sizeof(float));
  info.has_chat_template = model.tokenizer.has_chat_template();
  info.weight_types = describe_types(model.file);
  info.fingerprint = model.fingerprint.digest();
  return info;
}

}  // namespace

ModelFingerprint fingerprint(const GgufFile& file, const Hyperparameters& hp) {
  ModelFingerprint print;
  print.architecture = hp.architecture;
  print.n_layer = hp.n_layer;
  print.n_embd = hp.n_embd;
  print.n_head = hp.n_head;
  print.n_kv_head = hp.n_kv_head;
  print.head_dim = hp.head_dim;
  print.n_vocab = hp.n_vocab;
  print.layers = hp.layers.kinds();
  print.window = hp.layers.window();
  print.rope_base = hp.rope.base;
  print.rope_base_local = hp.rope.base_local;
  print.rope_scale = hp.rope.scale;
  print.rope_scaling = hp.rope.scaling;
  print.rope_attention_factor = hp.rope.attention_factor;
  print.rope_original_context = hp.rope.original_context;
  if (const TensorInfo* factors = file.find_tensor("rope_freqs.weight")) {
    print.rope_factors_hash = hash64({factors->data, factors->n_bytes});
  }
  print.tensor_table_hash = hash_tensor_table(file);
  print.weights_hash = hash_weights(file);
  print.tokenizer_hash = file.hash_metadata("tokenizer.", "tokenizer.chat_template");
  print.value_dim = hp.latent.content;
  print.state_size = hp.state_size;
  if (print.value_dim > 0 || print.state_size > 0) {
    print.settings_hash = file.hash_metadata(hp.architecture + ".", "");
  }
  return print;
}

namespace detail {

ModelState::ModelState(const std::string& path, const ModelOptions& load_options)
    : file(path),
      architecture(supported_architecture(file)),
      hp(complete_hyperparameters(file, architecture)),
      tokenizer(file),
      weights(file, architecture.weights(file, hp), load_options.repack),
      fingerprint(ctxzip::fingerprint(file, hp)),
      options(load_options) {
  if (options.n_threads < 0 || options.n_threads > 512) {
    fail(ErrorKind::kInvalidArgument, "{} threads: expected 1 to 512, or 0 for all cores",
         options.n_threads);
  }
  if (options.n_threads == 0) options.n_threads = usable_cores();
  info = describe(*this);
}

}  // namespace detail

Model Model::load(const std::string& path, const ModelOptions& options) {
  return Model(std::make_shared<const detail::ModelState>(path, options));
}

const ModelInfo& Model::info() const { return state_->info; }

std::vector<Token> Model::tokenize(std::string_view text) const {
  return state_->tokenizer.encode_plain(text);
}

std::string Model::detokenize(const std::vector<Token>& tokens) const {
  return state_->tokenizer.decode(tokens);
}

}  // namespace ctxzip
