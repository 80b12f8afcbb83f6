#include "engine/sampler.h"

#include <algorithm>
#include <cmath>

#include "core/fail.h"

namespace ctxzip {
namespace {

void check(const SamplingOptions& options) {
  const auto within = [](double value, double low, double high, const char* name) {
    if (!(value >= low && value <= high)) {
      fail(ErrorKind::kInvalidArgument, "{} is {}: expected {} to {}", name, value, low, high);
    }
  };
  within(options.temperature, 0, 100, "temperature");
  within(options.top_p, 0, 1, "top-p");
  within(options.min_p, 0, 1, "min-p");
  within(options.top_k, 0, 1e9, "top-k");
}

}  // namespace

Sampler::Sampler(const SamplingOptions& options) {
  check(options);
  if (options.temperature == 0) return;
  chain_.reset(llama_sampler_chain_init(llama_sampler_chain_default_params()));
  const auto add = [&](llama_sampler* sampler) { llama_sampler_chain_add(chain_.get(), sampler); };
  if (options.top_k > 0) add(llama_sampler_init_top_k(options.top_k));
  if (options.top_p < 1) add(llama_sampler_init_top_p(static_cast<float>(options.top_p), 1));
  if (options.min_p > 0) add(llama_sampler_init_min_p(static_cast<float>(options.min_p), 1));
  add(llama_sampler_init_temp(static_cast<float>(options.temperature)));
  add(llama_sampler_init_dist(options.seed));
}

Token Sampler::pick(std::span<const float> logits) {
  if (!chain_)
    return static_cast<Token>(std::max_element(logits.begin(), logits.end()) - logits.begin());
  candidates_.resize(logits.size());
  for (size_t id = 0; id < logits.size(); ++id)
    candidates_[id] = {static_cast<llama_token>(id), logits[id], 0};
  llama_token_data_array array = {candidates_.data(), candidates_.size(), -1, false};
  llama_sampler_apply(chain_.get(), &array);
  CHECK(array.selected >= 0 && static_cast<size_t>(array.selected) < array.size);
  return array.data[array.selected].id;
}

}  // namespace ctxzip
