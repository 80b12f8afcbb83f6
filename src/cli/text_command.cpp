#include <memory>

#include "cli/command.h"
#include "cli/common_options.h"
#include "cli/exit_code.h"
#include "cli/json_output.h"
#include "cli/model_locator.h"
#include "cli/standard_output.h"

namespace ctxzip::cli {
namespace {

struct TextFlags {
  std::string file;
  OutputOptions output;
  ModelFlags model;
};

int run(const TextFlags& flags) {
  ModelOptions options = flags.model.load;
  options.repack = false;  // only the tokenizer is used
  const Context context = open_context(flags.file, flags.model.model, options);
  const std::string text = context.text();
  if (flags.output.json) {
    print_json({{"file", flags.file},
                {"model", context.model().info().name},
                {"context_tokens", context.report().context_tokens},
                {"text", text}});
    return kExitOk;
  }
  print_out(text);
  // zip drops line ends at the end of a document; a text file has one.
  print_out("\n");
  return kExitOk;
}

}  // namespace

Run add_text(CLI::App& app) {
  auto flags = std::make_shared<TextFlags>();
  add_ctz_file(app, flags->file)->required();
  add_model_options(app, flags->model, "the one that the file was made with");
  add_output_options(app, flags->output);
  app.footer(
      "Examples:\n"
      "  ctxzip text manual.ctz > manual.txt\n"
      "  ctxzip text manual.ctz --json | jq -r .text");
  return [flags] { return run(*flags); };
}

}  // namespace ctxzip::cli
