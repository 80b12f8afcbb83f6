// A model's tensors in memory: mapped from the file, or copied into ggml's faster repacked form.
#pragma once

#include <ggml-cpp.h>

#include <array>
#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include "model/gguf_file.h"
#include "model/hyperparameters.h"

namespace ctxzip {

// A tensor that an architecture's graph uses.
struct WeightSpec {
  std::string name;
  std::array<int64_t, 3>
      ne;  // inner to outer; {n, 1, 1} for vectors, {in, out, expert} for experts
  bool required = true;
  bool multiplied = false;  // the left side of a matrix product: may be repacked
  std::string source = {};  // the tensor's name in the file where it differs (tied embeddings)
  bool plain = false;       // f32 only, as all vectors: it enters element-wise operations
};

// The left side of a product in both of its forms.
struct MatrixWeight {
  ggml_tensor* best_for_one = nullptr;  // repacked where ggml has such a form, else `mapped`
  ggml_tensor* mapped = nullptr;        // as the file has it
};

// Immutable after construction; the file's mapping must outlive it.
class Weights {
 public:
  // Checks presence, shape and type of every spec. Throws Error: kCorruptFile, kUnsupported,
  // kOutOfMemory.
  Weights(const GgufFile& file, const std::vector<WeightSpec>& specs, bool repack);

  // Null for an optional tensor that the file lacks; a CHECK fails for names not among the specs.
  ggml_tensor* get(const std::string& name) const;
  MatrixWeight matrix(const std::string& name) const;

 private:
  using NamedTensors = std::vector<std::pair<std::string, const TensorInfo*>>;
  void map(const GgufFile& file, const NamedTensors& tensors,
           std::unordered_map<std::string, ggml_tensor*>& to);
  void repack(const NamedTensors& tensors, ggml_backend_buffer_type_t type);

  std::unordered_map<std::string, ggml_tensor*> tensors_;
  std::unordered_map<std::string, ggml_tensor*> mapped_;  // of those that were repacked
  std::vector<ggml_context_ptr> contexts_;
  std::vector<ggml_backend_buffer_ptr> buffers_;
};

}  // namespace ctxzip
