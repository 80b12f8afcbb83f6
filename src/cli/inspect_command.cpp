#include <unistd.h>

#include <memory>
#include <span>

#include "cli/command.h"
#include "cli/common_options.h"
#include "cli/exit_code.h"
#include "cli/heatmap_page.h"
#include "cli/inspect_tables.h"
#include "cli/json_output.h"
#include "cli/model_locator.h"
#include "cli/output_file.h"
#include "cli/recall_output.h"
#include "cli/standard_output.h"
#include "cli/terminal.h"
#include "cli/words.h"
#include "core/file.h"
#include "eval/heatmap.h"

namespace ctxzip::cli {
namespace {

constexpr int64_t kMapParts = 1200;  // as wide as a screen

struct InspectFlags {
  std::string file;
  bool heads = false;
  bool words = false;
  std::string heatmap;
  OutputOptions output;
  ModelFlags model;
};

std::vector<Word> read_words(const InspectFlags& flags) {
  ModelOptions options = flags.model.load;
  options.repack = false;  // only the tokenizer is used
  return words_of(open_context(flags.file, flags.model.model, options));
}

bool is_page(const std::string& path) { return path.ends_with(".html"); }

void check_heatmap(const std::string& path) {
  if (!is_page(path) && !path.ends_with(".png")) {
    throw CLI::ValidationError("--heatmap", "'" + path + "' ends neither in .png nor in .html");
  }
  check_output_file(path);
}

void write_heatmap(const InspectFlags& flags, const FileInfo& info) {
  const KeptMap map = read_kept_map(flags.file, kMapParts);
  const std::vector<std::byte> png = eval::heatmap_png(map, info.heads.n_kv_head);
  std::span<const std::byte> bytes = png;
  std::string page;
  if (is_page(flags.heatmap)) {
    page = heatmap_page(flags.file, info, map, png, read_words(flags));
    bytes = std::as_bytes(std::span(page.data(), page.size()));
  }
  write_file_atomically(flags.heatmap, [&](const WriteFn& sink) { sink(bytes); });
}

Json inspect_json(const std::string& file, const FileInfo& info) {
  Json json = {{"file", file},
               {"file_bytes", info.file_bytes},
               {"format_version", info.format_version},
               {"model", info.model_name},
               {"architecture", info.architecture},
               {"model_fingerprint", info.model_fingerprint}};
  json.update(report_json(info.report));
  json["heads"] = heads_json(info.heads);
  if (info.recall) json["recall"] = recall_json(*info.recall);
  return json;
}

Json words_json(const std::vector<Word>& words) {
  Json list = Json::array();
  for (const Word& word : words) {
    list.push_back({{"text", word.text}, {"kept_share", word.kept_share}});
  }
  return list;
}

int run(const InspectFlags& flags) {
  if (!flags.heatmap.empty()) check_heatmap(flags.heatmap);
  const FileInfo info = inspect_file(flags.file);
  if (!flags.heatmap.empty()) write_heatmap(flags, info);
  if (flags.output.json) {
    Json json = inspect_json(flags.file, info);
    if (flags.words) json["words"] = words_json(read_words(flags));
    print_json(json);
    return kExitOk;
  }
  // A missing model fails before anything is printed.
  std::vector<Word> words;
  if (flags.words) words = read_words(flags);
  print_out(summary_table(flags.file, info));
  if (flags.heads) {
    print_out("\n" + heads_table(info));
  } else if (!flags.words) {
    print_out("\n" + layers_table(info));
  }
  if (flags.words) {
    const bool colour = wants_colour(STDOUT_FILENO);
    print_out("\n" + marks_legend(colour) + "\n\n");
    print_out(marked_text(words, colour) + "\n");
  }
  return kExitOk;
}

}  // namespace

Run add_inspect(CLI::App& app) {
  auto flags = std::make_shared<InspectFlags>();
  add_ctz_file(app, flags->file)->required();
  app.add_flag("--heads", flags->heads, "What each head kept, instead of a line per layer");
  app.add_option("--heatmap", flags->heatmap,
                 "Draw what each head kept of which part; a page (.html) also shows the text")
      ->type_name("OUT.png|OUT.html");
  app.add_flag("--words", flags->words, "The text, with how much was kept of each word");
  add_model_options(app, flags->model,
                    "the one that the file was made with; --words and pages need it");
  add_output_options(app, flags->output);
  app.footer(
      "Examples:\n"
      "  ctxzip inspect manual.ctz --heads\n"
      "  ctxzip inspect manual.ctz --heatmap kept.html\n"
      "  ctxzip inspect manual.ctz --words | less -R");
  return [flags] { return run(*flags); };
}

}  // namespace ctxzip::cli
