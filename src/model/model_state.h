// Everything a loaded model consists of.
#pragma once

#include "ctxzip/model.h"
#include "model/architecture.h"
#include "model/fingerprint.h"
#include "model/gguf_file.h"
#include "model/hyperparameters.h"
#include "model/tokenizer.h"
#include "model/weights.h"

namespace ctxzip {

ModelFingerprint fingerprint(const GgufFile& file, const Hyperparameters& hp);

namespace detail {

// Immutable; shared by contexts and sessions.
struct ModelState {
  ModelState(const std::string& path, const ModelOptions& options);

  GgufFile file;
  const Architecture& architecture;
  Hyperparameters hp;
  Tokenizer tokenizer;
  Weights weights;
  ModelFingerprint fingerprint;
  ModelOptions options;  // n_threads resolved
  ModelInfo info;
};

}  // namespace detail
}  // namespace ctxzip
