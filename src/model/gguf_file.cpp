#include "model/gguf_file.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "core/fail.h"
#include "core/hash.h"
#include "core/log.h"

namespace ctxzip {
namespace {

constexpr size_t kTensorAlignment = 32;  // what ggml's CPU kernels expect of mapped weights

gguf_context* parse(const std::string& path, std::span<const std::byte> bytes) {
  capture_backend_logs();
  if (bytes.size() < 24) {
    fail(ErrorKind::kCorruptFile, "{}: {} bytes are too few for a GGUF model", path, bytes.size());
  }
  if (std::memcmp(bytes.data(), "GGUF", 4) != 0) {
    fail(ErrorKind::kCorruptFile,
         "{}: not a GGUF file (it does not start with 'GGUF'); a model in GGUF format is needed",
         path);
  }
  gguf_context* gguf = gguf_init_from_file(path.c_str(), {.no_alloc = true, .ctx = nullptr});
  if (gguf == nullptr) {
    fail(ErrorKind::kCorruptFile,
         "{}: its GGUF header is damaged or of an unknown version; fetch the file again", path);
  }
  return gguf;
}

}  // namespace

GgufFile::GgufFile(const std::string& path)
    : path_(path), file_(path), gguf_(parse(path, file_.bytes()), &gguf_free) {
  if (const auto n = find_int("split.count"); n.value_or(1) > 1) {
    fail(ErrorKind::kUnsupported,
         "{}: part of a model split over {} files; merge it first (llama-gguf-split --merge)",
         path_, *n);
  }
  read_tensor_table();
}

void GgufFile::read_tensor_table() {
  const size_t data_offset = gguf_get_data_offset(gguf_.get());
  const size_t file_size = file_.bytes().size();
  for (int64_t id = 0; id < gguf_get_n_tensors(gguf_.get()); ++id) {
    TensorInfo tensor;
    tensor.name = gguf_get_tensor_name(gguf_.get(), id);
    tensor.type = gguf_get_tensor_type(gguf_.get(), id);
    std::copy_n(gguf_get_tensor_ne(gguf_.get(), id), GGML_MAX_DIMS, tensor.ne);
    tensor.n_bytes = gguf_get_tensor_size(gguf_.get(), id);
    const size_t offset = gguf_get_tensor_offset(gguf_.get(), id);
    if (data_offset > file_size || offset > file_size - data_offset ||
        tensor.n_bytes > file_size - data_offset - offset) {
      fail(ErrorKind::kCorruptFile,
           "{}: tensor '{}' reaches past the end of the file ({} bytes); the file is truncated, "
           "fetch it again",
           path_, tensor.name, file_size);
    }
    if ((data_offset + offset) % kTensorAlignment != 0) {
      fail(ErrorKind::kUnsupported, "{}: tensor '{}' is not aligned to {} bytes", path_,
           tensor.name, kTensorAlignment);
    }
    tensor.data = file_.bytes().data() + data_offset + offset;
    tensors_.push_back(std::move(tensor));
  }
}

std::optional<std::string> GgufFile::find_string(const std::string& key) const {
  const int64_t id = gguf_find_key(gguf_.get(), key.c_str());
  if (id < 0) return std::nullopt;
  if (gguf_get_kv_type(gguf_.get(), id) != GGUF_TYPE_STRING) {
    fail(ErrorKind::kCorruptFile, "{}: metadata '{}' is not a string", path_, key);
  }
  return gguf_get_val_str(gguf_.get(), id);
}

std::optional<int64_t> GgufFile::find_int(const std::string& key) const {
  const int64_t id = gguf_find_key(gguf_.get(), key.c_str());
  if (id < 0) return std::nullopt;
  const gguf_context* gguf = gguf_.get();
  switch (gguf_get_kv_type(gguf, id)) {
    case GGUF_TYPE_UINT8:
      return gguf_get_val_u8(gguf, id);
    case GGUF_TYPE_INT8:
      return gguf_get_val_i8(gguf, id);
    case GGUF_TYPE_UINT16:
      return gguf_get_val_u16(gguf, id);
    case GGUF_TYPE_INT16:
      return gguf_get_val_i16(gguf, id);
    case GGUF_TYPE_UINT32:
      return gguf_get_val_u32(gguf, id);
    case GGUF_TYPE_INT32:
      return gguf_get_val_i32(gguf, id);
    case GGUF_TYPE_INT64:
      return gguf_get_val_i64(gguf, id);
    case GGUF_TYPE_UINT64: {
      const uint64_t value = gguf_get_val_u64(gguf, id);
      if (value <= INT64_MAX) return static_cast<int64_t>(value);
      break;
    }
    default:
      break;
  }
  fail(ErrorKind::kCorruptFile, "{}: metadata '{}' is not an integer in range", path_, key);
}

std::optional<double> GgufFile::find_float(const std::string& key) const {
  const int64_t id = gguf_find_key(gguf_.get(), key.c_str());
  if (id < 0) return std::nullopt;
  double value = NAN;
  switch (gguf_get_kv_type(gguf_.get(), id)) {
    case GGUF_TYPE_FLOAT32:
      value = gguf_get_val_f32(gguf_.get(), id);
      break;
    case GGUF_TYPE_FLOAT64:
      value = gguf_get_val_f64(gguf_.get(), id);
      break;
    default:
      break;
  }
  if (!std::isfinite(value)) {
    fail(ErrorKind::kCorruptFile, "{}: metadata '{}' is not a finite number", path_, key);
  }
  return value;
}

std::optional<bool> GgufFile::find_bool(const std::string& key) const {
  const int64_t id = gguf_find_key(gguf_.get(), key.c_str());
  if (id < 0) return std::nullopt;
  if (gguf_get_kv_type(gguf_.get(), id) != GGUF_TYPE_BOOL) {
    fail(ErrorKind::kCorruptFile, "{}: metadata '{}' is not a boolean", path_, key);
  }
  return gguf_get_val_bool(gguf_.get(), id);
}

int64_t GgufFile::array_size(const std::string& key) const {
  const int64_t id = gguf_find_key(gguf_.get(), key.c_str());
  if (id < 0) return 0;
  if (gguf_get_kv_type(gguf_.get(), id) != GGUF_TYPE_ARRAY) {
    fail(ErrorKind::kCorruptFile, "{}: metadata '{}' is not an array", path_, key);
  }
  return static_cast<int64_t>(gguf_get_arr_n(gguf_.get(), id));
}

std::vector<std::string> GgufFile::find_strings(const std::string& key) const {
  const int64_t n = array_size(key);
  if (n == 0) return {};
  const int64_t id = gguf_find_key(gguf_.get(), key.c_str());
  if (gguf_get_arr_type(gguf_.get(), id) != GGUF_TYPE_STRING) {
    fail(ErrorKind::kCorruptFile, "{}: metadata '{}' is not an array of strings", path_, key);
  }
  std::vector<std::string> strings;
  strings.reserve(static_cast<size_t>(n));
  for (int64_t item = 0; item < n; ++item) {
    strings.emplace_back(gguf_get_arr_str(gguf_.get(), id, static_cast<size_t>(item)));
  }
  return strings;
}

std::vector<int64_t> GgufFile::find_ints(const std::string& key) const {
  const gguf_context* gguf = gguf_.get();
  const int64_t id = gguf_find_key(gguf, key.c_str());
  if (id < 0) return {};
  if (gguf_get_kv_type(gguf, id) != GGUF_TYPE_ARRAY) return {find_int(key).value()};
  const void* data = gguf_get_arr_data(gguf, id);
  const size_t n = gguf_get_arr_n(gguf, id);
  const auto widen = [&](const auto* values) { return std::vector<int64_t>(values, values + n); };
  switch (gguf_get_arr_type(gguf, id)) {
    case GGUF_TYPE_BOOL:
    case GGUF_TYPE_INT8:
      return widen(static_cast<const int8_t*>(data));
    case GGUF_TYPE_INT32:
      return widen(static_cast<const int32_t*>(data));
    case GGUF_TYPE_UINT32:
      return widen(static_cast<const uint32_t*>(data));
    default:
      fail(ErrorKind::kCorruptFile, "{}: metadata '{}' is not an array of integers", path_, key);
  }
}

int64_t GgufFile::require_int(const std::string& key, int64_t low, int64_t high) const {
  const auto value = find_int(key);
  if (!value) fail(ErrorKind::kCorruptFile, "{}: metadata '{}' is missing", path_, key);
  if (*value < low || *value > high) {
    fail(ErrorKind::kCorruptFile, "{}: metadata '{}' is {}, expected {} to {}", path_, key, *value,
         low, high);
  }
  return *value;
}

double GgufFile::require_float(const std::string& key) const {
  const auto value = find_float(key);
  if (!value) fail(ErrorKind::kCorruptFile, "{}: metadata '{}' is missing", path_, key);
  return *value;
}

std::string GgufFile::require_string(const std::string& key) const {
  const auto value = find_string(key);
  if (!value) fail(ErrorKind::kCorruptFile, "{}: metadata '{}' is missing", path_, key);
  return *value;
}

const TensorInfo* GgufFile::find_tensor(const std::string& name) const {
  for (const TensorInfo& tensor : tensors_) {
    if (tensor.name == name) return &tensor;
  }
  return nullptr;
}

namespace {

size_t value_bytes(gguf_type type) {
  switch (type) {
    case GGUF_TYPE_UINT8:
    case GGUF_TYPE_INT8:
    case GGUF_TYPE_BOOL:
      return 1;
    case GGUF_TYPE_UINT16:
    case GGUF_TYPE_INT16:
      return 2;
    case GGUF_TYPE_UINT32:
    case GGUF_TYPE_INT32:
    case GGUF_TYPE_FLOAT32:
      return 4;
    case GGUF_TYPE_UINT64:
    case GGUF_TYPE_INT64:
    case GGUF_TYPE_FLOAT64:
      return 8;
    default:
      return 0;
  }
}

void hash_value(Hasher64& hasher, const gguf_context* gguf, int64_t id) {
  const gguf_type type = gguf_get_kv_type(gguf, id);
  hasher.update_value(static_cast<int32_t>(type));
  if (type == GGUF_TYPE_STRING) {
    const char* text = gguf_get_val_str(gguf, id);
    hasher.update(std::as_bytes(std::span(text, std::strlen(text))));
  } else if (type != GGUF_TYPE_ARRAY) {
    hasher.update({static_cast<const std::byte*>(gguf_get_val_data(gguf, id)), value_bytes(type)});
  } else if (gguf_get_arr_type(gguf, id) == GGUF_TYPE_STRING) {
    for (size_t item = 0; item < gguf_get_arr_n(gguf, id); ++item) {
      const char* text = gguf_get_arr_str(gguf, id, item);
      hasher.update(std::as_bytes(std::span(text, std::strlen(text) + 1)));
    }
  } else {
    hasher.update({static_cast<const std::byte*>(gguf_get_arr_data(gguf, id)),
                   value_bytes(gguf_get_arr_type(gguf, id)) * gguf_get_arr_n(gguf, id)});
  }
}

}  // namespace

uint64_t GgufFile::hash_metadata(const std::string& prefix, const std::string& without) const {
  std::vector<std::pair<std::string, int64_t>> keys;
  for (int64_t id = 0; id < gguf_get_n_kv(gguf_.get()); ++id) {
    std::string key = gguf_get_key(gguf_.get(), id);
    if (key.starts_with(prefix) && key != without) keys.emplace_back(std::move(key), id);
  }
  std::sort(keys.begin(), keys.end());
  Hasher64 hasher;
  for (const auto& [key, id] : keys) {
    hasher.update(std::as_bytes(std::span(key.data(), key.size() + 1)));
    hash_value(hasher, gguf_.get(), id);
  }
  return hasher.digest();
}

}  // namespace ctxzip
