#include "raw_gguf.h"

#include <algorithm>
#include <stdexcept>

#include "format/gguf_reader.h"
#include "reseal.h"

namespace ctxzip {
namespace {

class Builder {
 public:
  template <typename T>
  void value(T value) {
    append(std::as_bytes(std::span(&value, 1)));
  }
  void append(std::span<const std::byte> bytes) {
    bytes_.insert(bytes_.end(), bytes.begin(), bytes.end());
  }
  void string(const std::string& text) {
    value(uint64_t{text.size()});
    append(std::as_bytes(std::span(text)));
  }
  void pad() { bytes_.resize((bytes_.size() + 31) / 32 * 32); }
  std::vector<std::byte> take() { return std::move(bytes_); }

 private:
  std::vector<std::byte> bytes_;
};

}  // namespace

RawGguf::RawGguf(std::span<const std::byte> bytes) {
  const GgufContents file = parse_gguf(bytes, "sample");
  for (const GgufEntry& entry : file.entries) {
    RawKey& raw = keys.emplace_back();
    raw.name = entry.key;
    raw.type = static_cast<uint32_t>(entry.type);
    Builder payload;
    if (entry.type == GgufType::kArray) payload.value(entry.item_type);
    if (entry.type == GgufType::kArray) payload.value(entry.n_items);
    if (entry.type == GgufType::kString) payload.value(uint64_t{entry.payload.size()});
    payload.append(entry.payload);
    raw.payload = payload.take();
  }
  for (const GgufTensor& tensor : file.tensors) {
    std::vector<uint64_t> ne(tensor.ne.begin(), tensor.ne.end());
    while (ne.size() > 1 && ne.back() == 1) ne.pop_back();
    tensors.push_back(
        {std::string(tensor.name), std::move(ne), tensor.type, tensor.offset, std::nullopt});
  }
  const auto rest = bytes.subspan(file.data_offset);
  data.assign(rest.begin(), rest.end());
}

std::vector<std::byte> RawGguf::build() const {
  Builder file;
  file.append(std::as_bytes(std::span(magic)));
  file.value(version);
  file.value(n_tensors.value_or(tensors.size()));
  file.value(n_keys.value_or(keys.size()));
  for (const RawKey& raw : keys) {
    file.string(raw.name);
    file.value(raw.type);
    file.append(raw.payload);
  }
  for (const RawTensor& tensor : tensors) {
    file.string(tensor.name);
    file.value(tensor.n_dims.value_or(static_cast<uint32_t>(tensor.ne.size())));
    for (const uint64_t dim : tensor.ne) file.value(dim);
    file.value(tensor.type);
    file.value(tensor.offset);
  }
  file.pad();
  file.append(data);
  std::vector<std::byte> bytes = file.take();
  reseal(bytes);
  return bytes;
}

RawKey& RawGguf::key(const std::string& name) {
  const auto found =
      std::find_if(keys.begin(), keys.end(), [&](const RawKey& raw) { return raw.name == name; });
  if (found == keys.end()) throw std::logic_error("no key " + name);
  return *found;
}

RawKey& RawGguf::find_or_add(const std::string& name) {
  for (RawKey& raw : keys) {
    if (raw.name == name) return raw;
  }
  keys.push_back({name, 0, {}});
  return keys.back();
}

void RawGguf::erase(const std::string& name) {
  std::erase_if(keys, [&](const RawKey& raw) { return raw.name == name; });
}

void RawGguf::set_string(const std::string& name, const std::string& value) {
  RawKey& changed = find_or_add(name);
  changed.type = static_cast<uint32_t>(GgufType::kString);
  Builder payload;
  payload.string(value);
  changed.payload = payload.take();
}

void RawGguf::set_array_length(const std::string& name, uint64_t n) {
  std::memcpy(key(name).payload.data() + 4, &n, sizeof(n));
}

}  // namespace ctxzip
