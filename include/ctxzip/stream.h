// Contexts under VestigeKV: sessions of theirs grow, and nothing in them is lost.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "ctxzip/context.h"
#include "ctxzip/export.h"
#include "ctxzip/model.h"
#include "ctxzip/progress.h"
#include "ctxzip/recall.h"

namespace ctxzip {

struct StreamOptions {
  RecallOptions policy;
  // Runs a model with rotated rows all the same: a control that shows what the policy rests on.
  bool control = false;
  bool close_now = false;   // close the open block where a text ends, however short it is
  int64_t audit_steps = 0;  // every so many steps all rows are scored exactly; 0: never
  // Of zip_stream: the last tokens of the text are decoded one by one, so that their queries
  // calibrate the recall; fewer if the text is shorter.
  int64_t calibration_tokens = 64;
  // Tokens that fit. 0: the trained length; what is there and 8192 more if that leaves less than
  // 256.
  int64_t capacity = 0;
  bool allow_long = false;  // go past the trained length
  int64_t batch_tokens = 512;
  std::optional<std::string> system = {};
  ProgressFn progress = {};
  LogFn notice = {};
  const CancelToken* cancel = nullptr;
};

// A context without text: a chat that starts from nothing, whose sessions grow under the policy.
// Throws Error: kUnsupported (a model that the policy is not for), kInvalidArgument.
CTXZIP_API Context start_stream(const Model& model, const StreamOptions& options = {});
// A whole text under the policy: nothing of it is lost. As zip(), with other means. Throws Error:
// kUnsupported, kInvalidArgument, kTooLong, kOutOfMemory, kCancelled.
CTXZIP_API Context zip_stream(const Model& model, std::string_view text,
                              const StreamOptions& options = {});

// Whether a context is under the policy.
CTXZIP_API bool is_stream(const Context& context);
// How sessions of such a context grow, and the same context with other settings: what its rows were
// ranked and its recall was calibrated with cannot be changed. Throws Error{kInvalidArgument}.
CTXZIP_API StreamOptions stream_options(const Context& context);
CTXZIP_API Context with_stream_options(const Context& context, const StreamOptions& options);

}  // namespace ctxzip
