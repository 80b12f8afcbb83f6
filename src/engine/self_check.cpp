#include "engine/self_check.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "core/fail.h"
#include "engine/passes.h"
#include "engine/prompts.h"

namespace ctxzip {
namespace {

constexpr int64_t kTokensPerPlace = 512;
constexpr int64_t kMaxPlaces = 4;
constexpr int64_t kShortestSentence = 8;

Probe repeat_probe(const RepeatPrompts& prompts, const std::vector<Token>& context, int64_t begin) {
  const int64_t end = std::min(static_cast<int64_t>(context.size()), begin + kProbeTokens);
  ReconstructionPass pass = reconstruction_pass(prompts, context, begin, end);
  return {.input = std::move(pass.input), .first_scored = pass.n_prompt, .end = end};
}

bool ends_sentence(const std::string& piece) {
  return !piece.empty() && (piece.ends_with('.') || piece.ends_with('!') || piece.ends_with('?') ||
                            piece.ends_with('\n'));
}

// The first whole sentence of a fit length after `from`, its second half to be predicted.
std::optional<Probe> cloze_probe(const Tokenizer& tokenizer, const PromptLayout& layout,
                                 const std::vector<Token>& context, int64_t from) {
  const int64_t n_context = static_cast<int64_t>(context.size());
  int64_t start = -1;
  for (int64_t at = from; at < n_context; ++at) {
    if (!ends_sentence(tokenizer.piece(context[static_cast<size_t>(at)]))) continue;
    const int64_t length = at + 1 - start;
    if (start >= 0 && length >= kShortestSentence && length <= kProbeTokens) {
      const auto middle = context.begin() + start + length / 2;
      Probe probe{.input = cloze_prompt(tokenizer), .first_scored = 0, .end = at + 1};
      probe.input.insert(probe.input.end(), context.begin() + start, middle);
      probe.input.insert(probe.input.end(), layout.turn.begin(), layout.turn.end());
      probe.first_scored = static_cast<int64_t>(probe.input.size());
      probe.input.insert(probe.input.end(), middle, context.begin() + at + 1);
      return probe;
    }
    start = at + 1;
  }
  return std::nullopt;
}

}  // namespace

double token_nll(std::span<const float> logits, Token token) {
  const float top = *std::max_element(logits.begin(), logits.end());
  double sum = 0;
  for (const float logit : logits) sum += std::exp(static_cast<double>(logit - top));
  return std::log(sum) - static_cast<double>(logits[static_cast<size_t>(token)] - top);
}

int64_t SelfCheckProbes::tokens() const {
  int64_t n = 0;
  for (const auto* probes : {&reconstruction, &held_out}) {
    for (const Probe& probe : *probes) n += static_cast<int64_t>(probe.input.size());
  }
  return n;
}

SelfCheckProbes self_check_probes(const Tokenizer& tokenizer, const PromptLayout& layout,
                                  const std::vector<Token>& context) {
  const int64_t n_context = static_cast<int64_t>(context.size());
  const int64_t n_places = std::clamp<int64_t>(n_context / kTokensPerPlace, 1, kMaxPlaces);
  const RepeatPrompts prompts = repeat_prompts(tokenizer, layout);
  const RepeatPrompts others = paraphrased_prompts(tokenizer, layout);
  SelfCheckProbes probes;
  for (int64_t place = 0; place < n_places; ++place) {
    const int64_t begin = place * n_context / n_places;
    const int64_t shifted = begin + n_context / n_places / 2;
    probes.reconstruction.push_back(repeat_probe(prompts, context, begin));
    probes.held_out.push_back(repeat_probe(others, context, shifted));
    if (!tokenizer.has_text()) continue;
    if (auto cloze = cloze_probe(tokenizer, layout, context, shifted))
      probes.held_out.push_back(std::move(*cloze));
  }
  return probes;
}

NllSum sum_nll(const detail::ModelState& model, GraphRunner& runner, const SegmentTable& past,
               int64_t first_position, std::span<const Probe> probes, const CancelToken* cancel) {
  const size_t n_vocab = static_cast<size_t>(model.hp.n_vocab);
  NllSum sum;
  for (const Probe& probe : probes) {
    // Token t is predicted by the logits of token t - 1.
    const int64_t first = std::max<int64_t>(1, probe.first_scored);
    std::vector<int32_t> rows(probe.input.size() - static_cast<size_t>(first));
    if (rows.empty()) continue;
    std::iota(rows.begin(), rows.end(), static_cast<int32_t>(first - 1));
    const auto logits = run_pass(model, runner, past, static_cast<int>(past.size()), nullptr,
                                 {probe.input, first_position, rows}, {.cancel = cancel});
    for (size_t row = 0; row < rows.size(); ++row) {
      const Token next = probe.input[static_cast<size_t>(first) + row];
      sum.nats += token_nll(logits.subspan(row * n_vocab, n_vocab), next);
    }
    sum.n_tokens += static_cast<int64_t>(rows.size());
  }
  return sum;
}

SelfCheck run_self_check(const detail::ModelState& model, GraphRunner& runner,
                         const SegmentTable& past, int64_t first_position,
                         const SelfCheckProbes& probes, const CancelToken* cancel) {
  const auto mean = [&](const std::vector<Probe>& list) {
    return sum_nll(model, runner, past, first_position, list, cancel).mean();
  };
  return {.reconstruction = mean(probes.reconstruction), .held_out = mean(probes.held_out)};
}

}  // namespace ctxzip
