// The methods that decide which pairs stay; docs/methods.md defines each.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

#include "ctxzip/export.h"

namespace ctxzip {

enum class Method : uint8_t {
  kKvzip,
  kKvzipPlus,
  kKvzipLogit,
  kKvzipFirst,
  kKvzipLast,
  kKvzipPrompt,
  kKvzipParaphrase,
  kKvzipBlank,
  kH2o,
  kH2oMean,
  kSnapKv,
  kPyramidKv,
  kStreamingLlm,
  kExpectedAttention,
  kKnorm,
  kRandom,
  kSigma,  // the next three need latent rows that are not rotated
  kSigmaContent,
  kSigmaRow,
  kHeadsDuo,  // the last two need ZipOptions::heads
  kHeadsDrop,
};

struct MethodInfo {
  Method method;
  std::string_view name;     // "kvzip", "snapkv", ...
  std::string_view summary;  // for people, one short line
};

// Every method, in the order of the enumeration.
CTXZIP_API std::span<const MethodInfo> zip_methods();
CTXZIP_API std::string_view method_name(Method method);

}  // namespace ctxzip
