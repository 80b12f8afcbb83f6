// A GGUF model: weights, tokenizer and chat template.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "ctxzip/export.h"
#include "ctxzip/progress.h"

namespace ctxzip {

using Token = int32_t;

struct ModelOptions {
  int n_threads = 0;   // 0: one for each core the process may use
  bool repack = true;  // copy matrices that have a faster repacked form; false: map everything
  // Row type of prefill and tail caches. kF32 exists for exactness tests.
  bool f32_rows = false;
};

// What a person wants to know of a model; counts are per model, bytes are for f16 rows.
struct ModelInfo {
  std::string path;          // as given
  std::string architecture;  // "llama", "gemma3", ...
  std::string name;          // general.name, or the file's name
  int64_t n_layer = 0;
  int64_t n_local_layer = 0;      // of these: with a sliding window, never evicted
  int64_t n_recurrent_layer = 0;  // of these: with a state of fixed size and no rows
  int64_t window = 0;             // tokens that those see; 0 without them
  int64_t n_embd = 0;
  int64_t n_head = 0;
  int64_t n_kv_head = 0;
  int64_t head_dim = 0;
  int64_t n_vocab = 0;
  int64_t n_ctx_train = 0;
  int64_t n_parameters = 0;
  int64_t file_bytes = 0;
  int64_t kv_bytes_per_token = 0;  // of the layers without a window
  int64_t kv_bytes_window = 0;     // of the others, once their windows are full
  int64_t state_bytes = 0;         // of recurrent layers, whatever the length
  bool has_chat_template = false;
  std::string weight_types;  // for example "q4_1 + q6_K + f32"
  std::string fingerprint;   // 16 hex digits
};

namespace detail {
struct ModelState;
}

// Immutable after load and shared by value (a handle); safe to use from several threads, computing
// is serialised by one lock per process.
class CTXZIP_API Model {
 public:
  // Throws Error: kNotFound, kIo, kCorruptFile, kUnsupported (each names the file and field).
  static Model load(const std::string& path, const ModelOptions& options = {});

  const ModelInfo& info() const;

  // Plain text to ids: control tokens inside `text` stay text, no start token is added.
  std::vector<Token> tokenize(std::string_view text) const;
  // Ids to text; the result may end inside a UTF-8 sequence if the ids do.
  std::string detokenize(const std::vector<Token>& tokens) const;

  const std::shared_ptr<const detail::ModelState>& state() const { return state_; }

 private:
  explicit Model(std::shared_ptr<const detail::ModelState> state) : state_(std::move(state)) {}
  std::shared_ptr<const detail::ModelState> state_;
};

}  // namespace ctxzip
