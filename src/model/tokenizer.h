// Text to token ids and back, and the chat template, through libllama's vocabulary.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "ctxzip/model.h"
#include "model/gguf_file.h"

struct llama_model;
struct llama_vocab;

namespace ctxzip {

// The fixed tokens around document, question and answer. A prompt is
//   prefix | document | question | <question text> | turn | <answer> | next_turn | <message> | turn
//   ...
struct PromptLayout {
  std::vector<Token> prefix;     // start token, system prompt, head of the user turn; never evicted
  std::vector<Token> question;   // separator between document and question
  std::vector<Token> turn;       // end of the user turn, start of the answer
  std::vector<Token> next_turn;  // end of an answer, head of the next user turn
  bool templated = false;        // false: the model has no chat template of its own
};

// Immutable after construction; safe to use from several threads.
class Tokenizer {
 public:
  // Reads only the vocabulary of the file. Throws Error{kCorruptFile, kUnsupported}.
  explicit Tokenizer(const GgufFile& file);
  ~Tokenizer();
  Tokenizer(const Tokenizer&) = delete;
  Tokenizer& operator=(const Tokenizer&) = delete;

  // Control tokens inside plain text stay text.
  std::vector<Token> encode_plain(std::string_view text) const;
  // Control tokens are recognised: template text only.
  std::vector<Token> encode_template(std::string_view text) const;
  // The bytes of one token; control tokens give nothing.
  std::string piece(Token token) const;
  std::string decode(const std::vector<Token>& tokens) const;

  bool is_end(Token token) const;
  int64_t n_vocab() const;
  // False for files that carry token ids only (tokenizer.ggml.model = "none").
  bool has_text() const { return has_text_; }
  bool has_chat_template() const;

  // Renders the chat template once around markers. `system`: absent = the template's own default.
  // Throws Error{kUnsupported} when the template fails or drops the message.
  PromptLayout layout(const std::optional<std::string>& system, bool think) const;
  // Document, newline, question, newline: for models without a template, and to go without it.
  PromptLayout plain_layout(const std::optional<std::string>& system) const;

  const llama_vocab* vocab() const;

 private:
  std::vector<Token> encode_head(const std::string& head,
                                 const std::optional<std::string>& system) const;
  PromptLayout templated_layout(const std::optional<std::string>& system, bool think) const;
  // The start token, where the model wants one, and `head`.
  std::vector<Token> with_start_token(std::vector<Token> head) const;

  struct Impl;
  std::unique_ptr<Impl> impl_;
  bool has_text_ = true;
};

}  // namespace ctxzip
