// The oracle: logits of the same file from libllama, in the same process.
#pragma once

#include <llama-cpp.h>

#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace ctxzip::test {

struct LibllamaOptions {
  bool f32_cache = true;
  int n_threads = 2;
  int64_t n_ctx = 4096;
  bool flash_attention = false;
};

class Libllama {
 public:
  Libllama(const std::string& path, const LibllamaOptions& options);

  // Appends tokens in batches of `batch`; logits of all of them, (n_tokens, n_vocab).
  std::vector<float> feed(std::span<const int32_t> tokens, int64_t batch);
  // Without logits, except of the last token.
  std::vector<float> feed_last(std::span<const int32_t> tokens, int64_t batch);
  void truncate(int64_t n_tokens);

  int64_t n_vocab() const;

 private:
  std::vector<float> run(std::span<const int32_t> tokens, int64_t batch, bool all);

  llama_model_ptr model_;
  llama_context_ptr context_;
  int64_t n_past_ = 0;
};

}  // namespace ctxzip::test
