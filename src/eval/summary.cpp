#include "eval/summary.h"

#include <algorithm>
#include <utility>

#include "ctxzip/session.h"

namespace ctxzip::eval {
namespace {

// All records of one (method, ratio), context by context.
struct VariantRecords {
  std::string method;
  double ratio = 1;
  std::vector<std::vector<const AnswerRecord*>> contexts;
};

std::vector<VariantRecords> group_records(std::span<const AnswerRecord> records) {
  std::vector<VariantRecords> groups;
  for (const AnswerRecord& record : records) {
    const auto same = [&](const VariantRecords& group) {
      return group.method == record.key.method && group.ratio == record.key.ratio;
    };
    auto group = std::find_if(groups.begin(), groups.end(), same);
    if (group == groups.end()) {
      group = groups.insert(groups.end(), {record.key.method, record.key.ratio, {}});
    }
    auto& contexts = group->contexts;
    if (contexts.empty() || contexts.back().front()->key.context != record.key.context) {
      contexts.emplace_back();
    }
    contexts.back().push_back(&record);
  }
  return groups;
}

struct Sum {
  double score = 0;
  double n = 0;
};

// (context)
std::vector<Sum> sums(const VariantRecords& variant, size_t metric) {
  std::vector<Sum> all;
  for (const auto& context : variant.contexts) {
    Sum sum;
    for (const AnswerRecord* record : context) sum.score += record->scores.at(metric);
    sum.n = static_cast<double>(context.size());
    all.push_back(std::move(sum));
  }
  return all;
}

// Whether every score of every variant is 0 or 1.
bool is_proportion(std::span<const AnswerRecord> records, size_t metric) {
  return std::all_of(records.begin(), records.end(), [&](const AnswerRecord& record) {
    return record.scores.at(metric) == 0 || record.scores.at(metric) == 1;
  });
}

Interval exact_interval_of(const VariantRecords& variant, size_t metric) {
  int64_t hits = 0;
  int64_t n = 0;
  for (const auto& context : variant.contexts) {
    for (const AnswerRecord* record : context) hits += record->scores.at(metric) == 1 ? 1 : 0;
    n += static_cast<int64_t>(context.size());
  }
  return exact_interval(hits, n);
}

MetricSummary summarise_metric(const VariantRecords& variant, const VariantRecords* full,
                               size_t metric, const std::string& name, uint64_t seed) {
  MetricSummary summary{.name = name};
  std::vector<Share> shares;
  const std::vector<Sum> own = sums(variant, metric);
  for (const Sum& sum : own) shares.push_back({sum.score, sum.n});
  summary.mean = ratio_of_sums(shares).value_or(0);
  summary.interval = bootstrap_interval(shares, seed);
  if (full == nullptr) return summary;
  // Every variant of a run is asked the same questions of the same contexts, in the same order.
  const std::vector<Sum> of_full = sums(*full, metric);
  double full_score = 0;
  double full_n = 0;
  shares.clear();
  for (size_t context = 0; context < std::min(own.size(), of_full.size()); ++context) {
    shares.push_back({own[context].score, of_full[context].score});
    full_score += of_full[context].score;
    full_n += of_full[context].n;
  }
  if (full_n == 0 || full_score / full_n < kLowestFullScore) return summary;
  summary.relative = ratio_of_sums(shares);
  summary.relative_interval = bootstrap_interval(shares, seed);
  return summary;
}

void add_costs(const VariantRecords& variant, VariantSummary& summary) {
  for (const auto& context : variant.contexts) {
    const AnswerRecord& first = *context.front();
    summary.kv_bytes += static_cast<double>(first.kv_bytes);
    summary.kv_bytes_full += static_cast<double>(first.kv_bytes_full);
    summary.context_tokens += static_cast<double>(first.context_tokens);
    summary.prefill_s += first.times.prefill_s;
    summary.score_s += first.times.score_s;
    for (const AnswerRecord* record : context) {
      summary.n_cut += record->stop_reason == stop_reason_name(StopReason::kLength) ? 1 : 0;
      summary.answer_s += record->times.prompt_s + record->times.decode_s;
    }
    summary.n_questions += static_cast<int64_t>(context.size());
  }
  summary.n_contexts = static_cast<int64_t>(variant.contexts.size());
  for (double* const sum : {&summary.kv_bytes, &summary.kv_bytes_full, &summary.context_tokens,
                            &summary.prefill_s, &summary.score_s}) {
    *sum /= static_cast<double>(summary.n_contexts);
  }
  summary.answer_s /= static_cast<double>(summary.n_questions);
}

Json interval_json(const std::optional<Interval>& interval) {
  if (!interval) return nullptr;
  return Json::array({interval->low, interval->high});
}

}  // namespace

std::vector<VariantSummary> summarise(std::span<const AnswerRecord> records,
                                      const std::vector<std::string>& metrics, uint64_t seed) {
  const std::vector<VariantRecords> groups = group_records(records);
  const auto full = std::find_if(groups.begin(), groups.end(), [](const VariantRecords& group) {
    return group.method == "full";
  });
  std::vector<bool> proportions;
  for (size_t metric = 0; metric < metrics.size(); ++metric) {
    proportions.push_back(is_proportion(records, metric));
  }
  std::vector<VariantSummary> summaries;
  for (const VariantRecords& group : groups) {
    VariantSummary summary{.method = group.method, .ratio = group.ratio};
    add_costs(group, summary);
    for (size_t metric = 0; metric < metrics.size(); ++metric) {
      summary.metrics.push_back(summarise_metric(group, full == groups.end() ? nullptr : &*full,
                                                 metric, metrics[metric], seed));
      if (proportions[metric]) summary.metrics.back().exact = exact_interval_of(group, metric);
    }
    summaries.push_back(std::move(summary));
  }
  return summaries;
}

const VariantSummary* cut_full_answers(std::span<const VariantSummary> summaries) {
  for (const VariantSummary& summary : summaries) {
    if (summary.method == "full" && 4 * summary.n_cut > summary.n_questions) return &summary;
  }
  return nullptr;
}

Json to_json(const VariantSummary& summary) {
  Json metrics = Json::object();
  for (const MetricSummary& metric : summary.metrics) {
    metrics[metric.name] = {
        {"mean", metric.mean},
        {"interval", interval_json(metric.interval)},
        {"exact_interval", interval_json(metric.exact)},
        {"relative", metric.relative ? Json(*metric.relative) : Json(nullptr)},
        {"relative_interval", interval_json(metric.relative_interval)},
    };
  }
  return {
      {"method", summary.method},
      {"ratio", summary.ratio},
      {"n_contexts", summary.n_contexts},
      {"n_questions", summary.n_questions},
      {"n_cut", summary.n_cut},
      {"metrics", metrics},
      {"kv_bytes", summary.kv_bytes},
      {"kv_bytes_full", summary.kv_bytes_full},
      {"context_tokens", summary.context_tokens},
      {"times",
       {{"prefill_s", summary.prefill_s},
        {"score_s", summary.score_s},
        {"answer_s", summary.answer_s}}},
  };
}

}  // namespace ctxzip::eval
