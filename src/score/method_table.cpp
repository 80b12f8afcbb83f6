#include "score/method_table.h"

#include <array>

#include "core/fail.h"
#include "score/prefill_attention.h"

namespace ctxzip {
namespace {

constexpr double kPyramidBeta = 20;
constexpr double kHeavyHitterRecentShare = 0.5;

constexpr BudgetRule kGlobalRule = {.native = Allocation::kGlobal};

constexpr MethodTraits kvzip(Method method, std::string_view name, std::string_view summary,
                             ReconVariant recon) {
  return {.info = {method, name, summary},
          .source = ScoreSource::kReconstruction,
          .scores_of = method,
          .recon = recon,
          .rule = kGlobalRule,
          .streams = recon.input == ReconInput::kFull};
}

constexpr MethodTraits sigma(Method method, std::string_view name, std::string_view summary) {
  return {
      .info = {method, name, summary}, .source = ScoreSource::kUnrotatedRows, .scores_of = method};
}

constexpr std::array kTraits{
    kvzip(Method::kKvzip, "kvzip", "largest attention while the text is repeated", {}),
    kvzip(Method::kKvzipPlus, "kvzip-plus", "KVzip with norms of hidden states and values",
          {.score = ReconScore::kNormalised}),
    kvzip(Method::kKvzipLogit, "kvzip-logit", "KVzip without the softmax",
          {.score = ReconScore::kLogit}),
    kvzip(Method::kKvzipFirst, "kvzip-first", "KVzip that repeats the first tenth only",
          {.input = ReconInput::kFirst}),
    kvzip(Method::kKvzipLast, "kvzip-last", "KVzip that repeats the last tenth only",
          {.input = ReconInput::kLast}),
    kvzip(Method::kKvzipPrompt, "kvzip-prompt", "KVzip with the prompt to repeat only",
          {.input = ReconInput::kPrompt}),
    kvzip(Method::kKvzipParaphrase, "kvzip-paraphrase", "KVzip with a paraphrased prompt",
          {.wording = RepeatWording::kParaphrase}),
    kvzip(Method::kKvzipBlank, "kvzip-blank", "KVzip with a blank line as the prompt",
          {.wording = RepeatWording::kBlank}),
    MethodTraits{.info = {Method::kH2o, "h2o", "largest attention during prefill"},
                 .source = ScoreSource::kPrefillAttention,
                 .scores_of = Method::kH2o,
                 .rule = {.recent_share = kHeavyHitterRecentShare}},
    MethodTraits{.info = {Method::kH2oMean, "h2o-mean", "mean attention during prefill"},
                 .source = ScoreSource::kPrefillAttention,
                 .scores_of = Method::kH2oMean,
                 .rule = {.recent_share = kHeavyHitterRecentShare}},
    MethodTraits{.info = {Method::kSnapKv, "snapkv", "attention of the last 32 tokens"},
                 .source = ScoreSource::kPrefillAttention,
                 .scores_of = Method::kSnapKv},
    MethodTraits{.info = {Method::kPyramidKv, "pyramidkv", "SnapKV with less for later layers"},
                 .source = ScoreSource::kPrefillAttention,
                 .scores_of = Method::kSnapKv,
                 .rule = {.pyramid_beta = kPyramidBeta, .window = kObservedWindow}},
    MethodTraits{.info = {Method::kStreamingLlm, "streaming-llm", "first and most recent tokens"},
                 .source = ScoreSource::kPlaces,
                 .scores_of = Method::kStreamingLlm,
                 .streams = true},
    MethodTraits{.info = {Method::kExpectedAttention, "expected-attention",
                          "attention expected of queries like the prefill's"},
                 .source = ScoreSource::kQueryMoments,
                 .scores_of = Method::kExpectedAttention},
    MethodTraits{.info = {Method::kKnorm, "knorm", "keys of small norm"},
                 .source = ScoreSource::kRows,
                 .scores_of = Method::kKnorm,
                 .streams = true},
    MethodTraits{.info = {Method::kRandom, "random", "chance: a baseline"},
                 .source = ScoreSource::kPlaces,
                 .scores_of = Method::kRandom,
                 .streams = true},
    sigma(Method::kSigma, "sigma", "VestigeKV's: branches (or unrotated keys) that change fast"),
    sigma(Method::kSigmaContent, "sigma-content", "the same of contents: a comparison"),
    sigma(Method::kSigmaRow, "sigma-row", "the same of whole rows: a comparison"),
    MethodTraits{.info = {Method::kHeadsDuo, "heads-duo",
                          "head scores: low heads keep first and recent tokens"},
                 .source = ScoreSource::kHeads,
                 .scores_of = Method::kHeadsDuo},
    MethodTraits{.info = {Method::kHeadsDrop, "heads-drop", "head scores: low heads keep nothing"},
                 .source = ScoreSource::kHeads,
                 .scores_of = Method::kHeadsDrop},
};

constexpr auto infos() {
  std::array<MethodInfo, kTraits.size()> all{};
  for (size_t at = 0; at < all.size(); ++at) all[at] = kTraits[at].info;
  return all;
}

constexpr auto kInfos = infos();

}  // namespace

const MethodTraits& method_traits(Method method) {
  const auto at = static_cast<size_t>(method);
  CHECK(at < kTraits.size() && kTraits[at].info.method == method);
  return kTraits[at];
}

std::span<const MethodInfo> zip_methods() { return kInfos; }

std::string_view method_name(Method method) { return method_traits(method).info.name; }

std::string_view allocation_name(Allocation allocation) {
  switch (allocation) {
    case Allocation::kGlobal:
      return "global";
    case Allocation::kLayer:
      return "layer";
    case Allocation::kUniform:
      return "uniform";
    case Allocation::kNative:
      return "native";
  }
  return "unknown";
}

}  // namespace ctxzip
