// Model files that cannot be used give an error that names the file and the place.
#include <gguf.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <iterator>

#include "ctxzip/error.h"
#include "ctxzip/model.h"
#include "support/engine_run.h"
#include "support/tiny_model.h"

namespace ctxzip::test {
namespace {

struct Refusal {
  ErrorKind kind;
  std::string message;
};

Refusal load_refused(const std::string& path) {
  try {
    Model::load(path);
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find(std::filesystem::path(path).filename().string()),
              std::string::npos)
        << error.what();
    return {error.kind(), error.what()};
  }
  ADD_FAILURE() << "loaded";
  return {ErrorKind::kIo, ""};
}

Refusal refused(const TinyModel& model) {
  const std::string path = temp_path("bad.gguf");
  write_tiny_model(model, path);
  return load_refused(path);
}

void expect(const Refusal& refusal, ErrorKind kind, const std::string& part) {
  EXPECT_EQ(refusal.kind, kind) << refusal.message;
  EXPECT_NE(refusal.message.find(part), std::string::npos) << refusal.message;
}

std::vector<char> good_bytes() {
  const std::string path = temp_path("good.gguf");
  write_tiny_model({}, path);
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

std::string written(const std::vector<char>& bytes) {
  const std::string path = temp_path("bytes.gguf");
  std::ofstream(path, std::ios::binary | std::ios::trunc)
      .write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
  return path;
}

TEST(ModelFile, GoodOnesLoad) {
  for (const char* architecture : {"llama", "qwen2"}) {
    const std::string path = temp_path("good.gguf");
    write_tiny_model({.architecture = architecture, .tied = true}, path);
    const ModelInfo info = Model::load(path).info();
    EXPECT_EQ(info.architecture, architecture);
    EXPECT_EQ(info.head_dim, 16);
    EXPECT_EQ(info.kv_bytes_per_token, 3 * 2 * 2 * 16 * 2);
    EXPECT_FALSE(info.has_chat_template);
  }
}

TEST(ModelFile, MissingOrNoFile) {
  expect(load_refused(temp_path("nothing.gguf")), ErrorKind::kNotFound, "nothing.gguf");
  EXPECT_THROW(Model::load(std::filesystem::temp_directory_path().string()), Error);
}

TEST(ModelFile, NotGguf) {
  expect(load_refused(written({})), ErrorKind::kCorruptFile, "0 bytes");
  expect(load_refused(written(std::vector<char>(100, 'x'))), ErrorKind::kCorruptFile, "GGUF");
}

TEST(ModelFile, TruncatedAnywhere) {
  const std::vector<char> bytes = good_bytes();
  for (size_t n = 0; n < bytes.size(); n += 1 + bytes.size() / 97) {
    EXPECT_EQ(
        load_refused(written({bytes.begin(), bytes.begin() + static_cast<std::ptrdiff_t>(n)})).kind,
        ErrorKind::kCorruptFile);
  }
}

TEST(ModelFile, MissingTensorIsNamed) {
  for (const char* name : {"token_embd.weight", "output_norm.weight", "blk.1.attn_k.weight",
                           "blk.2.ffn_down.weight"}) {
    expect(refused({.without_tensor = name}), ErrorKind::kCorruptFile, name);
  }
}

TEST(ModelFile, WrongShapeIsNamed) {
  const auto edit = [](gguf_context* gguf) {
    gguf_set_val_u32(gguf, "llama.feed_forward_length", 256);
  };
  expect(refused({.edit = edit}), ErrorKind::kCorruptFile, "ffn_gate");
}

TEST(ModelFile, OtherArchitectureIsNamed) {
  const auto edit = [](gguf_context* gguf) {
    gguf_set_val_str(gguf, "general.architecture", "mamba");
  };
  expect(refused({.edit = edit}), ErrorKind::kUnsupported, "mamba");
}

TEST(ModelFile, SplitFilesAreNamed) {
  const auto edit = [](gguf_context* gguf) { gguf_set_val_u16(gguf, "split.count", 3); };
  expect(refused({.edit = edit}), ErrorKind::kUnsupported, "3 files");
}

TEST(ModelFile, UnsupportedFeaturesAreNamed) {
  expect(refused({.edit = [](gguf_context* g) { gguf_set_val_u32(g, "llama.expert_count", 8); }}),
         ErrorKind::kUnsupported, "mixture-of-experts");
  expect(refused({.edit =
                      [](gguf_context* g) {
                        gguf_set_val_str(g, "llama.rope.scaling.type", "longrope");
                      }}),
         ErrorKind::kUnsupported, "longrope");
  expect(refused({.edit =
                      [](gguf_context* g) {
                        gguf_set_val_u32(g, "llama.attention.head_count_kv", 3);
                      }}),
         ErrorKind::kUnsupported, "3 KV heads");
  expect(
      refused(
          {.edit = [](gguf_context* g) { gguf_set_val_u32(g, "llama.rope.dimension_count", 8); }}),
      ErrorKind::kUnsupported, "rope");
}

TEST(ModelFile, UnsupportedVariantsAreNamed) {
  const auto number = [](const char* key, uint32_t value) {
    return [=](gguf_context* gguf) { gguf_set_val_u32(gguf, key, value); };
  };
  for (const char* architecture : {"llama", "qwen2", "qwen3", "gemma3", "smollm3"}) {
    const std::string key = std::string(architecture) + ".expert_count";
    expect(refused({.architecture = architecture, .edit = number(key.c_str(), 4)}),
           ErrorKind::kUnsupported, std::string("architecture '") + architecture + "'");
  }
  expect(refused({.architecture = "gemma3", .window = 16, .pattern = 0}), ErrorKind::kUnsupported,
         "nothing to evict");
  expect(refused({.architecture = "qwen3moe", .edit = number("qwen3moe.expert_used_count", 9)}),
         ErrorKind::kCorruptFile, "expert_used_count");
  expect(refused({.architecture = "qwen3moe", .edit = number("qwen3moe.expert_group_count", 2)}),
         ErrorKind::kCorruptFile, "expert_group_used_count");
  // Four experts of which each token takes two.
  for (const uint32_t n_group : {3, 4}) {
    const auto groups = [=](gguf_context* gguf) {
      gguf_set_val_u32(gguf, "qwen3moe.expert_group_count", n_group);
      gguf_set_val_u32(gguf, "qwen3moe.expert_group_used_count", 2);
    };
    expect(refused({.architecture = "qwen3moe", .edit = groups}), ErrorKind::kCorruptFile,
           "4 experts in");
  }
  expect(refused({.architecture = "qwen3", .without_tensor = "blk.0.attn_k_norm.weight"}),
         ErrorKind::kCorruptFile, "attn_k_norm");
  const auto short_pattern = [](gguf_context* gguf) {
    const bool local[] = {true, false};
    gguf_set_arr_data(gguf, "gemma3.attention.sliding_window_pattern", GGUF_TYPE_BOOL, local, 2);
  };
  expect(refused({.architecture = "gemma3", .window = 16, .edit = short_pattern}),
         ErrorKind::kCorruptFile, "2 entries for 3 layers");
}

// Qwen2.5's million-token variants: dual-chunk attention is theirs to add, the file is plain.
TEST(ModelFile, LongContextVariantsLoad) {
  const auto edit = [](gguf_context* gguf) {
    gguf_set_val_u32(gguf, "qwen2.context_length", 1010000);
    gguf_set_val_f32(gguf, "qwen2.rope.freq_base", 1e7f);
  };
  const std::string path = temp_path("million.gguf");
  write_tiny_model({.architecture = "qwen2", .edit = edit}, path);
  EXPECT_EQ(Model::load(path).info().n_ctx_train, 1010000);
}

TEST(ModelFile, AWindowPatternMayBeAnArray) {
  const auto edit = [](gguf_context* gguf) {
    const bool local[] = {false, true, true};
    gguf_set_arr_data(gguf, "gemma3.attention.sliding_window_pattern", GGUF_TYPE_BOOL, local, 3);
  };
  const std::string path = temp_path("pattern.gguf");
  write_tiny_model({.architecture = "gemma3", .window = 16, .edit = edit}, path);
  const Model model = Model::load(path);
  EXPECT_EQ(model.state()->hp.layers.kinds(), "gll");
  EXPECT_EQ(model.info().n_local_layer, 2);
}

TEST(ModelFile, BadMetadataIsNamed) {
  expect(refused({.edit = [](gguf_context* g) { gguf_remove_key(g, "llama.block_count"); }}),
         ErrorKind::kCorruptFile, "block_count");
  expect(
      refused({.edit = [](gguf_context* g) { gguf_set_val_str(g, "llama.block_count", "three"); }}),
      ErrorKind::kCorruptFile, "block_count");
  expect(
      refused(
          {.edit = [](gguf_context* g) { gguf_set_val_u32(g, "llama.attention.head_count", 0); }}),
      ErrorKind::kCorruptFile, "head_count");
  expect(
      refused({.edit = [](gguf_context* g) { gguf_set_val_f32(g, "llama.rope.freq_base", -1); }}),
      ErrorKind::kCorruptFile, "freq_base");
}

TEST(ModelFile, RepeatedTokensAreRefusedBeforeTheyAbort) {
  const auto edit = [](gguf_context* gguf) {
    const char* tokens[] = {"a", "b", "a"};
    gguf_set_val_str(gguf, "tokenizer.ggml.model", "gpt2");
    gguf_set_arr_str(gguf, "tokenizer.ggml.tokens", tokens, 3);
  };
  TinyModel model = {.edit = edit};
  model.n_vocab = 3;
  expect(refused(model), ErrorKind::kCorruptFile, "twice");
}

TEST(ModelFile, EveryMultipliedWeightTypeLoads) {
  for (const ggml_type type :
       {GGML_TYPE_F32, GGML_TYPE_F16, GGML_TYPE_BF16, GGML_TYPE_Q8_0, GGML_TYPE_Q4_0,
        GGML_TYPE_Q4_1, GGML_TYPE_Q5_0, GGML_TYPE_Q5_1, GGML_TYPE_IQ4_NL}) {
    const std::string path = temp_path("type.gguf");
    write_tiny_model({.type = type}, path);
    const Model model = Model::load(path);
    const SegmentTable nothing = segment_table(*model.state());
    TailRun run(model, nothing, 0);
    EXPECT_EQ(run.feed(random_tokens(9, 256, 1), 4).size(), 9u * 256) << ggml_type_name(type);
  }
}

}  // namespace
}  // namespace ctxzip::test
