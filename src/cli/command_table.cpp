#include <array>

#include "cli/command.h"

namespace ctxzip::cli {

std::span<const Command> commands() {
  static constexpr std::array kCommands{
      Command{"zip", "Compress a text into a .ctz that questions can be asked of", add_zip},
      Command{"ask", "Ask a .ctz one or more independent questions", add_ask},
      Command{"chat", "Talk with a .ctz; later turns see earlier ones", add_chat},
      Command{"inspect", "Show what a .ctz holds and what was kept", add_inspect},
      Command{"text", "Print the document of a .ctz back", add_text},
      Command{"eval", "Measure answers with the full and with zipped caches", add_eval},
      Command{"analyze", "Show what a model attends to of a text, in several tasks", add_analyze},
      Command{"heads", "Measure which heads of a model matter, once for all texts", add_heads},
      Command{"report", "Draw figures and tables of evaluations", add_report},
      Command{"bench", "Measure speed, with llama.cpp beside it", add_bench},
      Command{"model", "List, fetch and describe models", add_model},
  };
  return kCommands;
}

}  // namespace ctxzip::cli
