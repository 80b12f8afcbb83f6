#include <algorithm>
#include <nlohmann/json.hpp>

#include "core/fail.h"
#include "ctxzip/heads.h"
#include "engine/zipper.h"

namespace ctxzip {
namespace {

using Json = nlohmann::ordered_json;

constexpr const char* kFormat = "ctxzip-heads";
constexpr int64_t kFormatVersion = 1;
constexpr double kTriedRatios[] = {0.9, 0.8, 0.7, 0.6, 0.5, 0.4, 0.3};

// Raises each head to the largest score of its pairs.
void raise_heads(const Scores& scores, std::vector<float>& values) {
  for (size_t head = 0; head < values.size(); ++head) {
    const auto first = scores.values.begin() + static_cast<std::ptrdiff_t>(head) * scores.n_context;
    values[head] = std::max(values[head], *std::max_element(first, first + scores.n_context));
  }
}

// Tries ratios from the largest down and stops where too much is lost.
HeadTrial try_ratios(Zipper& zipper, Method method) {
  HeadTrial trial{.method = method, .losses = {}};
  for (const double ratio : kTriedRatios) {
    const KeepSet kept = zipper.select(method, {.ratio = ratio}, Allocation::kGlobal);
    const Context context = zipper.copy(method, Allocation::kGlobal, kept);
    const ZipReport& report = context.report();
    if (!report.delta_nll) break;
    trial.losses.push_back({.ratio = ratio,
                            .delta_nll = *report.delta_nll,
                            .delta_nll_probe = report.delta_nll_probe.value_or(0)});
    const HeadLoss& loss = trial.losses.back();
    if (std::max(loss.delta_nll, loss.delta_nll_probe) > kHeadLossBound) break;
    trial.recommended_ratio = ratio;
  }
  return trial;
}

std::vector<HeadTrial> try_structures(const Model& model, const std::string& text,
                                      ZipOptions options, const HeadScores& scores) {
  options.method = Method::kHeadsDuo;
  options.heads = std::make_shared<const HeadScores>(scores);
  options.notice = {};  // of losses that the trials are there to find
  Zipper zipper(model, plan_zip(*model.state(), text, options), options);
  zipper.prefill();
  return {try_ratios(zipper, Method::kHeadsDuo), try_ratios(zipper, Method::kHeadsDrop)};
}

HeadScores parse(const Json& json) {
  HeadScores heads;
  if (json.at("format") != kFormat || json.at("format_version") != kFormatVersion) {
    fail(ErrorKind::kCorruptFile, "head scores: expected format {} of version {}", kFormat,
         kFormatVersion);
  }
  heads.model_name = json.at("model").get<std::string>();
  heads.model_fingerprint = json.at("model_fingerprint").get<std::string>();
  heads.layers = json.at("layers").get<std::vector<int64_t>>();
  heads.n_kv_head = json.at("n_kv_head").get<int64_t>();
  heads.n_samples = json.at("n_samples").get<int64_t>();
  heads.sample_tokens = json.at("sample_tokens").get<int64_t>();
  for (const Json& layer : json.at("scores")) {
    const auto values = layer.get<std::vector<float>>();
    if (static_cast<int64_t>(values.size()) != heads.n_kv_head) {
      fail(ErrorKind::kCorruptFile, "head scores: a layer has {} scores, expected {}",
           values.size(), heads.n_kv_head);
    }
    heads.values.insert(heads.values.end(), values.begin(), values.end());
  }
  if (json.at("scores").size() != heads.layers.size() || heads.values.empty()) {
    fail(ErrorKind::kCorruptFile, "head scores: {} lists of scores for {} layers",
         json.at("scores").size(), heads.layers.size());
  }
  return heads;
}

}  // namespace

HeadMeasurement measure_heads(const Model& model, std::span<const std::string> texts,
                              const ZipOptions& options) {
  if (texts.empty()) fail(ErrorKind::kInvalidArgument, "no sample text: expected at least one");
  const LayerMap& layers = model.state()->hp.layers;
  HeadMeasurement result;
  HeadScores& heads = result.scores;
  heads.model_name = model.info().name;
  heads.model_fingerprint = model.info().fingerprint;
  heads.layers = layers.global_layers();
  heads.n_kv_head = model.info().n_kv_head;
  heads.n_samples = static_cast<int64_t>(texts.size());
  heads.values.assign(static_cast<size_t>(layers.n_global() * heads.n_kv_head), 0);
  ZipOptions scoring = options;
  scoring.method = Method::kKvzip;
  scoring.schedule = Schedule::kTwoPass;
  scoring.self_check = false;
  for (const std::string& text : texts) {
    Zipper zipper(model, plan_zip(*model.state(), text, scoring), scoring);
    if (zipper.plan().too_short) {
      fail(ErrorKind::kInvalidArgument, "a sample of {} tokens is too short: expected {} or more",
           zipper.plan().n_context(), kShortestCompressed);
    }
    heads.sample_tokens += zipper.plan().n_context();
    zipper.prefill();
    raise_heads(zipper.scores(Method::kKvzip), heads.values);
  }
  scoring.self_check = options.self_check;
  if (options.self_check) {
    result.trials = try_structures(model, texts.back(), scoring, heads);
  }
  return result;
}

std::string heads_to_json(const HeadScores& heads) {
  Json scores = Json::array();
  for (size_t layer = 0; layer < heads.layers.size(); ++layer) {
    const auto first = heads.values.begin() + static_cast<std::ptrdiff_t>(layer) * heads.n_kv_head;
    scores.push_back(std::vector<float>(first, first + heads.n_kv_head));
  }
  const Json json = {{"format", kFormat},
                     {"format_version", kFormatVersion},
                     {"model", heads.model_name},
                     {"model_fingerprint", heads.model_fingerprint},
                     {"layers", heads.layers},
                     {"n_kv_head", heads.n_kv_head},
                     {"n_samples", heads.n_samples},
                     {"sample_tokens", heads.sample_tokens},
                     {"scores", scores}};
  return json.dump(-1, ' ', false, Json::error_handler_t::replace) + "\n";
}

HeadScores heads_from_json(std::string_view json) {
  try {
    return parse(Json::parse(json));
  } catch (const Json::exception&) {
    fail(ErrorKind::kCorruptFile, "head scores: not a file that `ctxzip heads` made");
  }
}

}  // namespace ctxzip
