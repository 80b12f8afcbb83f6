#include <unistd.h>

#include <memory>
#include <optional>
#include <span>

#include "cli/command.h"
#include "cli/common_options.h"
#include "cli/exit_code.h"
#include "cli/heatmap_page.h"
#include "cli/inspect_tables.h"
#include "cli/interrupt.h"
#include "cli/json_output.h"
#include "cli/keep_overlap.h"
#include "cli/model_locator.h"
#include "cli/output_file.h"
#include "cli/progress_bar.h"
#include "cli/recall_output.h"
#include "cli/standard_output.h"
#include "cli/terminal.h"
#include "cli/words.h"
#include "core/file.h"
#include "engine/rescore.h"
#include "eval/heatmap.h"

namespace ctxzip::cli {
namespace {

struct InspectFlags {
  std::string file;
  bool heads = false;
  bool words = false;
  std::string heatmap;
  bool scores = false;
  std::string against;
  OutputOptions output;
  ModelFlags model;
};

Context read_context(const InspectFlags& flags, bool computes) {
  ModelOptions options = flags.model.load;
  options.repack = computes;  // else only the tokenizer is used
  return open_context(flags.file, flags.model.model, options);
}

std::vector<Word> read_words(const InspectFlags& flags) {
  return words_of(read_context(flags, /*computes=*/false));
}

bool is_page(const std::string& path) { return path.ends_with(".html"); }

void check_heatmap(const InspectFlags& flags) {
  const std::string& path = flags.heatmap;
  if (path.empty()) {
    if (flags.scores) throw CLI::ValidationError("--scores", "is drawn with --heatmap OUT");
    return;
  }
  if (!is_page(path) && !path.ends_with(".png")) {
    throw CLI::ValidationError("--heatmap", "'" + path + "' ends neither in .png nor in .html");
  }
  check_output_file(path);
}

Scores scores_of(const InspectFlags& flags) {
  const InterruptScope interrupt;
  ProgressBar bar;
  bar.status("loading the model");
  const Context context = read_context(flags, /*computes=*/true);
  Scores scores = rescore(
      context,
      [&](Stage stage, int64_t done, int64_t total) {
        bar.update(stage_name(stage), ProgressUnit::kTokens, done, total);
      },
      interrupt.token());
  bar.finish();
  return scores;
}

void write_heatmap(const InspectFlags& flags, const FileInfo& info) {
  std::vector<MapPanel> panels;
  if (flags.scores) {
    panels.push_back({"Scores by layer and head",
                      "The colour is the share of all pairs with a lower score.",
                      eval::rank_map(scores_of(flags))});
  }
  panels.push_back(
      {"Kept by layer and head", "The colour is the share of rows that the head kept.",
       eval::kept_map(read_kept_map(flags.file, eval::kMapParts), info.heads.n_kv_head)});
  write_file_atomically(flags.heatmap, [&](const WriteFn& sink) {
    if (is_page(flags.heatmap)) {
      const std::string page = heatmap_page(flags.file, info, panels, read_words(flags));
      return sink(std::as_bytes(std::span(page)));
    }
    std::vector<eval::HeatMap> maps;
    for (const MapPanel& panel : panels) maps.push_back(panel.map);
    sink(eval::heatmap_png(maps));
  });
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
  check_heatmap(flags);
  const FileInfo info = inspect_file(flags.file);
  std::optional<KeepOverlap> overlap;
  if (!flags.against.empty()) overlap = keep_overlap(flags.file, flags.against);
  if (!flags.heatmap.empty()) write_heatmap(flags, info);
  if (flags.output.json) {
    Json json = inspect_json(flags.file, info);
    if (flags.words) json["words"] = words_json(read_words(flags));
    if (overlap) json["against"] = overlap_json(*overlap);
    if (!flags.heatmap.empty()) json["heatmap"] = flags.heatmap;
    print_json(json);
    return kExitOk;
  }
  // A missing model fails before anything is printed.
  std::vector<Word> words;
  if (flags.words) words = read_words(flags);
  print_out(summary_table(flags.file, info));
  if (overlap) print_out("\n" + overlap_line(*overlap));
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
  if (!flags.heatmap.empty()) print_out("\nheatmap: " + flags.heatmap + "\n");
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
  app.add_flag("--scores", flags->scores, "Draw the scores too: reads and scores the text again");
  app.add_option("--against", flags->against,
                 "Another zip of the same text: how many of the kept pairs are the same")
      ->type_name("OTHER.ctz")
      ->check(CLI::Validator(
          [](const std::string& path) {
            return path.empty() ? std::string("is empty, expected a file") : std::string();
          },
          ""));
  app.add_flag("--words", flags->words, "The text, with how much was kept of each word");
  add_model_options(app, flags->model,
                    "the one that the file was made with; --words, --scores and pages need it");
  add_output_options(app, flags->output);
  app.footer(
      "Examples:\n"
      "  ctxzip inspect manual.ctz --heads\n"
      "  ctxzip inspect manual.ctz --heatmap kept.html --scores\n"
      "  ctxzip inspect manual.ctz --against manual-snapkv.ctz\n"
      "  ctxzip inspect manual.ctz --words | less -R");
  return [flags] { return run(*flags); };
}

}  // namespace ctxzip::cli
