#include "support/tiny_model.h"

#include <ggml-cpp.h>
#include <gguf.h>
#include <unistd.h>

#include <array>
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
    // As llama.cpp's quantiser does with rows that have no whole number of blocks.
    const ggml_type type = n_in % ggml_blck_size(model_.type) == 0 ? model_.type : GGML_TYPE_F16;
    ggml_tensor* tensor = n_copies == 1
                              ? ggml_new_tensor_2d(context_.get(), type, n_in, n_out)
                              : ggml_new_tensor_3d(context_.get(), type, n_in, n_out, n_copies);
    if (type == GGML_TYPE_F32) {
      std::copy(values.begin(), values.end(), static_cast<float*>(tensor->data));
    } else {
      ggml_quantize_chunk(type, values.data(), tensor->data, 0, n_out * n_copies, n_in, nullptr);
    }
    add(name, tensor);
  }

  void vector(const std::string& name, int64_t n, float mean, float deviation) {
    floats(name, {n, 1, 1}, mean, deviation);
  }

  // f32 whatever the type of matrices; dimensions from inner to outer.
  void floats(const std::string& name, std::array<int64_t, 3> ne, float mean, float deviation) {
    const int n_dims = ne[2] > 1 ? 3 : ne[1] > 1 ? 2 : 1;
    ggml_tensor* tensor = ggml_new_tensor(context_.get(), GGML_TYPE_F32, n_dims, ne.data());
    const std::vector<float> values = normal(ne[0] * ne[1] * ne[2], mean, deviation);
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

bool is_latent(const TinyModel& model) {
  return model.architecture == "deepseek2" || model.architecture.starts_with("kimi-linear");
}
bool is_granite(const TinyModel& model) { return model.architecture == "granitehybrid"; }
bool is_hybrid(const TinyModel& model) {
  return model.architecture.starts_with("kimi-linear") || is_granite(model);
}

int64_t n_layer_of(const TinyModel& model) {
  return is_hybrid(model) ? static_cast<int64_t>(model.kinds.size()) : model.n_layer;
}

constexpr int64_t kTaps = 4;
constexpr int64_t kDeltaDim = 16;
// Mamba2
constexpr int64_t kSpaceHeads = 8;
constexpr int64_t kSpaceGroups = 2;
constexpr int64_t kSpaceState = 24;

void write_latent_metadata(const TinyModel& model, gguf_context* gguf) {
  const std::string prefix = model.architecture + ".";
  const auto number = [&](const char* key, int64_t value) {
    gguf_set_val_u32(gguf, (prefix + key).c_str(), static_cast<uint32_t>(value));
  };
  number("attention.kv_lora_rank", model.latent);
  number("attention.key_length", model.latent + model.branch);
  number("attention.value_length", model.latent);
  number("attention.key_length_mla", model.key_dim);
  number("attention.value_length_mla", model.value_dim);
  number("attention.q_lora_rank", model.q_rank);
  number("rope.dimension_count", model.branch);
  number("leading_dense_block_count", model.n_leading_dense);
  number("expert_count", model.n_expert);
  number("expert_used_count", model.n_expert == 0 ? 0 : model.n_expert_used);
  number("expert_feed_forward_length", model.n_ff / 2);
  number("expert_shared_count", 1);
  number("expert_gating_func", model.sigmoid_experts ? 2 : 1);
  gguf_set_val_f32(gguf, (prefix + "expert_weights_scale").c_str(), 1.5f);
  gguf_set_val_bool(gguf, (prefix + "expert_weights_norm").c_str(), model.sigmoid_experts);
  number("kda.head_dim", kDeltaDim);
  number("ssm.conv_kernel", kTaps);
}

void write_granite_metadata(const TinyModel& model, gguf_context* gguf) {
  const std::string prefix = model.architecture + ".";
  const auto number = [&](const char* key, int64_t value) {
    gguf_set_val_u32(gguf, (prefix + key).c_str(), static_cast<uint32_t>(value));
  };
  const auto scale = [&](const char* key, float value) {
    gguf_set_val_f32(gguf, (prefix + key).c_str(), value);
  };
  number("ssm.conv_kernel", kTaps);
  number("ssm.inner_size", 2 * model.n_embd);
  number("ssm.state_size", kSpaceState);
  number("ssm.time_step_rank", kSpaceHeads);
  number("ssm.group_count", kSpaceGroups);
  scale("embedding_scale", 1.5f);
  scale("residual_scale", 0.7f);
  scale("attention.scale", 0.3f);
  scale("logit_scale", 1.3f);
  gguf_set_val_bool(gguf, (prefix + "rope.scaling.finetuned").c_str(), model.rotary);
  if (model.n_expert == 0) return;
  number("expert_count", model.n_expert);
  number("expert_used_count", model.n_expert_used);
  number("expert_shared_feed_forward_length", model.n_ff / 4);
}

void write_metadata(const TinyModel& model, gguf_context* gguf) {
  const std::string prefix = model.architecture + ".";
  const auto number = [&](const char* key, int64_t value) {
    gguf_set_val_u32(gguf, (prefix + key).c_str(), static_cast<uint32_t>(value));
  };
  gguf_set_val_str(gguf, "general.architecture", model.architecture.c_str());
  gguf_set_val_str(gguf, "general.name", ("tiny " + model.architecture).c_str());
  gguf_set_val_str(gguf, "tokenizer.ggml.model", "none");
  number("block_count", n_layer_of(model));
  number("embedding_length", model.n_embd);
  number("feed_forward_length", model.n_ff);
  number("attention.head_count", model.n_head);
  if (is_hybrid(model)) {
    std::vector<int32_t> heads;
    const int64_t n_kv_head = is_granite(model) ? model.n_kv_head : 1;
    for (const char kind : model.kinds)
      heads.push_back(kind == 'r' ? 0 : static_cast<int32_t>(n_kv_head));
    gguf_set_arr_data(gguf, (prefix + "attention.head_count_kv").c_str(), GGUF_TYPE_INT32,
                      heads.data(), heads.size());
  } else {
    number("attention.head_count_kv", is_latent(model) ? 1 : model.n_kv_head);
  }
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
  if (is_latent(model)) write_latent_metadata(model, gguf);
  if (is_granite(model)) write_granite_metadata(model, gguf);
  if (model.window > 0) {
    number("attention.sliding_window", model.window);
    number("attention.sliding_window_pattern", model.pattern);
    gguf_set_val_f32(gguf, (prefix + "rope.freq_base").c_str(), 1000000.0f);
  }
}

int64_t head_dim_of(const TinyModel& model) {
  return model.head_dim > 0 ? model.head_dim : model.n_embd / model.n_head;
}

void write_experts(const TinyModel& model, Writer& writer, const std::string& prefix,
                   int64_t n_ff) {
  writer.matrix(prefix + "ffn_gate_inp.weight", model.n_embd, model.n_expert);
  writer.matrix(prefix + "ffn_gate_exps.weight", model.n_embd, n_ff, 1, model.n_expert);
  writer.matrix(prefix + "ffn_up_exps.weight", model.n_embd, n_ff, 1, model.n_expert);
  writer.matrix(prefix + "ffn_down_exps.weight", n_ff, model.n_embd, 1, model.n_expert);
}

void write_dense(const TinyModel& model, Writer& writer, const std::string& prefix,
                 const std::string& suffix, int64_t n_ff) {
  writer.matrix(prefix + "ffn_gate" + suffix + ".weight", model.n_embd, n_ff);
  writer.matrix(prefix + "ffn_up" + suffix + ".weight", model.n_embd, n_ff);
  writer.matrix(prefix + "ffn_down" + suffix + ".weight", n_ff, model.n_embd);
}

void write_feed_forward(const TinyModel& model, Writer& writer, const std::string& prefix,
                        int64_t layer) {
  if (model.architecture == "qwen3moe") {
    write_experts(model, writer, prefix, model.n_ff / 2);
  } else if (is_latent(model) && model.n_expert > 0 && layer >= model.n_leading_dense) {
    write_experts(model, writer, prefix, model.n_ff / 2);
    write_dense(model, writer, prefix, "_shexp", model.n_ff / 2);
    if (model.sigmoid_experts || is_hybrid(model)) {
      writer.vector(prefix + "exp_probs_b.bias", model.n_expert, 0, 0.2f);
    }
  } else if (is_granite(model) && model.n_expert > 0) {
    write_experts(model, writer, prefix, model.n_ff);
    write_dense(model, writer, prefix, "_shexp", model.n_ff / 4);
  } else {
    write_dense(model, writer, prefix, "", model.n_ff);
    if (!model.biases) return;
    writer.vector(prefix + "ffn_gate.bias", model.n_ff, 0, 0.5f);
    writer.vector(prefix + "ffn_up.bias", model.n_ff, 0, 0.5f);
    writer.vector(prefix + "ffn_down.bias", model.n_embd, 0, 0.5f);
  }
}

void write_latent_attention(const TinyModel& model, Writer& writer, const std::string& prefix) {
  const int64_t n_q = model.n_head * model.key_dim;
  if (model.q_rank > 0) {
    writer.matrix(prefix + "attn_q_a.weight", model.n_embd, model.q_rank);
    writer.vector(prefix + "attn_q_a_norm.weight", model.q_rank, 1, 0.1f);
    writer.matrix(prefix + "attn_q_b.weight", model.q_rank, n_q);
  } else {
    writer.matrix(prefix + "attn_q.weight", model.n_embd, n_q);
  }
  writer.matrix(prefix + "attn_kv_a_mqa.weight", model.n_embd, model.latent + model.branch);
  writer.vector(prefix + "attn_kv_a_norm.weight", model.latent, 1, 0.1f);
  writer.matrix(prefix + "attn_k_b.weight", model.key_dim - model.branch, model.latent, 1,
                model.n_head);
  writer.matrix(prefix + "attn_v_b.weight", model.latent, model.value_dim, 1, model.n_head);
  writer.matrix(prefix + "attn_output.weight", model.n_head * model.value_dim, model.n_embd);
}

void write_delta_attention(const TinyModel& model, Writer& writer, const std::string& prefix) {
  const int64_t n_inner = model.n_head * kDeltaDim;
  for (const std::string part : {"q", "k", "v"}) {
    writer.matrix(prefix + "attn_" + part + ".weight", model.n_embd, n_inner);
    writer.floats(prefix + "ssm_conv1d_" + part + ".weight", {kTaps, 1, n_inner}, 0, 0.5f);
  }
  writer.matrix(prefix + "ssm_f_a.weight", model.n_embd, kDeltaDim);
  writer.matrix(prefix + "ssm_f_b.weight", kDeltaDim, n_inner);
  writer.matrix(prefix + "ssm_beta.weight", model.n_embd, model.n_head);
  writer.floats(prefix + "ssm_a", {1, model.n_head, 1}, -0.4f, 0.08f);
  writer.vector(prefix + "ssm_dt.bias", n_inner, -1, 0.5f);
  writer.matrix(prefix + "ssm_g_a.weight", model.n_embd, kDeltaDim);
  writer.matrix(prefix + "ssm_g_b.weight", kDeltaDim, n_inner);
  writer.vector(prefix + "ssm_norm.weight", kDeltaDim, 1, 0.1f);
  writer.matrix(prefix + "attn_output.weight", n_inner, model.n_embd);
}

void write_state_space(const TinyModel& model, Writer& writer, const std::string& prefix) {
  const int64_t n_inner = 2 * model.n_embd;
  const int64_t n_conv = n_inner + 2 * kSpaceGroups * kSpaceState;
  writer.matrix(prefix + "ssm_in.weight", model.n_embd, n_inner + n_conv + kSpaceHeads);
  writer.floats(prefix + "ssm_conv1d.weight", {kTaps, n_conv, 1}, 0, 0.5f);
  writer.vector(prefix + "ssm_conv1d.bias", n_conv, 0, 0.3f);
  writer.vector(prefix + "ssm_dt.bias", kSpaceHeads, -2, 0.5f);
  writer.floats(prefix + "ssm_a", {1, kSpaceHeads, 1}, -0.5f, 0.1f);
  writer.floats(prefix + "ssm_d", {1, kSpaceHeads, 1}, 1, 0.2f);
  writer.floats(prefix + "ssm_norm.weight", {n_inner / kSpaceGroups, kSpaceGroups, 1}, 1, 0.1f);
  writer.matrix(prefix + "ssm_out.weight", n_inner, model.n_embd);
}

void write_plain_attention(const TinyModel& model, Writer& writer, const std::string& prefix) {
  const bool gemma = model.architecture == "gemma3";
  const int64_t head_dim = head_dim_of(model);
  const int64_t n_q = head_dim * model.n_head;
  const int64_t n_kv = head_dim * model.n_kv_head;
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
}

void write_layer(const TinyModel& model, Writer& writer, int64_t layer) {
  const std::string prefix = "blk." + std::to_string(layer) + ".";
  const bool recurrent = is_hybrid(model) && model.kinds[static_cast<size_t>(layer)] == 'r';
  writer.vector(prefix + "attn_norm.weight", model.n_embd, 1, 0.1f);
  if (recurrent && is_granite(model)) {
    write_state_space(model, writer, prefix);
  } else if (recurrent) {
    write_delta_attention(model, writer, prefix);
  } else if (is_latent(model)) {
    write_latent_attention(model, writer, prefix);
  } else {
    write_plain_attention(model, writer, prefix);
  }
  writer.vector(prefix + "ffn_norm.weight", model.n_embd, 1, 0.1f);
  write_feed_forward(model, writer, prefix, layer);
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
  for (int64_t layer = 0; layer < n_layer_of(model); ++layer) write_layer(model, writer, layer);
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

void add_byte_tokenizer(gguf_context* gguf) {
  // Byte-level BPE writes bytes that cannot be printed as the characters from U+0100 on.
  const auto printed = [](int byte) {
    return (byte >= 33 && byte <= 126) || (byte >= 161 && byte <= 172) || byte >= 174;
  };
  const auto utf8 = [](int code) {
    if (code < 0x80) return std::string(1, static_cast<char>(code));
    return std::string{static_cast<char>(0xc0 | code >> 6), static_cast<char>(0x80 | (code & 63))};
  };
  std::vector<std::string> tokens;
  int next = 0x100;
  for (int byte = 0; byte < 256; ++byte) tokens.push_back(utf8(printed(byte) ? byte : next++));
  tokens.emplace_back("<end>");
  std::vector<const char*> texts;
  for (const std::string& token : tokens) texts.push_back(token.c_str());
  std::vector<int32_t> types(tokens.size(), 1);
  types.back() = 3;                                       // control
  std::array<const char*, 1> merges = {"\u0100 \u0101"};  // of bytes that no text has
  gguf_set_val_str(gguf, "tokenizer.ggml.model", "gpt2");
  gguf_set_val_str(gguf, "tokenizer.ggml.pre", "gpt-2");
  gguf_set_arr_str(gguf, "tokenizer.ggml.tokens", texts.data(), texts.size());
  gguf_set_arr_data(gguf, "tokenizer.ggml.token_type", GGUF_TYPE_INT32, types.data(), types.size());
  gguf_set_arr_str(gguf, "tokenizer.ggml.merges", merges.data(), merges.size());
  gguf_set_val_u32(gguf, "tokenizer.ggml.bos_token_id", 256);
  gguf_set_val_u32(gguf, "tokenizer.ggml.eos_token_id", 256);
  gguf_set_val_bool(gguf, "tokenizer.ggml.add_bos_token", false);
}

}  // namespace ctxzip::test
