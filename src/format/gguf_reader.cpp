#include "format/gguf_reader.h"

#include <algorithm>

#include "core/fail.h"
#include "format/byte_reader.h"
#include "format/plain_text.h"

namespace ctxzip {
namespace {

constexpr uint32_t kGgufVersion = 3;
constexpr size_t kMaxTensorName = 63;
constexpr size_t kMaxShownBytes = 40;
// The least bytes that a key or a table entry takes: bounds what a count may promise.
constexpr uint64_t kMinEntryBytes = 8 + 1 + 4 + 1;
constexpr uint64_t kMinTensorBytes = 8 + 1 + 4 + 8 + 4 + 8;

// 0 for strings, arrays and unknown types.
uint64_t item_bytes(GgufType type) {
  switch (type) {
    case GgufType::kU8:
    case GgufType::kI8:
    case GgufType::kBool:
      return 1;
    case GgufType::kU16:
    case GgufType::kI16:
      return 2;
    case GgufType::kU32:
    case GgufType::kI32:
    case GgufType::kF32:
      return 4;
    case GgufType::kU64:
    case GgufType::kI64:
    case GgufType::kF64:
      return 8;
    default:
      return 0;
  }
}

void parse_array(ByteReader& reader, GgufEntry& entry) {
  entry.item_type = static_cast<GgufType>(reader.value<uint32_t>("an array's type"));
  entry.n_items = reader.value<uint64_t>("an array's length");
  if (!reader.ok()) return;
  if (entry.item_type == GgufType::kString) {
    // Each string takes 8 bytes or more, so the end of the file ends this loop early.
    for (uint64_t item = 0; item < entry.n_items && reader.ok(); ++item) reader.string("a string");
    return;
  }
  const uint64_t size = item_bytes(entry.item_type);
  if (size == 0) {
    reader.refuse("found an array of type {}, expected numbers or strings",
                  static_cast<uint32_t>(entry.item_type));
  } else if (entry.n_items > reader.left() / size) {
    reader.refuse("an array of {} elements of {} bytes, found {} bytes before the end of the file",
                  entry.n_items, size, reader.left());
  } else {
    entry.payload = reader.take(entry.n_items * size, "an array");
  }
}

GgufEntry parse_entry(ByteReader& reader) {
  GgufEntry entry;
  entry.key = reader.string("a key's name");
  if (entry.key.empty()) reader.refuse("found a key without a name");
  entry.type = static_cast<GgufType>(reader.value<uint32_t>("a key's type"));
  entry.item_type = entry.type;
  if (entry.type == GgufType::kArray) {
    parse_array(reader, entry);
  } else if (entry.type == GgufType::kString) {
    const std::string_view text = reader.string("a string");
    entry.payload = std::as_bytes(std::span(text));
  } else if (const uint64_t size = item_bytes(entry.type); size != 0) {
    entry.payload = reader.take(size, "a value");
  } else {
    reader.refuse("found a value of type {}, which GGUF does not define",
                  static_cast<uint32_t>(entry.type));
  }
  return entry;
}

GgufTensor parse_tensor(ByteReader& reader) {
  GgufTensor tensor;
  tensor.name = reader.string("a tensor's name");
  if (tensor.name.empty() || tensor.name.size() > kMaxTensorName) {
    reader.refuse("a tensor's name has {} bytes, expected 1 to {}", tensor.name.size(),
                  kMaxTensorName);
  }
  const auto n_dims = reader.value<uint32_t>("a tensor's number of dimensions");
  if (n_dims < 1 || n_dims > tensor.ne.size()) {
    reader.refuse("a tensor has {} dimensions, expected 1 to {}", n_dims, tensor.ne.size());
  }
  if (!reader.ok()) return tensor;
  for (uint32_t dim = 0; dim < n_dims; ++dim) {
    tensor.ne[dim] = reader.value<uint64_t>("a tensor's dimension");
  }
  tensor.type = reader.value<uint32_t>("a tensor's type");
  tensor.offset = reader.value<uint64_t>("a tensor's offset");
  return tensor;
}

// Whether a promise of `n` things fits a limit and the bytes left.
bool accept_count(ByteReader& reader, std::string_view what, uint64_t n, uint64_t max,
                  uint64_t min_bytes_each) {
  if (n > max) reader.refuse("found {} {}, expected at most {}", n, what, max);
  if (reader.ok() && n > reader.left() / min_bytes_each) {
    reader.refuse("found {} {} but only {} bytes after it", n, what, reader.left());
  }
  return reader.ok();
}

void refuse_duplicates(ByteReader& reader, const std::vector<GgufEntry>& entries) {
  std::vector<std::string_view> keys;
  keys.reserve(entries.size());
  for (const GgufEntry& entry : entries) keys.push_back(entry.key);
  std::sort(keys.begin(), keys.end());
  const auto twice = std::adjacent_find(keys.begin(), keys.end());
  if (twice != keys.end()) {
    reader.refuse("found the key '{}' twice, expected it once",
                  to_plain_text(*twice, kMaxShownBytes));
  }
}

void check_header(ByteReader& reader, const std::string& object) {
  const auto magic = reader.take(4, "the magic number");
  if (reader.ok() && std::memcmp(magic.data(), "GGUF", 4) != 0) {
    fail(ErrorKind::kCorruptFile,
         "{} is not a .ctz file: it starts with {:02x} {:02x} {:02x} {:02x}, expected 'GGUF'; give "
         "a file that 'ctxzip zip' wrote",
         object, static_cast<uint8_t>(magic[0]), static_cast<uint8_t>(magic[1]),
         static_cast<uint8_t>(magic[2]), static_cast<uint8_t>(magic[3]));
  }
  const auto version = reader.value<uint32_t>("the GGUF version");
  if (reader.ok() && version != kGgufVersion) {
    fail(ErrorKind::kUnsupported,
         "{} has GGUF version {}, supported is {}; it is damaged or of a later ctxzip", object,
         version, kGgufVersion);
  }
}

}  // namespace

std::string_view gguf_type_label(GgufType type) {
  constexpr std::string_view kLabels[] = {"u8",   "i8",     "u16",   "i16", "u32", "i32", "f32",
                                          "bool", "string", "array", "u64", "i64", "f64"};
  const auto at = static_cast<size_t>(type);
  return at < std::size(kLabels) ? kLabels[at] : "unknown";
}

const GgufEntry* GgufContents::find(std::string_view key) const {
  const auto entry =
      std::find_if(entries.begin(), entries.end(),
                   [key](const GgufEntry& candidate) { return candidate.key == key; });
  return entry == entries.end() ? nullptr : &*entry;
}

GgufContents parse_gguf(std::span<const std::byte> bytes, const std::string& object,
                        const GgufLimits& limits) {
  ByteReader reader(bytes);
  check_header(reader, object);
  const auto n_tensors = reader.value<uint64_t>("the number of tensors");
  const auto n_keys = reader.value<uint64_t>("the number of keys");
  GgufContents file;
  if (accept_count(reader, "keys", n_keys, limits.max_keys, kMinEntryBytes) &&
      accept_count(reader, "tensors", n_tensors, limits.max_tensors, kMinTensorBytes)) {
    file.entries.reserve(static_cast<size_t>(n_keys));
    file.tensors.reserve(static_cast<size_t>(n_tensors));
  }
  for (uint64_t n = 0; n < n_keys && reader.ok(); ++n) file.entries.push_back(parse_entry(reader));
  refuse_duplicates(reader, file.entries);
  for (uint64_t n = 0; n < n_tensors && reader.ok(); ++n) {
    file.tensors.push_back(parse_tensor(reader));
  }
  const size_t n_padding = (kGgufAlignment - reader.position() % kGgufAlignment) % kGgufAlignment;
  reader.take(n_padding, "the padding after the tensor table");
  if (!reader.ok()) fail_corrupt(object, reader.error());
  file.data_offset = reader.position();
  return file;
}

void fail_corrupt(const std::string& object, const std::string& detail) {
  fail(ErrorKind::kCorruptFile, "{} is damaged: {}; copy it again or make it anew", object, detail);
}

}  // namespace ctxzip
