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
#include "cli/recall_flags.h"
#include "cli/recall_output.h"
#include "cli/standard_output.h"

namespace ctxzip::cli {
namespace {

struct ChatFlags {
  std::string file;
  OutputOptions output;
  ModelFlags model;
  AskOptions ask;
  RecallFlags recall;
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

void check_flags(const ChatFlags& flags) {
  if (!flags.file.empty()) {
    if (flags.recall.chosen) {
      throw CLI::ValidationError("--policy", "is what the file was made with: leave it out");
    }
    return;
  }
  if (!flags.model.model) {
    throw CLI::ValidationError("FILE.ctz",
                               "is missing: give a file that `ctxzip zip` made, or a "
                               "model (-m) and --policy vestige to chat without one");
  }
  if (!flags.recall.chosen) {
    throw CLI::ValidationError("FILE.ctz", "is missing: a chat without one needs --policy vestige");
  }
}

Context open_or_start(const ChatFlags& flags) {
  if (flags.file.empty()) {
    const Model model = load_model(model_path(flags.model.model), flags.model.load);
    return start_stream(model, flags.recall.apply({}));
  }
  Context context = open_context(flags.file, flags.model.model, flags.model.load);
  if (flags.recall.changes.empty()) return context;
  return with_stream_options(context, flags.recall.apply(stream_options(context)));
}

int run(ChatFlags& flags) {
  check_flags(flags);
  ProgressBar bar;
  bar.status("loading the model");
  const Context context = open_or_start(flags);
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
  const auto recall = session.recall_report();
  if (flags.output.json) {
    Json json = {{"answers", output.answers()}, {"turn_tokens", session.turn_tokens()}};
    if (!flags.file.empty()) json["file"] = flags.file;
    if (recall) json["recall"] = recall_json(*recall);
    print_json(json);
  } else if (recall) {
    fmt::print(stderr, "\n{}", recall_lines(*recall));
  }
  return prompt ? kExitOk : output.exit_code();
}

}  // namespace

Run add_chat(CLI::App& app) {
  auto flags = std::make_shared<ChatFlags>();
  add_ctz_file(app, flags->file);
  add_model_options(app, flags->model, "the one that the file was made with");
  add_answer_options(app, flags->ask);
  add_recall_flags(app, flags->recall, RecallUse::kBoth);
  add_output_options(app, flags->output);
  app.footer(
      "One message a line; /reset forgets the conversation, /quit or Ctrl-D ends it, Ctrl-C ends\n"
      "an answer.\n"
      "Examples:\n"
      "  ctxzip chat manual.ctz\n"
      "  ctxzip chat -m kimi.gguf --policy vestige --rho 1/32 --recall 0.9\n"
      "  printf 'Who wrote it?\\nWhen?\\n' | ctxzip chat manual.ctz --json");
  return [flags] { return run(*flags); };
}

}  // namespace ctxzip::cli
