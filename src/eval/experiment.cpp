#include "eval/experiment.h"

#include <fmt/format.h>

#include <algorithm>

#include "core/fail.h"
#include "ctxzip_version.h"
#include "model/model_state.h"

namespace ctxzip::eval {
namespace {

constexpr int64_t kLogVersion = 1;

void check_options(const Model& model, const Experiment& experiment,
                   const ExperimentOptions& options) {
  const Hyperparameters& hp = model.state()->hp;
  const bool without_latent = experiment.latent_rows && hp.latent.content == 0;
  if (without_latent || hp.n_vocab != kNeedleVocabulary) {
    fail(ErrorKind::kUnsupported,
         "model {} (architecture '{}', {} token ids): {} needs a model {}that was trained on its "
         "texts, as those of models/vestige",
         model.info().name, hp.architecture, hp.n_vocab, experiment.name,
         without_latent ? "of latent attention " : "");
  }
  for (size_t at = 0; at < options.methods.size(); ++at) {
    experiment.check_method(options.methods[at]);
    const auto before = options.methods.begin() + static_cast<std::ptrdiff_t>(at);
    if (std::find(options.methods.begin(), before, options.methods[at]) != before) {
      fail(ErrorKind::kInvalidArgument, "method {} is given twice", options.methods[at]);
    }
  }
  for (const double ratio : options.ratios) {
    if (ratio > 0 && ratio <= 1) continue;
    fail(ErrorKind::kInvalidArgument, "a ratio of {}: expected more than 0 and at most 1", ratio);
  }
  const int64_t n_queries = options.n_needles * kItemTokens;
  if (options.length + n_queries > hp.n_ctx_train) {
    fail(ErrorKind::kTooLong, "texts of {} tokens and {} of queries: the model has {} positions",
         options.length, n_queries, hp.n_ctx_train);
  }
}

}  // namespace

std::string context_id(const ExperimentOptions& options, int64_t number) {
  return fmt::format("{}-{}", options.length, number);
}

std::vector<std::pair<std::string, double>> experiment_variants(const ExperimentOptions& options) {
  std::vector<std::pair<std::string, double>> all;
  for (const std::string& method : options.methods) {
    if (method == "full") {
      all.emplace_back(method, 1);
      continue;
    }
    for (const double ratio : options.ratios) all.emplace_back(method, ratio);
  }
  return all;
}

NeedleText calibrated_text(const ExperimentOptions& options, Draw& draw) {
  return make_needle_text({.n_tokens = options.length,
                           .n_needles = (kCalibratingNeedles + 1) * options.n_needles,
                           .n_distractors = options.n_needles,
                           .block_rows = options.block_rows},
                          draw);
}

std::vector<std::string> layer_names(const Model& model, const ExperimentOptions&) {
  std::vector<std::string> names;
  for (const int64_t layer : model.state()->hp.layers.global_layers()) {
    names.push_back(fmt::format("layer {}", layer));
  }
  return names;
}

ExperimentRun prepare_experiment(const Model& model, const Experiment& experiment,
                                 const ExperimentOptions& given) {
  ExperimentOptions options = given;
  if (options.methods.empty()) options.methods = experiment.methods;
  if (options.ratios.empty()) options.ratios = experiment.ratios;
  check_options(model, experiment, options);
  const std::vector<std::string> questions = experiment.questions(model, options);
  RunPlan plan;
  for (int64_t number = 0; number < options.n_contexts; ++number) {
    std::vector<RecordKey>& keys = plan.emplace_back();
    for (const auto& [method, ratio] : experiment_variants(options)) {
      for (const std::string& question : questions) {
        keys.push_back({context_id(options, number), question, method, ratio});
      }
    }
  }
  Json header = {{"record", "header"},
                 {"format", "ctxzip-eval"},
                 {"format_version", kLogVersion},
                 {"ctxzip", CTXZIP_VERSION},
                 {"task", experiment.name},
                 {"group", "vestige"},
                 {"metrics", experiment.metrics},
                 {"model",
                  {{"name", model.info().name},
                   {"architecture", model.info().architecture},
                   {"fingerprint", model.info().fingerprint}}},
                 {"data",
                  {{"generator", experiment.name},
                   {"lengths", std::vector<int64_t>{options.length}},
                   {"needles", options.n_needles}}},
                 {"methods", options.methods},
                 {"ratios", options.ratios},
                 {"n_contexts", options.n_contexts},
                 {"n_questions", options.n_contexts * static_cast<int64_t>(questions.size())},
                 {"block_rows", options.block_rows},
                 {"seed", options.seed}};
  return {experiment, std::move(options), std::move(header), std::move(plan)};
}

void execute_experiment(const Model& model, const ExperimentRun& run, RunLog& log,
                        const CancelToken* cancel,
                        const std::function<void(int64_t done)>& on_context) {
  for (size_t number = log.n_contexts_done(); number < run.plan.size(); ++number) {
    if (cancel != nullptr && cancel->cancelled()) fail(ErrorKind::kCancelled, "interrupted");
    log.append_context(
        run.experiment.run(model, run.options, static_cast<int64_t>(number), cancel));
    on_context(static_cast<int64_t>(number + 1));
  }
}

}  // namespace ctxzip::eval
