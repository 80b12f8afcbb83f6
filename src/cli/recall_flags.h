// The flags of VestigeKV, in one place for all commands.
#pragma once

#include <CLI/CLI.hpp>
#include <functional>
#include <vector>

#include "ctxzip/stream.h"

namespace ctxzip::cli {

struct RecallFlags {
  bool chosen = false;  // --policy vestige
  // What the flags that were given set, in their order.
  std::vector<std::function<void(StreamOptions&)>> changes;
  std::vector<CLI::Option*> options;  // all but --policy

  // First flag that was given, "" if none was.
  std::string first_given() const;
  StreamOptions apply(StreamOptions options) const;
};

// Which flags a command has: those that say how rows are ranked and calibrated, which a file keeps
// for good, and those of a session.
enum class RecallUse { kNewText, kStoredText, kBoth };
void add_recall_flags(CLI::App& app, RecallFlags& flags, RecallUse use);

// Throws CLI::ValidationError if a flag was given without --policy vestige.
void require_policy(const RecallFlags& flags);

}  // namespace ctxzip::cli
