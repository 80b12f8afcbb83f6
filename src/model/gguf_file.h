// A model file: mapped, parsed by ggml's reader, and checked so that nothing later can assert.
#pragma once

#include <gguf.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "core/file.h"
#include "ggml.h"

namespace ctxzip {

struct TensorInfo {
  std::string name;
  ggml_type type = GGML_TYPE_F32;
  int64_t ne[GGML_MAX_DIMS] = {1, 1, 1, 1};  // inner to outer
  const std::byte* data = nullptr;           // inside the mapping
  size_t n_bytes = 0;
};

class GgufFile {
 public:
  // Throws Error: kNotFound, kIo, kCorruptFile (not GGUF, truncated), kUnsupported (split file).
  explicit GgufFile(const std::string& path);

  const std::string& path() const { return path_; }
  std::span<const std::byte> bytes() const { return file_.bytes(); }

  // Metadata. A present key of another type throws kCorruptFile; require_* also when absent.
  std::optional<std::string> find_string(const std::string& key) const;
  std::optional<int64_t> find_int(const std::string& key) const;
  std::optional<double> find_float(const std::string& key) const;
  std::optional<bool> find_bool(const std::string& key) const;
  // Length of an array key, 0 when absent.
  int64_t array_size(const std::string& key) const;
  std::vector<std::string> find_strings(const std::string& key) const;
  // A scalar integer or boolean gives one value; empty when absent.
  std::vector<int64_t> find_ints(const std::string& key) const;
  int64_t require_int(const std::string& key, int64_t low, int64_t high) const;
  double require_float(const std::string& key) const;
  std::string require_string(const std::string& key) const;

  const std::vector<TensorInfo>& tensors() const { return tensors_; }
  const TensorInfo* find_tensor(const std::string& name) const;

  // Hash of every metadata key that starts with `prefix`, except `without`.
  uint64_t hash_metadata(const std::string& prefix, const std::string& without) const;

 private:
  void read_tensor_table();

  std::string path_;
  MappedFile file_;
  std::unique_ptr<gguf_context, decltype(&gguf_free)> gguf_;
  std::vector<TensorInfo> tensors_;
};

}  // namespace ctxzip
