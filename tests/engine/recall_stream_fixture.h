// A stream of a tiny model, its text and what comes after.
#pragma once

#include <gtest/gtest.h>

#include <span>
#include <vector>

#include "engine/recall_stream.h"
#include "support/engine_run.h"
#include "support/tiny_model.h"

namespace ctxzip::test {

constexpr int64_t kVocab = 256;
constexpr int64_t kBlock = 256;

// One thread: on a busy machine several wait for each other.
inline Model tiny(int n_threads = 1, bool f32_rows = true) {
  const std::string path = temp_path("stream.gguf");
  write_tiny_model({.architecture = "kimi-linear", .n_expert = 0, .kinds = "rgrg", .spread = 2.5f},
                   path);
  return Model::load(path, {.n_threads = n_threads, .f32_rows = f32_rows});
}

inline StreamOptions small_blocks() {
  StreamOptions options;
  options.policy.block_rows = kBlock;
  options.policy.keep_ratio = 1.0 / 16;
  options.batch_tokens = 128;
  return options;
}

inline std::vector<float> floats(std::span<const float> logits) {
  return {logits.begin(), logits.end()};
}

inline std::vector<float> decode_all(RecallStream& stream, const std::vector<Token>& tokens) {
  std::vector<float> all;
  for (const Token token : tokens) {
    const auto logits = stream.decode(token);
    all.insert(all.end(), logits.begin(), logits.end());
  }
  return all;
}

class RecallStreamTest : public testing::Test {
 protected:
  const Model model_ = tiny();
  const std::vector<Token> text_ = random_tokens(1000, kVocab, 5);
  const std::vector<Token> more_ = random_tokens(40, kVocab, 6);
};

}  // namespace ctxzip::test
