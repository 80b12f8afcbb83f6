// The .ctz file: a zipped context in a GGUF container. docs/format.md is the specification.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "cache/context_rows.h"
#include "core/file.h"
#include "kernels/mla.h"
#include "model/fingerprint.h"
#include "recall/recall_state.h"

namespace ctxzip {

// The newest; files of every version before it are read.
constexpr uint32_t kCtzVersion = 4;
// Of files without VestigeKV: older readers understand them.
constexpr uint32_t kVersionWithoutRecall = 3;

// Everything of a file but its rows.
struct CtzMeta {
  ModelFingerprint model;
  // For people; never a path. Written with control characters and broken UTF-8 replaced by '?', cut
  // to 255 bytes.
  std::string model_name;

  std::vector<int32_t> prefix_tokens;     // the protected head of the prompt
  std::vector<int32_t> context_tokens;    // the document
  std::vector<int32_t> question_tokens;   // between document and question
  std::vector<int32_t> turn_tokens;       // between question and answer
  std::vector<int32_t> next_turn_tokens;  // between an answer and the next message of a chat
  bool templated = false;                 // false: plain prompt, no chat template

  std::string method;
  std::string allocation;
  std::string recon_attention;
  std::string schedule = "two-pass";  // since version 2
  int64_t chunk_tokens = 0;
  uint64_t seed = 0;
  std::optional<double> delta_nll;
  std::optional<double> delta_nll_probe;

  // Since version 4; null: rows are what a method kept. Else all rows are there.
  std::shared_ptr<const RecallContext> recall;
};

// Of the model's MLA layers; the scale is left open.
MlaShape recall_shape(const ModelFingerprint& model);

struct CtzFile {
  CtzMeta meta;
  ContextRows rows;  // their storage keeps the mapping or the buffer alive
  int64_t file_bytes = 0;
  uint32_t version = kCtzVersion;
};

// The file's bytes are a function of the arguments alone. `sink` gets them in order. Throws Error:
// kInvalidArgument (a number that is not finite, a string that is not plain text), kUnsupported
// (dimensions beyond the format's limits), and what `sink` throws.
void write_ctz(const CtzMeta& meta, const ContextRows& rows, const WriteFn& sink);
int64_t ctz_bytes(const CtzMeta& meta, const ContextRows& rows);

// Both verify every length before use and every checksum, and allocate in proportion to the bytes
// there. Rows are aligned to 32 bytes in a mapped file, to 16 in memory; a layer without rows has
// null pointers. Throws Error: kNotFound, kIo, kCorruptFile (names the place, what was found and
// expected), kUnsupported (version, row type).
CtzFile read_ctz(const std::string& path);
CtzFile read_ctz(std::vector<std::byte> bytes);

}  // namespace ctxzip
