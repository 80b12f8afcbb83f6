#include "support/tiny_model.h"

#include <ggml-cpp.h>
#include <gguf.h>
#include <unistd.h>

#include <cmath>
#include <filesystem>
#include <random>
#include <vector>

#include "core/fail.h"

namespace ctxzip::test {
namespace {

class Writer {
 public:
  explicit Writer(const TinyModel& model)
      : model_(model),
        random_(model.seed),
        gguf_(gguf_init_empty(), &gguf_free),
        context_(
            ggml_init({.mem_size = size_t{256} << 20, .mem_buffer = nullptr, .no_alloc = false})) {}

  gguf_context* gguf() { return gguf_.get(); }

  void matrix(const std::string& name, int64_t n_in, int64_t n_out, float scale = 1,
              int64_t n_copies = 1) {
    const float deviation = scale * model_.spread / std::sqrt(static_cast<float>(n_in));
    std::vector<float> values = normal(n_in * n_out * n_copies, 0, deviation);
    ggml_tensor* tensor =
        n_copies == 1 ? ggml_new_tensor_2d(context_.get(), model_.type, n_in, n_out)
                      : ggml_new_tensor_3d(context_.get(), model_.type, n_in, n_out, n_copies);
    if (model_.type == GGML_TYPE_F32) {
      std::copy(values.begin(), values.end(), static_cast<float*>(tensor->data));
    } else {
      ggml_quantize_chunk(model_.type, values.data(), tensor->data, 0, n_out * n_copies, n_in,
                          nullptr);
    }
    add(name, tensor);
  }

  void vector(const std::string& name, int64_t n, float mean, float deviation) {
    ggml_tensor* tensor = ggml_new_tensor_1d(context_.get(), GGML_TYPE_F32, n);
    const std::vector<float> values = normal(n, mean, deviation);
    std::copy(values.begin(), values.end(), static_cast<float*>(tensor->data));
    add(name, tensor);
  }

 private:
  std::vector<float> normal(int64_t n, float mean, float deviation) {
    std::normal_distribution<float> distribution(mean, deviation);
    std::vector<float> values(static_cast<size_t>(n));
    for (float& value : values) value = distribution(random_);
    return values;
  }

  void add(const std::string& name, ggml_tensor* tensor) {
    if (name == model_.without_tensor) return;
    ggml_set_name(tensor, name.c_str());
    gguf_add_tensor(gguf_.get(), tensor);
  }

