// Driving the engine with token ids, as the command line never needs to.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "attention/segment_table.h"
#include "cache/tail.h"
#include "engine/graph_runner.h"
#include "engine/zipper.h"
#include "model/model_state.h"

namespace ctxzip::test {

// A growing cache after fixed earlier rows, as a session has it.
class TailRun {
 public:
  // `past` may be empty; positions start at `first_position`.
  TailRun(const Model& model, const SegmentTable& past, int64_t first_position,
          int64_t capacity = 8192);

  // Appends in batches; logits of all tokens.
  std::vector<float> feed(std::span<const Token> tokens, int64_t batch);

  Tail& tail() { return tail_; }

 private:
  Model model_;
  int64_t first_position_;
  RecurrentStates start_;
  Tail tail_;
  CacheAttention attention_;
  GraphRunner runner_;
};

std::vector<Token> random_tokens(int64_t n, int64_t n_vocab, uint32_t seed);

// Installed models; a test that needs one and does not find it skips itself with this message.
std::string model_path(const std::string& file);  // in the product's cache folder
bool model_present(const std::string& file);
std::string data_path(const std::string& file);  // tests/data

constexpr const char* kSmolLm2 = "smollm2-135m-instruct-q4_1.gguf";

}  // namespace ctxzip::test

#define CTXZIP_NEEDS_MODEL(file)                                                  \
  if (!::ctxzip::test::model_present(file)) {                                     \
    GTEST_SKIP() << "model " << (file)                                            \
                 << " is not installed (ctxzip model fetch); this test needs it"; \
  }                                                                               \
  static_assert(true)
