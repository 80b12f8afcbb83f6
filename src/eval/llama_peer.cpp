#include "eval/llama_peer.h"

#include <algorithm>

#include "core/fail.h"
#include "core/log.h"
#include "eval/repeated_rows.h"

namespace ctxzip::eval {

LlamaPeer::LlamaPeer(const std::string& path, const LlamaPeerOptions& options) {
  capture_backend_logs();
  model_.reset(llama_model_load_from_file(path.c_str(), llama_model_default_params()));
  if (!model_) fail(ErrorKind::kCorruptFile, "{}: libllama cannot load it", path);
  llama_context_params params = llama_context_default_params();
  params.n_ctx = static_cast<uint32_t>(options.n_ctx);
  params.n_batch = params.n_ubatch = 512;
  params.n_threads = params.n_threads_batch = options.n_threads;
  params.flash_attn_type =
      options.flash_attention ? LLAMA_FLASH_ATTN_TYPE_ENABLED : LLAMA_FLASH_ATTN_TYPE_DISABLED;
  params.type_k = params.type_v = options.cache_type;
  context_.reset(llama_init_from_model(model_.get(), params));
  if (!context_) {
    fail(ErrorKind::kOutOfMemory, "{}: libllama has no memory for {} tokens", path, options.n_ctx);
  }
}

int64_t LlamaPeer::n_vocab() const {
  return llama_vocab_n_tokens(llama_model_get_vocab(model_.get()));
}

std::vector<float> LlamaPeer::run(std::span<const int32_t> tokens, int64_t batch_size, bool all) {
  std::vector<float> logits;
  for (size_t first = 0; first < tokens.size(); first += static_cast<size_t>(batch_size)) {
    const size_t n = std::min(static_cast<size_t>(batch_size), tokens.size() - first);
    llama_batch batch = llama_batch_init(static_cast<int32_t>(n), 0, 1);
    batch.n_tokens = static_cast<int32_t>(n);
    for (size_t at = 0; at < n; ++at) {
      batch.token[at] = tokens[first + at];
      batch.pos[at] = static_cast<int32_t>(n_past_ + static_cast<int64_t>(at));
      batch.n_seq_id[at] = 1;
      batch.seq_id[at][0] = 0;
      batch.logits[at] = all || first + at + 1 == tokens.size();
    }
    const int32_t status = llama_decode(context_.get(), batch);
    if (status != 0) {
      llama_batch_free(batch);
      fail(ErrorKind::kOutOfMemory, "libllama cannot decode {} tokens after {} (status {})", n,
           n_past_, status);
    }
    for (size_t at = 0; at < n; ++at) {
      if (batch.logits[at] == 0) continue;
      const float* row = llama_get_logits_ith(context_.get(), static_cast<int32_t>(at));
      logits.insert(logits.end(), row, row + n_vocab());
    }
    llama_batch_free(batch);
    n_past_ += static_cast<int64_t>(n);
  }
  return logits;
}

std::vector<float> LlamaPeer::feed(std::span<const int32_t> tokens, int64_t batch) {
  return run(tokens, batch, true);
}

std::vector<float> LlamaPeer::feed_last(std::span<const int32_t> tokens, int64_t batch) {
  return run(tokens, batch, false);
}

void LlamaPeer::truncate(int64_t n_tokens) {
  if (!llama_memory_seq_rm(llama_get_memory(context_.get()), 0, static_cast<int32_t>(n_tokens),
                           -1)) {
    fail(ErrorKind::kUnsupported,
         "libllama cannot go back to token {} with a recurrent model: measure without it "
         "(--no-llama)",
         n_tokens);
  }
  n_past_ = n_tokens;
}

void LlamaPeer::repeat_rows(int64_t n_tokens) {
  std::vector<std::byte> state(llama_state_seq_get_size(context_.get(), 0));
  llama_state_seq_get_data(context_.get(), reinterpret_cast<uint8_t*>(state.data()), state.size(),
                           0);
  state = repeated_llama_state(state, n_tokens);
  const size_t taken = llama_state_seq_set_data(
      context_.get(), reinterpret_cast<const uint8_t*>(state.data()), state.size(), 0);
  if (taken != state.size()) {
    fail(ErrorKind::kUnsupported, "libllama does not take a state of {} repeated rows", n_tokens);
  }
  n_past_ = n_tokens;
}

}  // namespace ctxzip::eval
