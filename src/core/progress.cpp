#include "ctxzip/progress.h"

namespace ctxzip {

std::string_view stage_name(Stage stage) {
  switch (stage) {
    case Stage::kLoad:
      return "load";
    case Stage::kPrefill:
      return "prefill";
    case Stage::kScore:
      return "score";
    case Stage::kCheck:
      return "check";
    case Stage::kCompact:
      return "compact";
    case Stage::kWrite:
      return "write";
  }
  return "unknown";
}

}  // namespace ctxzip
