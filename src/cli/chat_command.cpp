#include <fmt/format.h>
#include <unistd.h>

#include <iostream>
#include <memory>

#include "cli/answer_output.h"
#include "cli/command.h"
#include "cli/common_options.h"
#include "cli/exit_code.h"
#include "cli/human.h"
#include "cli/interrupt.h"
#include "cli/model_locator.h"
#include "cli/progress_bar.h"
#include "cli/standard_output.h"

namespace ctxzip::cli {
namespace {

struct ChatFlags {
  std::string file;
  OutputOptions output;
  ModelFlags model;
  AskOptions ask;
};

constexpr const char* kChatHelp = "/reset forgets the conversation, /quit ends it";

// The next message, or false at the end of the input or after /quit. Commands are carried out here.
bool next_message(Session& session, bool prompt, std::string& message) {
  for (;;) {
    if (prompt) std::cerr << "> " << std::flush;
    if (!std::getline(std::cin, message)) {
      if (prompt) std::cerr << '\n';
      return false;
    }
    if (message.ends_with('\r')) message.pop_back();
    if (message == "/quit" || message == "/exit") return false;
    if (message == "/reset") {
      session.reset();
      if (prompt) print_note("the conversation starts anew; the document stays");
    } else if (message.starts_with('/') && message.find(' ') == std::string::npos) {
      print_note(fmt::format("there is no {}: {}", message, kChatHelp));
    } else if (message.find_first_not_of(" \t") != std::string::npos) {
      return true;
    }
  }
}

int run(ChatFlags& flags) {
  ProgressBar bar;
  bar.status("loading the model");
  const Context context = open_context(flags.file, flags.model.model, flags.model.load);
  bar.clear();
  Session session(context);
  const bool prompt = !flags.output.json && isatty(STDIN_FILENO) != 0;
  if (prompt) {
    print_note(fmt::format("{} tokens are loaded; {}",
                           format_count(context.report().context_tokens), kChatHelp));
  }
  AnswerOutput output(flags.output.json, false);
  flags.ask.on_text = output.streaming();
  for (std::string message; next_message(session, prompt, message);) {
    output.begin(message);
    // Ctrl-C ends an answer while one is being made, and the program at the prompt.
    const InterruptScope interrupt;
    flags.ask.cancel = interrupt.token();
    try {
      output.end(session.chat(message, flags.ask));
    } catch (const Error& error) {
      if (error.kind() == ErrorKind::kCancelled && prompt) continue;
      if (error.kind() == ErrorKind::kCancelled) throw;
      output.fail(error);
    }
    if (interrupt.token()->cancelled() && !prompt) return interrupted_exit_code();
  }
  if (flags.output.json) {
    print_json({{"file", flags.file},
                {"answers", output.answers()},
                {"turn_tokens", session.turn_tokens()}});
  }
  return prompt ? kExitOk : output.exit_code();
}

}  // namespace

Run add_chat(CLI::App& app) {
  auto flags = std::make_shared<ChatFlags>();
  add_ctz_file(app, flags->file);
  add_model_options(app, flags->model, "the one that the file was made with");
  add_answer_options(app, flags->ask);
  add_output_options(app, flags->output);
  app.footer(
      "One message a line; /reset forgets the conversation, /quit or Ctrl-D ends it, Ctrl-C ends\n"
      "an answer.\n"
      "Examples:\n"
      "  ctxzip chat manual.ctz\n"
      "  printf 'Who wrote it?\\nWhen?\\n' | ctxzip chat manual.ctz --json");
  return [flags] { return run(*flags); };
}

}  // namespace ctxzip::cli
