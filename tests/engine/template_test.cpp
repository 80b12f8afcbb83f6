// Prompt layouts of the chat templates that models bring: the small model with other templates.
#include <gguf.h>
#include <gtest/gtest.h>
#include <llama.h>

#include <functional>

#include "ctxzip/error.h"
#include "ctxzip/session.h"
#include "ctxzip/zip.h"
#include "engine/zipper.h"
#include "support/engine_run.h"
#include "support/tiny_model.h"

namespace ctxzip::test {
namespace {

// As instruction-tuned Gemma has it: no system role, "model" for the assistant.
constexpr const char* kWithoutSystem =
    "{{ bos_token }}{% for message in messages %}{% if message['role'] == 'system' %}"
    "{{ raise_exception('System role not supported') }}{% endif %}"
    "{% set role = 'model' if message['role'] == 'assistant' else message['role'] %}"
    "{{ '<start_of_turn>' + role + '\n' + message['content'] | trim + '<end_of_turn>\n' }}"
    "{% endfor %}{% if add_generation_prompt %}{{ '<start_of_turn>model\n' }}{% endif %}";

// As Qwen3 has it: thinking is switched off by an empty thought.
constexpr const char* kThinking =
    "{% for message in messages %}{{ '<|im_start|>' + message['role'] + '\n' + message['content'] "
    "+ '<|im_end|>\n' }}{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}"
    "{% if enable_thinking is defined and enable_thinking is false %}"
    "{{ '<think>\n\n</think>\n\n' }}{% endif %}{% endif %}";

class TemplateTest : public testing::TestWithParam<const char*> {
 protected:
  void SetUp() override { CTXZIP_NEEDS_MODEL(kSmolLm2); }

  static Model with_template(const char* text) {
    const std::string path = temp_path("template.gguf");
    edit_model(model_path(kSmolLm2), path, [text](gguf_context* gguf) {
      if (text == nullptr) {
        gguf_remove_key(gguf, "tokenizer.chat_template");
      } else {
        gguf_set_val_str(gguf, "tokenizer.chat_template", text);
      }
    });
    return Model::load(path, {.n_threads = 2});
  }

  // Control tokens shown, unlike in Model::detokenize.
  static std::string text_of(const Model& model, const std::vector<Token>& tokens) {
    std::string text;
    char piece[256];
    for (const Token token : tokens) {
      const int n = llama_token_to_piece(model.state()->tokenizer.vocab(), token, piece,
                                         sizeof(piece), 0, true);
      text.append(piece, static_cast<size_t>(n));
    }
    return text;
  }
};

TEST_F(TemplateTest, WithoutASystemRoleTheSystemPromptOpensTheUsersTurn) {
  const Model model = with_template(kWithoutSystem);
  const Tokenizer& tokenizer = model.state()->tokenizer;
  const std::string head = text_of(model, tokenizer.layout(std::nullopt, false).prefix);
  EXPECT_TRUE(head.ends_with("<start_of_turn>user\n")) << head;
  const PromptLayout layout = tokenizer.layout("Answer in French.", false);
  EXPECT_TRUE(text_of(model, layout.prefix).ends_with("<start_of_turn>user\nAnswer in French.\n"))
      << text_of(model, layout.prefix);
  EXPECT_EQ(text_of(model, layout.turn), "<end_of_turn>\n<start_of_turn>model\n");
  EXPECT_EQ(text_of(model, layout.next_turn), "<end_of_turn>\n<start_of_turn>user\n");
  const Context context = zip(model, "The bridge was opened in 1903 by the queen herself.",
                              {.system = "Answer in French.", .self_check = false});
  EXPECT_GT(Session(context).ask("When?", {.max_tokens = 4}).output_tokens, 0);
}

TEST_F(TemplateTest, ThinkingIsOffUnlessAskedFor) {
  const Model model = with_template(kThinking);
  const Tokenizer& tokenizer = model.state()->tokenizer;
  EXPECT_EQ(text_of(model, tokenizer.layout(std::nullopt, false).turn),
            "<|im_end|>\n<|im_start|>assistant\n<think>\n\n</think>\n\n");
  EXPECT_EQ(text_of(model, tokenizer.layout(std::nullopt, true).turn),
            "<|im_end|>\n<|im_start|>assistant\n");
}

TEST_F(TemplateTest, WithoutATemplatePromptsArePlain) {
  const Model model = with_template(nullptr);
  const PromptLayout layout = model.state()->tokenizer.layout(std::nullopt, false);
  EXPECT_FALSE(layout.templated);
  EXPECT_EQ(text_of(model, layout.turn), "\n");
  EXPECT_EQ(text_of(model, layout.question), "\n");
}

// What a file says of its model must fit; each difference is named.
struct Difference {
  const char* field;
  std::function<void(TinyModel&)> change;
};

// The test's name must not hold the addresses of a run.
void PrintTo(const Difference& difference, std::ostream* out) { *out << difference.field; }

class FingerprintTest : public testing::TestWithParam<Difference> {};

TEST_P(FingerprintTest, AnotherModelIsRefusedByField) {
  const auto load = [](const TinyModel& tiny, const char* name) {
    const std::string path = temp_path(name);
    write_tiny_model(tiny, path);
    return Model::load(path);
  };
  TinyModel tiny = {.architecture = "gemma3", .n_layer = 3, .head_dim = 32, .window = 16};
  const Model model = load(tiny, "made-with.gguf");
  const ZipOptions options = {.self_check = false};
  Zipper zipper(model, plan_zip(*model.state(), {}, random_tokens(60, 256, 3), options), options);
  zipper.prefill();
  const Context context = zipper.take(Method::kRandom, Allocation::kGlobal,
                                      zipper.select(Method::kRandom, {}, Allocation::kGlobal));
  GetParam().change(tiny);
  try {
    Context::open(load(tiny, "opened-with.gguf"), context.save());
    FAIL() << "opened";
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::kMismatch);
    EXPECT_NE(std::string(error.what()).find(GetParam().field), std::string::npos) << error.what();
  }
}

std::function<void(TinyModel&)> set_float(const char* key, float value) {
  return [=](TinyModel& tiny) {
    tiny.edit = [=](gguf_context* gguf) { gguf_set_val_f32(gguf, key, value); };
  };
}

INSTANTIATE_TEST_SUITE_P(
    Fields, FingerprintTest,
    testing::Values(
        Difference{"architecture is 'gemma3' in the file, 'qwen3' in the model",
                   [](TinyModel& tiny) {
                     tiny.architecture = "qwen3";
                     tiny.window = 0;
                   }},
        Difference{"layers is 'llg'", [](TinyModel& tiny) { tiny.pattern = 2; }},
        Difference{"window is 16", [](TinyModel& tiny) { tiny.window = 17; }},
        Difference{"rope_base is 1000000", set_float("gemma3.rope.freq_base", 5e5f)},
        Difference{"rope_base_local is 10000", set_float("gemma3.rope.freq_base_swa", 2e4f)},
        Difference{"rope_scale is 1", set_float("gemma3.rope.scaling.factor", 8)},
        Difference{"rope_attention_factor is 1", set_float("gemma3.rope.scaling.attn_factor", 2)},
        Difference{"weights_hash", [](TinyModel& tiny) { tiny.seed = 9; }},
        Difference{"tokenizer_hash", [](TinyModel& tiny) {
                     tiny.edit = [](gguf_context* gguf) {
                       gguf_set_val_u32(gguf, "tokenizer.ggml.eos_token_id", 3);
                     };
                   }}));

}  // namespace
}  // namespace ctxzip::test
