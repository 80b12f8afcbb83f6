#include "eval/report.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <iterator>
#include <map>
#include <set>
#include <tuple>

#include "core/fail.h"
#include "core/file.h"
#include "eval/report_settings.h"

namespace ctxzip::eval {
namespace {

constexpr int64_t kLogVersion = 1;

Json parse_line(const std::string& line) {
  return Json::parse(line, nullptr, /*allow_exceptions=*/false);
}

void check_header(const std::string& path, const Json& header) {
  const bool known = header.is_object() && header.value("format", Json()) == "ctxzip-eval";
  if (!known) {
    fail(ErrorKind::kCorruptFile,
         "{}: is not the log of an evaluation: expected what `ctxzip "
         "eval TASK --out` writes",
         path);
  }
  if (header.value("format_version", Json()) != kLogVersion) {
    fail(ErrorKind::kUnsupported, "{}: has version {}, this program reads version {}", path,
         to_line(header.value("format_version", Json())), kLogVersion);
  }
  bool known_metrics = false;
  try {
    header.at("task").get<std::string>();
    header.at("model").at("name").get<std::string>();
    header.at("model").at("fingerprint").get<std::string>();
    known_metrics = !header.at("metrics").get<std::vector<std::string>>().empty();
    header.at("n_contexts").get<int64_t>();
    header.at("seed").get<uint64_t>();
  } catch (const Json::exception&) {
    known_metrics = false;
  }
  if (!known_metrics) {
    fail(ErrorKind::kCorruptFile, "{}: its first line is damaged: run the evaluation again", path);
  }
}

// Every method and ratio of a context has been asked the same number of questions.
bool is_whole(std::span<const AnswerRecord> context, size_t n_variants) {
  std::map<std::pair<std::string, double>, int64_t> counts;
  for (const AnswerRecord& record : context) ++counts[{record.key.method, record.key.ratio}];
  const auto differs = [&](const auto& one) { return one.second != counts.begin()->second; };
  return counts.size() >= n_variants && std::none_of(counts.begin(), counts.end(), differs);
}

// Counts contexts and drops what is left of an unfinished last one.
void keep_whole_contexts(RunFile& run) {
  std::set<std::pair<std::string, double>> variants;
  size_t last = 0;  // where the last context starts
  for (size_t at = 0; at < run.records.size(); ++at) {
    const RecordKey& key = run.records[at].key;
    variants.insert({key.method, key.ratio});
    if (at == 0 || key.context != run.records[at - 1].key.context) {
      last = at;
      ++run.n_contexts;
    }
  }
  const std::span<const AnswerRecord> rest = std::span(run.records).subspan(last);
  if (run.records.empty() || is_whole(rest, variants.size())) return;
  run.records.resize(last);
  --run.n_contexts;
}

std::string fingerprint_of(const RunFile& run) { return run.header.at("model").at("fingerprint"); }

// Its name; models that share one are told apart by the start of their fingerprints.
std::string model_of(const RunFile& run, std::span<const RunFile> runs) {
  const std::string name = run.header.at("model").at("name");
  const auto clashes = [&](const RunFile& other) {
    return other.header.at("model").at("name") == name &&
           fingerprint_of(other) != fingerprint_of(run);
  };
  if (std::none_of(runs.begin(), runs.end(), clashes)) return name;
  return fmt::format("{} ({})", name, fingerprint_of(run).substr(0, 6));
}

std::string task_of(const RunFile& run) { return run.header.at("task"); }

bool has_full(const RunFile& run) {
  return std::any_of(run.records.begin(), run.records.end(),
                     [](const AnswerRecord& record) { return record.key.method == "full"; });
}

// What the full cache's answers depend on: not on how others are compressed.
std::string asked_of(const RunFile& run) {
  std::string asked = fingerprint_of(run) + task_of(run);
  for (const char* const name :
       {"data", "n_contexts", "instruction", "max_tokens", "chat_template", "metrics"}) {
    asked += to_line(run.header.value(name, Json()));
  }
  return asked;
}

// A log without the full cache is compared with that of a log which asked the same and went at
// least as far; contexts come in the same order in both.
std::vector<VariantSummary> summarise_run(const RunFile& run, std::span<const RunFile> runs,
                                          const std::vector<std::string>& metrics) {
  const uint64_t seed = run.header.at("seed");
  const auto lends = [&](const RunFile& other) {
    return has_full(other) && other.n_contexts >= run.n_contexts &&
           asked_of(other) == asked_of(run);
  };
  const auto lender = std::find_if(runs.begin(), runs.end(), lends);
  if (has_full(run) || lender == runs.end()) return summarise(run.records, metrics, seed);
  std::vector<AnswerRecord> records = run.records;
  std::copy_if(lender->records.begin(), lender->records.end(), std::back_inserter(records),
               [](const AnswerRecord& record) { return record.key.method == "full"; });
  std::vector<VariantSummary> variants = summarise(records, metrics, seed);
  std::erase_if(variants, [](const VariantSummary& variant) { return variant.method == "full"; });
  return variants;
}

bool same_variant(const VariantSummary& a, const VariantSummary& b) {
  return a.method == b.method && a.ratio == b.ratio;
}

void add_variants(ReportTask& task, std::vector<VariantSummary> more, const std::string& file,
                  std::vector<std::string>& notes) {
  for (VariantSummary& variant : more) {
    const auto same = [&](const VariantSummary& known) { return same_variant(known, variant); };
    if (std::any_of(task.variants.begin(), task.variants.end(), same)) {
      if (variant.method != "full") {
        notes.push_back(fmt::format("{}: {} at {} is in an earlier log too and is left out here",
                                    file, variant.method, variant.ratio));
      }
      continue;
    }
    task.variants.push_back(std::move(variant));
  }
}

void sort_variants(ReportTask& task) {
  std::vector<std::string> methods{"full"};  // then in the order of the logs
  for (const VariantSummary& variant : task.variants) {
    if (std::find(methods.begin(), methods.end(), variant.method) == methods.end())
      methods.push_back(variant.method);
  }
  const auto key = [&](const VariantSummary& variant) {
    const auto place = std::find(methods.begin(), methods.end(), variant.method);
    return std::pair(place - methods.begin(), variant.ratio);
  };
  std::stable_sort(
      task.variants.begin(), task.variants.end(),
      [&](const VariantSummary& a, const VariantSummary& b) { return key(a) < key(b); });
}

void add_relative(const ReportTask& task, const RunSetting& setting, Report& report) {
  const std::string name =
      setting.data.empty() ? task.task : fmt::format("{} ({})", task.task, setting.data);
  for (const VariantSummary& variant : task.variants) {
    const MetricSummary& metric = variant.metrics.front();
    if (variant.method == "full" || !metric.relative) continue;
    const auto same = [&](const RelativeRow& row) {
      return row.model == task.model && row.setting == setting.options &&
             row.method == variant.method && row.ratio == variant.ratio;
    };
    auto row = std::find_if(report.relative.begin(), report.relative.end(), same);
    if (row == report.relative.end()) {
      row = report.relative.insert(
          report.relative.end(),
          {task.model, setting.options, variant.method, variant.ratio, 0, {}});
    }
    const auto n = static_cast<double>(row->tasks.size());
    row->mean = (row->mean * n + *metric.relative) / (n + 1);
    row->tasks.push_back(name);
  }
}

// By model, usual options first, else in the order of the logs.
void sort_relative(std::vector<RelativeRow>& rows) {
  std::vector<std::string> models;
  std::vector<std::string> settings{""};
  const auto place = [](const std::vector<std::string>& names, const std::string& name) {
    return std::find(names.begin(), names.end(), name) - names.begin();
  };
  for (const RelativeRow& row : rows) {
    if (place(models, row.model) == std::ssize(models)) models.push_back(row.model);
    if (place(settings, row.setting) == std::ssize(settings)) settings.push_back(row.setting);
  }
  const auto key = [&](const RelativeRow& row) {
    return std::pair(place(models, row.model), place(settings, row.setting));
  };
  std::stable_sort(rows.begin(), rows.end(),
                   [&](const RelativeRow& a, const RelativeRow& b) { return key(a) < key(b); });
}

// Logs of one task are only ever written with other metrics by another version of the program.
void check_metrics(const RunFile& run, const ReportTask& task) {
  const auto metrics = run.header.at("metrics").get<std::vector<std::string>>();
  if (metrics == task.metrics) return;
  fail(ErrorKind::kMismatch,
       "{}: has the metrics {} where an earlier log of {} has {}: report them by themselves",
       run.name, fmt::join(metrics, ", "), task.task, fmt::join(task.metrics, ", "));
}

void note_run(const RunFile& run, std::vector<std::string>& notes) {
  const auto n_planned = run.header.at("n_contexts").get<int64_t>();
  if (run.n_contexts < n_planned) {
    notes.push_back(
        fmt::format("{}: unfinished, {} of {} contexts", run.name, run.n_contexts, n_planned));
  }
}

// Few questions, no full cache, a full cache that fails.
void note_task(const ReportTask& task, std::vector<std::string>& notes) {
  const std::string name = fmt::format("{} on {}{}{}", task.task, task.model,
                                       task.setting.empty() ? "" : ", ", task.setting);
  const VariantSummary& first = task.variants.front();
  if (first.n_questions < kFewQuestions) {
    notes.push_back(fmt::format("{}: {} questions are few, differences may be chance", name,
                                first.n_questions));
  }
  if (first.method != "full") {
    if (first.metrics.front().relative) return;
    notes.push_back(fmt::format("{}: without the method full nothing is relative", name));
  } else if (first.metrics.front().mean < kLowestFullScore) {
    notes.push_back(fmt::format("{}: the full cache scores {:.3f}, too little to be relative to",
                                name, first.metrics.front().mean));
  }
}

}  // namespace

RunFile read_run(const std::string& path) {
  const MappedFile file(path);
  std::string_view rest(reinterpret_cast<const char*>(file.bytes().data()), file.bytes().size());
  RunFile run{.name = std::filesystem::path(path).filename().string(), .header = {}};
  std::vector<std::string> metrics;
  for (int64_t number = 1; !rest.empty(); ++number) {
    const size_t end = rest.find('\n');
    if (end == std::string_view::npos && number > 1) break;  // cut off
    const std::string line(rest.substr(0, end));
    rest.remove_prefix(std::min(line.size() + 1, rest.size()));
    if (number == 1) {
      run.header = parse_line(line);
      check_header(path, run.header);
      run.header.at("metrics").get_to(metrics);
      continue;
    }
    try {
      run.records.push_back(record_from_json(Json::parse(line), metrics));
    } catch (const Json::exception&) {
      fail(ErrorKind::kCorruptFile, "{}: line {} is damaged: delete it and all lines after it",
           path, number);
    }
  }
  if (run.header.is_null()) check_header(path, run.header);
  keep_whole_contexts(run);
  if (run.records.empty()) {
    fail(ErrorKind::kCorruptFile, "{}: holds no whole context yet: let the evaluation go on", path);
  }
  return run;
}

Report make_report(std::span<const RunFile> runs) {
  Report report;
  const ReportSettings settings = report_settings(runs);
  std::vector<RunSetting> setting_of;  // (task of the report)
  std::map<std::tuple<std::string, std::string, std::string>, size_t> place;
  std::map<size_t, std::string> contexts;  // of each task, to see whether runs share them
  for (size_t at = 0; at < runs.size(); ++at) {
    const RunFile& run = runs[at];
    note_run(run, report.notes);
    const std::string setting = settings.runs[at].text();
    const auto [found, is_new] =
        place.try_emplace({fingerprint_of(run), task_of(run), setting}, report.tasks.size());
    if (is_new) {
      report.tasks.push_back({.model = model_of(run, runs),
                              .task = task_of(run),
                              .group = run.header.value("group", ""),
                              .setting = setting,
                              .metrics = run.header.at("metrics"),
                              .variants = {}});
      setting_of.push_back(settings.runs[at]);
    }
    const std::string used =
        to_line(run.header.value("data", Json())) + to_line(run.header.at("n_contexts"));
    if (!is_new && contexts[found->second] != used) {
      report.notes.push_back(fmt::format("{}: is compared with a log of other contexts of {}",
                                         run.name, task_of(run)));
    }
    contexts.try_emplace(found->second, used);
    ReportTask& task = report.tasks[found->second];
    check_metrics(run, task);
    add_variants(task, summarise_run(run, runs, task.metrics), run.name, report.notes);
  }
  for (size_t at = 0; at < report.tasks.size(); ++at) {
    sort_variants(report.tasks[at]);
    note_task(report.tasks[at], report.notes);
    add_relative(report.tasks[at], setting_of[at], report);
  }
  sort_relative(report.relative);
  if (!settings.usual.empty()) {
    report.notes.push_back("options where none are named: " + settings.usual);
  }
  return report;
}

Json to_json(const Report& report) {
  Json tasks = Json::array();
  for (const ReportTask& task : report.tasks) {
    Json results = Json::array();
    for (const VariantSummary& variant : task.variants) results.push_back(to_json(variant));
    tasks.push_back({{"model", task.model},
                     {"task", task.task},
                     {"group", task.group},
                     {"setting", task.setting},
                     {"metrics", task.metrics},
                     {"results", results}});
  }
  Json relative = Json::array();
  for (const RelativeRow& row : report.relative) {
    relative.push_back({{"model", row.model},
                        {"setting", row.setting},
                        {"method", row.method},
                        {"ratio", row.ratio},
                        {"mean", row.mean},
                        {"tasks", row.tasks}});
  }
  return {{"tasks", tasks}, {"relative", relative}, {"notes", report.notes}};
}

}  // namespace ctxzip::eval