  const TinyModel& model_;
  std::mt19937 random_;
  std::unique_ptr<gguf_context, decltype(&gguf_free)> gguf_;
  ggml_context_ptr context_;
};

void write_metadata(const TinyModel& model, gguf_context* gguf) {
  const std::string prefix = model.architecture + ".";
  const auto number = [&](const char* key, int64_t value) {
    gguf_set_val_u32(gguf, (prefix + key).c_str(), static_cast<uint32_t>(value));
  };
  gguf_set_val_str(gguf, "general.architecture", model.architecture.c_str());
  gguf_set_val_str(gguf, "general.name", ("tiny " + model.architecture).c_str());
  gguf_set_val_str(gguf, "tokenizer.ggml.model", "none");
  number("block_count", model.n_layer);
  number("embedding_length", model.n_embd);
  number("feed_forward_length", model.n_ff);
  number("attention.head_count", model.n_head);
  number("attention.head_count_kv", model.n_kv_head);
  number("context_length", model.n_ctx_train);
  number("vocab_size", model.n_vocab);
  gguf_set_val_f32(gguf, (prefix + "attention.layer_norm_rms_epsilon").c_str(), 1e-5f);
  gguf_set_val_f32(gguf, (prefix + "rope.freq_base").c_str(), 10000.0f);
  if (model.head_dim > 0) {
    number("attention.key_length", model.head_dim);
    number("attention.value_length", model.head_dim);
  }
  if (model.architecture == "qwen3moe") {
    number("expert_count", model.n_expert);
    number("expert_used_count", model.n_expert_used);
    number("expert_feed_forward_length", model.n_ff / 2);
  }
  if (model.window > 0) {
    number("attention.sliding_window", model.window);
    number("attention.sliding_window_pattern", model.pattern);
    gguf_set_val_f32(gguf, (prefix + "rope.freq_base").c_str(), 1000000.0f);
  }
}

int64_t head_dim_of(const TinyModel& model) {
  return model.head_dim > 0 ? model.head_dim : model.n_embd / model.n_head;
}

void write_feed_forward(const TinyModel& model, Writer& writer, const std::string& prefix) {
  if (model.architecture == "qwen3moe") {
    const int64_t n_ff = model.n_ff / 2;
    writer.matrix(prefix + "ffn_gate_inp.weight", model.n_embd, model.n_expert);
    writer.matrix(prefix + "ffn_gate_exps.weight", model.n_embd, n_ff, 1, model.n_expert);
    writer.matrix(prefix + "ffn_up_exps.weight", model.n_embd, n_ff, 1, model.n_expert);
    writer.matrix(prefix + "ffn_down_exps.weight", n_ff, model.n_embd, 1, model.n_expert);
    return;
  }
  writer.matrix(prefix + "ffn_gate.weight", model.n_embd, model.n_ff);
  writer.matrix(prefix + "ffn_up.weight", model.n_embd, model.n_ff);
  writer.matrix(prefix + "ffn_down.weight", model.n_ff, model.n_embd);
  if (!model.biases) return;
  writer.vector(prefix + "ffn_gate.bias", model.n_ff, 0, 0.5f);
  writer.vector(prefix + "ffn_up.bias", model.n_ff, 0, 0.5f);
  writer.vector(prefix + "ffn_down.bias", model.n_embd, 0, 0.5f);
}

void write_layer(const TinyModel& model, Writer& writer, int64_t layer) {
  const bool gemma = model.architecture == "gemma3";
  const int64_t head_dim = head_dim_of(model);
  const int64_t n_q = head_dim * model.n_head;
  const int64_t n_kv = head_dim * model.n_kv_head;
  const std::string prefix = "blk." + std::to_string(layer) + ".";
  writer.vector(prefix + "attn_norm.weight", model.n_embd, 1, 0.1f);
  writer.matrix(prefix + "attn_q.weight", model.n_embd, n_q);
  writer.matrix(prefix + "attn_k.weight", model.n_embd, n_kv);
  writer.matrix(prefix + "attn_v.weight", model.n_embd, n_kv);
  if (model.architecture == "qwen2" || model.biases) {
    writer.vector(prefix + "attn_q.bias", n_q, 0, 0.5f);
    writer.vector(prefix + "attn_k.bias", n_kv, 0, 0.5f);
    writer.vector(prefix + "attn_v.bias", n_kv, 0, 0.5f);
  }
  if (gemma || model.architecture.starts_with("qwen3")) {
    writer.vector(prefix + "attn_q_norm.weight", head_dim, 1.4f, 0.2f);
    writer.vector(prefix + "attn_k_norm.weight", head_dim, 1.4f, 0.2f);
  }
  writer.matrix(prefix + "attn_output.weight", n_q, model.n_embd);
  if (model.biases) writer.vector(prefix + "attn_output.bias", model.n_embd, 0, 0.5f);
  if (gemma) {
    writer.vector(prefix + "post_attention_norm.weight", model.n_embd, 1, 0.2f);
    writer.vector(prefix + "post_ffw_norm.weight", model.n_embd, 1, 0.2f);
  }
  writer.vector(prefix + "ffn_norm.weight", model.n_embd, 1, 0.1f);
  write_feed_forward(model, writer, prefix);
}

}  // namespace

void write_tiny_model(const TinyModel& model, const std::string& path) {
  Writer writer(model);
  write_metadata(model, writer.gguf());
  // gemma3 multiplies its embeddings by sqrt(n_embd) itself.
  writer.matrix("token_embd.weight", model.n_embd, model.n_vocab,
                model.architecture == "gemma3" ? 1 : std::sqrt(static_cast<float>(model.n_embd)));
  writer.vector("output_norm.weight", model.n_embd, 1, 0.1f);
  if (!model.tied) writer.matrix("output.weight", model.n_embd, model.n_vocab, 2.5f);
  if (model.rope_factors) writer.vector("rope_freqs.weight", head_dim_of(model) / 2, 2, 0.3f);
  for (int64_t layer = 0; layer < model.n_layer; ++layer) write_layer(model, writer, layer);
  if (model.edit) model.edit(writer.gguf());
  CHECK(gguf_write_to_file(writer.gguf(), path.c_str(), false));
}

namespace {

// Writes `from` with its metadata edited and, if asked for, quantised tensors as f32.
void copy_model(const std::string& from, const std::string& to, bool dequantise,
                const std::function<void(gguf_context*)>& edit) {
  ggml_context* raw = nullptr;
  const std::unique_ptr<gguf_context, decltype(&gguf_free)> source(
      gguf_init_from_file(from.c_str(), {.no_alloc = false, .ctx = &raw}), &gguf_free);
  CHECK(source != nullptr);
  const ggml_context_ptr weights(raw);
  const std::unique_ptr<gguf_context, decltype(&gguf_free)> target(gguf_init_empty(), &gguf_free);
  gguf_set_kv(target.get(), source.get());
  const ggml_context_ptr floats(
      ggml_init({.mem_size = size_t{2} << 30, .mem_buffer = nullptr, .no_alloc = false}));
  for (int64_t id = 0; id < gguf_get_n_tensors(source.get()); ++id) {
    ggml_tensor* tensor = ggml_get_tensor(weights.get(), gguf_get_tensor_name(source.get(), id));
    if (dequantise && tensor->type != GGML_TYPE_F32) {
      ggml_tensor* copy = ggml_new_tensor(floats.get(), GGML_TYPE_F32, GGML_MAX_DIMS, tensor->ne);
      ggml_set_name(copy, tensor->name);
      ggml_get_type_traits(tensor->type)
          ->to_float(tensor->data, static_cast<float*>(copy->data), ggml_nelements(tensor));
      tensor = copy;
    }
    gguf_add_tensor(target.get(), tensor);
  }
  if (edit) edit(target.get());
  CHECK(gguf_write_to_file(target.get(), to.c_str(), false));
}

}  // namespace

void dequantise_model(const std::string& from, const std::string& to) {
  copy_model(from, to, true, {});
}

void edit_model(const std::string& from, const std::string& to,
                const std::function<void(gguf_context*)>& edit) {
  copy_model(from, to, false, edit);
}

std::string temp_path(const std::string& name) {
  struct Folder {
    std::filesystem::path path =
        std::filesystem::temp_directory_path() / ("ctxzip-test-" + std::to_string(getpid()));
    Folder() { std::filesystem::create_directories(path); }
    ~Folder() {
      std::error_code ignored;
      std::filesystem::remove_all(path, ignored);
    }
  };
  static const Folder folder;
  return (folder.path / name).string();
}

}  // namespace ctxzip::test
