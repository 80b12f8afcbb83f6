// llama.cpp on the same model in the same process: the oracle of parity tests and the peer of speed
// measurements.
#pragma once

#include <llama-cpp.h>

#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace ctxzip::eval {

struct LlamaPeerOptions {
  ggml_type cache_type = GGML_TYPE_F32;  // of K and V
  int n_threads = 2;
  int64_t n_ctx = 4096;
  bool flash_attention = false;
};

// One sequence that grows. Throws Error: kCorruptFile (libllama cannot load the model),
// kOutOfMemory.
class LlamaPeer {
 public:
  LlamaPeer(const std::string& path, const LlamaPeerOptions& options);

  // Appends tokens in batches of `batch`; logits of all of them, (n_tokens, n_vocab).
  std::vector<float> feed(std::span<const int32_t> tokens, int64_t batch);
  // Without logits, except of the last token.
  std::vector<float> feed_last(std::span<const int32_t> tokens, int64_t batch);
  // Throws Error{kUnsupported} where libllama keeps states that it cannot unwind.
  void truncate(int64_t n_tokens);
  // Goes on as if n_tokens had been fed: their rows are those fed so far, in turn. For measuring
  // speed. Throws Error{kUnsupported} as repeated_llama_state.
  void repeat_rows(int64_t n_tokens);

  int64_t n_vocab() const;

 private:
  std::vector<float> run(std::span<const int32_t> tokens, int64_t batch, bool all);

  llama_model_ptr model_;
  llama_context_ptr context_;
  int64_t n_past_ = 0;
};

}  // namespace ctxzip::eval
