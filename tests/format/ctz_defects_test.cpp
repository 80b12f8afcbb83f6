// One hand-made defect per test; checksums are right unless they are the defect.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <string>

#include "ctz_defect.h"
#include "format/ctz_layout.h"

namespace ctxzip {
namespace {

constexpr uint64_t kHuge = uint64_t{1} << 63;

TEST_F(CtzDefect, RebuiltWithoutDefectIsTheSame) { EXPECT_EQ(raw_.build(), valid_); }

TEST_F(CtzDefect, BadMagic) {
  raw_.magic = "GGML";
  expect_refused("starts with 47 47 4d 4c, expected 'GGUF'");
}
TEST_F(CtzDefect, GgufVersion0) {
  raw_.version = 0;
  expect_refused("GGUF version 0, supported is 3", ErrorKind::kUnsupported);
}
TEST_F(CtzDefect, GgufVersion2) {
  raw_.version = 2;
  expect_refused("GGUF version 2, supported is 3", ErrorKind::kUnsupported);
}
TEST_F(CtzDefect, CtzVersion0) {
  raw_.set(kKeyVersion, kU32, uint32_t{0});
  expect_refused(".ctz version 0, supported are 1 to 4", ErrorKind::kUnsupported);
}
TEST_F(CtzDefect, CtzVersion5) {
  raw_.set(kKeyVersion, kU32, uint32_t{5});
  expect_refused(".ctz version 5, supported are 1 to 4", ErrorKind::kUnsupported);
}
TEST_F(CtzDefect, CtzVersion999) {
  raw_.set(kKeyVersion, kU32, uint32_t{999});
  expect_refused(".ctz version 999, supported are 1 to 4", ErrorKind::kUnsupported);
}
TEST_F(CtzDefect, AModelInsteadOfAContext) {
  raw_.set_string(kKeyArchitecture, "llama");
  expect_refused("architecture 'llama', expected 'ctxzip'", ErrorKind::kUnsupported);
}
TEST_F(CtzDefect, EmptyFile) { expect_refused({}, "needs 4 bytes, found 0"); }
TEST_F(CtzDefect, AbsurdTensorCount) {
  raw_.n_tensors = UINT64_MAX;
  expect_refused("tensors, expected at most 2049");
}
TEST_F(CtzDefect, MoreTensorsThanBytes) {
  raw_.n_tensors = 2049;
  expect_refused("found 2049 tensors but only");
}
TEST_F(CtzDefect, AbsurdKeyCount) {
  raw_.n_keys = kHuge;
  expect_refused("keys, expected at most 1024");
}
TEST_F(CtzDefect, AbsurdArrayLength) {
  raw_.set_array_length(kKeyContextTokens, kHuge);
  expect_refused("an array of 9223372036854775808 elements of 4 bytes");
}
TEST_F(CtzDefect, ArrayLengthWhoseBytesOverflow) {
  raw_.set_array_length(kKeyContextTokens, (uint64_t{1} << 62) + 1);
  expect_refused("an array of 4611686018427387905 elements of 4 bytes");
}
TEST_F(CtzDefect, AbsurdStringArrayLength) {
  RawKey& key = raw_.key(kKeyContextTokens);
  const auto type = static_cast<uint32_t>(GgufType::kString);
  std::memcpy(key.payload.data(), &type, sizeof(type));
  raw_.set_array_length(kKeyContextTokens, UINT64_MAX);
  expect_refused("before the end of the file");
}
TEST_F(CtzDefect, ArrayOfArrays) {
  const auto type = static_cast<uint32_t>(GgufType::kArray);
  std::memcpy(raw_.key(kKeyContextTokens).payload.data(), &type, sizeof(type));
  expect_refused("an array of type 9");
}
TEST_F(CtzDefect, UndefinedValueType) {
  raw_.key(kKeySeed).type = 77;
  expect_refused("a value of type 77");
}
TEST_F(CtzDefect, StringLength2To63) {
  std::memcpy(raw_.key(kKeyModelName).payload.data(), &kHuge, sizeof(kHuge));
  expect_refused("needs 9223372036854775808 bytes");
}
TEST_F(CtzDefect, KeyNameLength2To63) {
  std::memcpy(valid_.data() + 24, &kHuge, sizeof(kHuge));
  expect_refused(valid_, "byte 32: a key's name needs 9223372036854775808 bytes");
}
TEST_F(CtzDefect, EmptyKeyName) {
  raw_.key(kKeySeed).name.clear();
  expect_refused("a key without a name");
}
TEST_F(CtzDefect, DuplicateKey) {
  raw_.keys.push_back(raw_.key(kKeySeed));
  expect_refused("the key 'ctxzip.seed' twice");
}
TEST_F(CtzDefect, DuplicateUnknownKey) {
  raw_.keys.push_back({"other", kU32, std::vector<std::byte>(4)});
  raw_.keys.push_back({"other", kU32, std::vector<std::byte>(4)});
  expect_refused("the key 'other' twice");
}
TEST_F(CtzDefect, UnknownKeyIsIgnored) {
  raw_.set_string("other.text", "x");
  raw_.set("other.number", kF64, std::numeric_limits<double>::infinity());
  RawKey strings{"other.strings", static_cast<uint32_t>(GgufType::kArray), {}};
  strings.payload.resize(12 + 2 * 8);
  strings.payload[0] = std::byte{8};
  strings.payload[4] = std::byte{2};
  raw_.keys.push_back(strings);
  expect_same(make_sample(), read_ctz(raw_.build()));
}

TEST_F(CtzDefect, EachRequiredKeyMissing) {
  for (const RawKey& key : raw_.keys) {
    if (key.name == kKeyDeltaNll || key.name == kKeyDeltaNllProbe) continue;
    RawGguf raw(valid_);
    raw.erase(key.name);
    const bool is_kind = key.name == kKeyArchitecture;
    expect_refused(raw.build(), is_kind ? "expected 'ctxzip'" : key.name + " is missing",
                   is_kind ? ErrorKind::kUnsupported : ErrorKind::kCorruptFile);
  }
}
TEST_F(CtzDefect, EachKeyOfWrongType) {
  for (const RawKey& key : raw_.keys) {
    RawGguf raw(valid_);
    raw.key(key.name).type = static_cast<uint32_t>(GgufType::kF32);
    raw.key(key.name).payload.assign(4, std::byte{});
    expect_refused(raw.build(), key.name + " has type f32");
  }
}
TEST_F(CtzDefect, ArrayOfWrongItems) {
  raw_.key(kKeyCounts).payload[0] = std::byte{static_cast<uint8_t>(GgufType::kI32)};
  expect_refused("ctxzip.kept.counts has type array of i32, expected array of u32");
}

TEST_F(CtzDefect, WrongAlignment) {
  raw_.set(kKeyAlignment, kU32, uint32_t{64});
  expect_refused("general.alignment is 64, expected 32");
}
TEST_F(CtzDefect, WrongRowType) {
  raw_.set(kKeyRowType, kU32, uint32_t{2});
  expect_refused("rows of type 2", ErrorKind::kUnsupported);
}
TEST_F(CtzDefect, OtherRowType) {
  raw_.set(kKeyRowType, kU32, uint32_t{0});
  expect_refused("tensor k.0 has type 1, expected 0");
}
TEST_F(CtzDefect, NoLayers) {
  raw_.set("ctxzip.model.n_layer", kI64, int64_t{0});
  expect_refused("n_layer is 0");
}
TEST_F(CtzDefect, NegativeLayers) {
  raw_.set("ctxzip.model.n_layer", kI64, int64_t{-1});
  expect_refused("n_layer is -1");
}
TEST_F(CtzDefect, AbsurdLayers) {
  raw_.set("ctxzip.model.n_layer", kI64, std::numeric_limits<int64_t>::max());
  expect_refused("n_layer is 9223372036854775807, expected 1 to 255");
}
TEST_F(CtzDefect, LayerKindsForOtherLayers) {
  raw_.set_string("ctxzip.model.layers", "gg");
  expect_refused("layers has 2 letters for 3 layers");
}
TEST_F(CtzDefect, UnknownLayerKind) {
  raw_.set_string("ctxzip.model.layers", "gxg");
  expect_refused("expected one of 'g', 'l' and 'r'");
}
TEST_F(CtzDefect, RecurrentLayerWithoutState) {
  raw_.set_string("ctxzip.model.layers", "grg");
  expect_refused("state size is 0 with 1 recurrent layers");
}
TEST_F(CtzDefect, StateWithoutRecurrentLayer) {
  raw_.set("ctxzip.model.state_size", kI64, int64_t{5});
  expect_refused("state size is 5 with 0 recurrent layers");
}
TEST_F(CtzDefect, AbsurdStateSize) {
  raw_.set_string("ctxzip.model.layers", "grg");
  raw_.set("ctxzip.model.state_size", kI64, std::numeric_limits<int64_t>::max());
  expect_refused("state size is 9223372036854775807");
}
TEST_F(CtzDefect, StateMissing) {
  raw_.set_string("ctxzip.model.layers", "grg");
  raw_.set("ctxzip.model.state_size", kI64, int64_t{1} << 28);
  expect_refused("kept.counts");
}
TEST_F(CtzDefect, ValuesBeyondTheirKeys) {
  raw_.set("ctxzip.model.value_dim", kI64, int64_t{9});
  expect_refused("value_dim is 9, expected 0 to the head_dim of 8");
}
TEST_F(CtzDefect, NoGlobalLayer) {
  raw_.set_string("ctxzip.model.layers", "lll");
  raw_.set("ctxzip.model.window", kI64, int64_t{4});
  expect_refused("no global layer");
}
TEST_F(CtzDefect, LocalLayersWithoutAWindow) {
  raw_.set_string("ctxzip.model.layers", "glg");
  expect_refused("a window of 0");
}
TEST_F(CtzDefect, AbsurdWindow) {
  raw_.set_string("ctxzip.model.layers", "glg");
  raw_.set("ctxzip.model.window", kI64, std::numeric_limits<int64_t>::max());
  expect_refused("ctxzip.kept.counts has 6 entries, expected 4");
}
TEST_F(CtzDefect, AbsurdHeads) {
  raw_.set("ctxzip.model.n_kv_head", kI64, std::numeric_limits<int64_t>::max());
  expect_refused("n_kv_head is 9223372036854775807");
}
TEST_F(CtzDefect, AbsurdHeadDim) {
  raw_.set("ctxzip.model.head_dim", kI64, int64_t{1} << 61);
  expect_refused("head_dim is 2305843009213693952");
}
TEST_F(CtzDefect, OtherHeadDim) {
  raw_.set("ctxzip.model.head_dim", kI64, int64_t{16});
  expect_refused("the tensor k.0 is 8 x ");
}
TEST_F(CtzDefect, AbsurdVocabulary) {
  raw_.set("ctxzip.model.n_vocab", kI64, int64_t{1} << 40);
  expect_refused("n_vocab is 1099511627776");
}
TEST_F(CtzDefect, TokenBeyondTheVocabulary) {
  raw_.set_item(kKeyContextTokens, 4, int32_t{1000});
  expect_refused("token 4 of ctxzip.tokens.context is 1000, expected 0 to 999");
}
TEST_F(CtzDefect, NegativeToken) {
  raw_.set_item(kKeyTurnTokens, 0, int32_t{-1});
  expect_refused("token 0 of ctxzip.tokens.turn is -1");
}
TEST_F(CtzDefect, EmptyContext) {
  raw_.key(kKeyContextTokens).payload.resize(12);
  raw_.set_array_length(kKeyContextTokens, 0);
  expect_refused("ctxzip.tokens.context is empty");
}
TEST_F(CtzDefect, NotANumber) {
  raw_.set(kKeyDeltaNll, kF64, std::nan(""));
  expect_refused("ctxzip.delta_nll is nan");
}
TEST_F(CtzDefect, InfiniteRopeBase) {
  raw_.set("ctxzip.model.rope_base", kF64, std::numeric_limits<double>::infinity());
  expect_refused("rope_base is inf");
}
TEST_F(CtzDefect, NegativeChunk) {
  raw_.set(kKeyChunkTokens, kI64, int64_t{-5});
  expect_refused("chunk_tokens is -5");
}
TEST_F(CtzDefect, BoolThatIsNeither) {
  raw_.key(kKeyTemplated).payload[0] = std::byte{2};
  expect_refused("templated is 2, expected 0 or 1");
}
TEST_F(CtzDefect, ControlCharactersInAString) {
  raw_.set_string(kKeyMethod, "a\x1b[2J");
  expect_refused("ctxzip.method is not plain text");
}
TEST_F(CtzDefect, LongString) {
  raw_.set_string(kKeyMethod, std::string(256, 'a'));
  expect_refused("ctxzip.method is not plain text of at most 255 bytes");
}

TEST_F(CtzDefect, CountsOfWrongLength) {
  raw_.set("ctxzip.model.n_layer", kI64, int64_t{4});
  raw_.set_string("ctxzip.model.layers", "gggg");
  expect_refused("ctxzip.kept.counts has 6 entries, expected 8");
}
TEST_F(CtzDefect, CountBeyondTheContext) {
  raw_.set_item(kKeyCounts, 1, uint32_t{22});
  expect_refused("entry 1 of ctxzip.kept.counts is 22, expected at most the 21 tokens");
}
TEST_F(CtzDefect, CountUnlikeTheTensors) {
  raw_.set_item(kKeyCounts, 0, uint32_t{1});
  expect_refused("the tensor k.0 is 8 x ");
}
TEST_F(CtzDefect, BitmapUnlikeItsCount) {
  raw_.data[0] ^= std::byte{1};
  expect_refused("bitmap 0 has 1 bits set, expected 0");
}
TEST_F(CtzDefect, BitmapMarksAPositionAfterTheLast) {
  // Head 1 keeps some rows: move one beyond position 20.
  std::byte* const bitmap = raw_.data.data() + 3;
  for (int at = 0; at < 21; ++at) {
    const std::byte bit = std::byte{1} << (at % 8);
    if ((bitmap[at / 8] & bit) == std::byte{}) continue;
    bitmap[at / 8] ^= bit;
    break;
  }
  bitmap[2] |= std::byte{0x20};
  expect_refused("bitmap 1 marks a position after the last of 21");
}

TEST_F(CtzDefect, NineDimensions) {
  raw_.tensors[1].n_dims = 9;
  expect_refused("has 9 dimensions, expected 1 to 4");
}
TEST_F(CtzDefect, NoDimensions) {
  raw_.tensors[1].n_dims = 0;
  expect_refused("has 0 dimensions");
}
TEST_F(CtzDefect, DimensionsThatOverflow) {
  raw_.tensors[1].ne = {uint64_t{1} << 62, 8};
  expect_refused("the tensor k.0 is 4611686018427387904 x 8");
}
TEST_F(CtzDefect, OffsetThatOverflows) {
  raw_.tensors.back().offset = UINT64_MAX - 31;
  expect_refused("v.2 starts at 18446744073709551584");
}
TEST_F(CtzDefect, UnalignedOffset) {
  raw_.tensors[2].offset += 1;
  expect_refused("the tensor v.0 starts at");
}
TEST_F(CtzDefect, OverlappingTensors) {
  raw_.tensors[2].offset = raw_.tensors[1].offset;
  expect_refused("the tensor v.0 starts at");
}
TEST_F(CtzDefect, GapBetweenTensors) {
  for (size_t at = 2; at < raw_.tensors.size(); ++at) raw_.tensors[at].offset += 32;
  raw_.data.resize(raw_.data.size() + 32);
  expect_refused("the tensor v.0 starts at");
}
TEST_F(CtzDefect, MissingTensor) {
  raw_.tensors.pop_back();
  expect_refused("the file has 6 tensors, expected 7");
}
TEST_F(CtzDefect, SurplusTensor) {
  raw_.tensors.push_back(raw_.tensors.back());
  raw_.tensors.back().name = "v.3";
  expect_refused("the file has 8 tensors, expected 7");
}
TEST_F(CtzDefect, OtherTensorName) {
  raw_.tensors[1].name = "q.0";
  expect_refused("found the tensor 'q.0' where 'k.0' is expected");
}
TEST_F(CtzDefect, LongTensorName) {
  raw_.tensors[1].name = std::string(64, 'k');
  expect_refused("a tensor's name has 64 bytes");
}
TEST_F(CtzDefect, WrongTensorType) {
  raw_.tensors[0].type = 0;
  expect_refused("the tensor kept has type 0, expected 24");
}

TEST_F(CtzDefect, TrailingGarbage) {
  raw_.data.resize(raw_.data.size() + 32);
  expect_refused("bytes follow the metadata, expected");
}
TEST_F(CtzDefect, PaddingNotZero) {
  // The bitmaps take 3 x 2 x 3 bytes of the first 32.
  raw_.data[18] = std::byte{1};
  expect_refused("the padding after the tensor kept is not zero");
}
TEST_F(CtzDefect, MetadataPaddingNotZero) {
  const size_t end = parse_gguf(valid_, "").data_offset;
  valid_[end - 1] ^= std::byte{1};
  expect_refused(valid_, "the checksum of the metadata is");
}
TEST_F(CtzDefect, WrongMetadataChecksum) {
  const GgufContents gguf = parse_gguf(valid_, "");
  const std::byte* const field = gguf.find(kKeyMetadataChecksum)->payload.data();
  valid_[static_cast<size_t>(field - valid_.data())] ^= std::byte{1};
  expect_refused(valid_, "the checksum of the metadata is");
}
TEST_F(CtzDefect, WrongTensorChecksum) {
  valid_.back() ^= std::byte{1};  // v.2 fills its last 32 bytes or has padding: both are refused
  expect_refused(valid_, "v.2");
}
TEST_F(CtzDefect, TensorChecksumMissing) {
  raw_.set_array_length(kKeyTensorChecksums, 6);
  raw_.key(kKeyTensorChecksums).payload.resize(12 + 6 * 8);
  expect_refused("ctxzip.checksum.tensors has 6 entries, expected 7");
}

}  // namespace
}  // namespace ctxzip
