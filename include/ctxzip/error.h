// The one exception type of ctxzip.
#pragma once

#include <stdexcept>
#include <string>

#include "ctxzip/export.h"

namespace ctxzip {

enum class ErrorKind {
  kInvalidArgument,  // a value the caller gave is out of range or contradictory
  kNotFound,         // a file, model or tensor that should be there is not
  kIo,               // the operating system refused to read or write
  kCorruptFile,      // a file whose content breaks its own format
  kMismatch,         // a file that belongs to another model or settings
  kUnsupported,      // well formed, but not something this version handles
  kTooLong,          // the tokens do not fit the model's trained length
  kOutOfMemory,      // memory for a cache or graph could not be had
  kCancelled,        // the caller's CancelToken was set
};

// Thrown by every ctxzip operation that fails. The message names the object, what was found, what
// was expected and what to do; it never holds raw user bytes.
class CTXZIP_API Error : public std::runtime_error {
 public:
  Error(ErrorKind kind, const std::string& message) : std::runtime_error(message), kind_(kind) {}
  ErrorKind kind() const noexcept { return kind_; }

 private:
  ErrorKind kind_;
};

}  // namespace ctxzip
