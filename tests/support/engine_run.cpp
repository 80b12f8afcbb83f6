#include "support/engine_run.h"

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <numeric>
#include <random>

namespace ctxzip::test {

TailRun::TailRun(const Model& model, const SegmentTable& past, int64_t first_position,
                 int64_t capacity)
    : model_(model),
      first_position_(first_position),
      start_(past.states() != nullptr ? *past.states() : first_states(*model.state())),
      tail_(model.state()->hp.layers, global_shape(*model.state()), local_shape(*model.state()),
            start_, capacity),
      attention_(attention_setup(*model.state()), past, static_cast<int>(past.size()), nullptr),
      runner_(*model.state()) {}

std::vector<float> TailRun::feed(std::span<const Token> tokens, int64_t batch) {
  std::vector<float> logits;
  while (!tokens.empty()) {
    const size_t n = std::min(tokens.size(), static_cast<size_t>(batch));
    std::vector<int32_t> rows(n);
    std::iota(rows.begin(), rows.end(), 0);
    const int64_t first = tail_.n_rows();
    const AppendTarget target = {.global = {&tail_.global(), first},
                                 .local = {&tail_.local(), first},
                                 .states = {&tail_.states().now(), &tail_.states().next()}};
    attention_.set_targets({&target, 1});
    const auto part = runner_.run({tokens.first(n), first_position_ + tail_.n_rows(), rows},
                                  attention_, attention_.own_row_capacity(), {});
    logits.insert(logits.end(), part.begin(), part.end());
    tail_.extend(static_cast<int64_t>(n));
    tokens = tokens.subspan(n);
  }
  return logits;
}

std::vector<Token> random_tokens(int64_t n, int64_t n_vocab, uint32_t seed) {
  std::mt19937 random(seed);
  std::vector<Token> tokens(static_cast<size_t>(n));
  for (Token& token : tokens) token = static_cast<Token>(random() % static_cast<uint64_t>(n_vocab));
  return tokens;
}

std::string model_path(const std::string& file) {
  const auto env = [](const char* name) { return std::getenv(name); };
  std::filesystem::path cache;
  if (env("CTXZIP_CACHE") != nullptr) {
    cache = env("CTXZIP_CACHE");
  } else if (env("XDG_CACHE_HOME") != nullptr) {
    cache = std::filesystem::path(env("XDG_CACHE_HOME")) / "ctxzip";
  } else if (env("HOME") != nullptr) {
    cache = std::filesystem::path(env("HOME")) / ".cache" / "ctxzip";
  }
  return (cache / "models" / file).string();
}

bool model_present(const std::string& file) { return std::filesystem::exists(model_path(file)); }

std::string data_path(const std::string& file) {
  return std::string(CTXZIP_TEST_DATA) + "/" + file;
}

}  // namespace ctxzip::test
