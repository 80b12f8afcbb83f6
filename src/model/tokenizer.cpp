#include "model/tokenizer.h"

#include <chat.h>
#include <llama-cpp.h>

#include <unordered_set>

#include "core/fail.h"
#include "core/log.h"

namespace ctxzip {

struct Tokenizer::Impl {
  int64_t n_vocab = 0;
  llama_model_ptr model;
  common_chat_templates_ptr templates;
  std::string path;
};

namespace {

// libllama aborts the process on these, so they are found first.
void check_vocabulary(const GgufFile& file) {
  std::unordered_set<std::string> seen;
  for (std::string& token : file.find_strings("tokenizer.ggml.tokens")) {
    const auto [place, fresh] = seen.insert(std::move(token));
    if (!fresh) {
      fail(ErrorKind::kCorruptFile, "{}: its vocabulary has a token twice (number {})", file.path(),
           seen.size());
    }
  }
}

std::vector<Token> encode(const llama_vocab* vocab, std::string_view text, bool parse_special) {
  std::vector<Token> tokens(text.size() + 8);
  const auto run = [&] {
    return llama_tokenize(vocab, text.data(), static_cast<int32_t>(text.size()), tokens.data(),
                          static_cast<int32_t>(tokens.size()), /*add_special=*/false,
                          parse_special);
  };
  int32_t n = run();
  if (n < 0) {
    tokens.resize(static_cast<size_t>(-n));
    n = run();
  }
  CHECK(n >= 0);
  tokens.resize(static_cast<size_t>(n));
  return tokens;
}

// Stand for the user's texts while a template is rendered, so that those texts never pass through
// it.
constexpr std::string_view kMarkers[] = {"ctxzip1first1mark", "ctxzip2second2mark",
                                         "ctxzip3third3mark"};
constexpr std::string_view kSystemMarker = "ctxzip0system0mark";

std::string render(const common_chat_templates* templates, std::vector<common_chat_msg> messages,
                   bool think) {
  common_chat_templates_inputs inputs;
  inputs.messages = std::move(messages);
  inputs.enable_thinking = think;
  return common_chat_templates_apply(templates, inputs).prompt;
}

common_chat_msg message(const char* role, std::string_view content) {
  common_chat_msg msg;
  msg.role = role;
  msg.content = content;
  return msg;
}

struct RenderedTurns {
  std::string head, turn, next_turn;
};

// What the template puts before the first message, before the answer, and between answer and
// message.
std::optional<RenderedTurns> split_rendered(const common_chat_templates* templates,
                                            const std::vector<common_chat_msg>& before,
                                            bool think) {
  auto messages = before;
  messages.push_back(message("user", kMarkers[0]));
  const std::string first = render(templates, messages, think);
  messages.push_back(message("assistant", kMarkers[1]));
  messages.push_back(message("user", kMarkers[2]));
  const std::string second = render(templates, messages, think);
  const size_t mark = first.find(kMarkers[0]);
  const size_t answer = second.find(kMarkers[1]);
  const size_t next = second.find(kMarkers[2]);
  if (mark == std::string::npos || answer == std::string::npos || next == std::string::npos ||
      answer > next) {
    return std::nullopt;
  }
  const size_t answer_end = answer + kMarkers[1].size();
  return RenderedTurns{.head = first.substr(0, mark),
                       .turn = first.substr(mark + kMarkers[0].size()),
                       .next_turn = second.substr(answer_end, next - answer_end)};
}

}  // namespace

Tokenizer::Tokenizer(const GgufFile& file) : impl_(std::make_unique<Impl>()) {
  capture_backend_logs();
  check_vocabulary(file);
  has_text_ = file.find_string("tokenizer.ggml.model").value_or("") != "none";
  impl_->path = file.path();
  if (!has_text_) {  // nothing that libllama is needed for, nor an architecture that it must know
    const std::string architecture = file.require_string("general.architecture");
    impl_->n_vocab = file.require_int(architecture + ".vocab_size", 1, 1 << 24);
    return;
  }
  llama_model_params params = llama_model_default_params();
  params.vocab_only = true;
  impl_->model.reset(llama_model_load_from_file(file.path().c_str(), params));
  if (!impl_->model) {
    fail(ErrorKind::kCorruptFile, "{}: its tokenizer could not be loaded", file.path());
  }
  impl_->n_vocab = llama_vocab_n_tokens(vocab());
  try {
    impl_->templates = common_chat_templates_init(impl_->model.get(), "");
  } catch (const std::exception& error) {
    fail(ErrorKind::kUnsupported, "{}: its chat template cannot be parsed: {}", file.path(),
         error.what());
  }
}

Tokenizer::~Tokenizer() = default;

const llama_vocab* Tokenizer::vocab() const { return llama_model_get_vocab(impl_->model.get()); }

int64_t Tokenizer::n_vocab() const { return impl_->n_vocab; }

bool Tokenizer::is_end(Token token) const {
  return has_text_ && llama_vocab_is_eog(vocab(), token);
}

bool Tokenizer::has_chat_template() const {
  return impl_->templates && common_chat_templates_was_explicit(impl_->templates.get());
}

std::vector<Token> Tokenizer::encode_plain(std::string_view text) const {
  if (!has_text_) fail(ErrorKind::kUnsupported, "{}: the model has no tokenizer", impl_->path);
  return encode(vocab(), text, /*parse_special=*/false);
}

std::vector<Token> Tokenizer::encode_template(std::string_view text) const {
  if (!has_text_) fail(ErrorKind::kUnsupported, "{}: the model has no tokenizer", impl_->path);
  return encode(vocab(), text, /*parse_special=*/true);
}

std::string Tokenizer::piece(Token token) const {
  if (!has_text_ || token < 0 || token >= n_vocab()) return {};
  std::string text(64, '\0');
  const auto run = [&] {
    return llama_token_to_piece(vocab(), token, text.data(), static_cast<int32_t>(text.size()), 0,
                                false);
  };
  int32_t n = run();
  if (n < 0) {
    text.resize(static_cast<size_t>(-n));
    n = run();
  }
  text.resize(static_cast<size_t>(std::max(n, 0)));
  return text;
}

std::string Tokenizer::decode(const std::vector<Token>& tokens) const {
  std::string text;
  for (const Token token : tokens) text += piece(token);
  return text;
}

std::vector<Token> Tokenizer::encode_head(const std::string& head,
                                          const std::optional<std::string>& system) const {
  if (!system) return encode_template(head);
  const size_t mark = head.find(kSystemMarker);
  if (mark == std::string::npos) {
    fail(ErrorKind::kUnsupported, "{}: its chat template has no place for a system prompt",
         impl_->path);
  }
  std::vector<Token> tokens = encode_template(head.substr(0, mark));
  for (const auto& part :
       {encode_plain(*system), encode_template(head.substr(mark + kSystemMarker.size()))}) {
    tokens.insert(tokens.end(), part.begin(), part.end());
  }
  return tokens;
}

PromptLayout Tokenizer::layout(const std::optional<std::string>& system, bool think) const {
  return has_chat_template() ? templated_layout(system, think) : plain_layout(system);
}

PromptLayout Tokenizer::templated_layout(const std::optional<std::string>& system,
                                         bool think) const {
  std::vector<common_chat_msg> before;
  if (system) before.push_back(message("system", kSystemMarker));
  std::optional<RenderedTurns> turns;
  try {
    turns = split_rendered(impl_->templates.get(), before, think);
  } catch (const std::exception& error) {
    fail(ErrorKind::kUnsupported, "{}: its chat template fails{}: {}", impl_->path,
         system ? " with a system prompt" : "", error.what());
  }
  if (!turns) {
    fail(ErrorKind::kUnsupported, "{}: its chat template does not pass messages through unchanged",
         impl_->path);
  }
  return {.prefix = with_start_token(encode_head(turns->head, system)),
          .question = encode_plain("\n\n"),
          .turn = encode_template(turns->turn),
          .next_turn = encode_template(turns->next_turn),
          .templated = true};
}

PromptLayout Tokenizer::plain_layout(const std::optional<std::string>& system) const {
  PromptLayout layout;
  std::vector<Token> head;
  if (has_text_) {
    if (system) head = encode_plain(*system + "\n");
    layout.turn = layout.question = layout.next_turn = encode_plain("\n");
  }
  layout.prefix = with_start_token(std::move(head));
  return layout;
}

std::vector<Token> Tokenizer::with_start_token(std::vector<Token> head) const {
  if (!has_text_ || !llama_vocab_get_add_bos(vocab())) return head;
  // llama-common strips the start token that some templates write; exactly one is wanted.
  const Token start = llama_vocab_bos(vocab());
  if (head.empty() || head.front() != start) head.insert(head.begin(), start);
  return head;
}

}  // namespace ctxzip
