// What a Context handle points to.
#pragma once

#include <memory>
#include <optional>

#include "cache/context_rows.h"
#include "ctxzip/context.h"
#include "ctxzip/stream.h"
#include "format/ctz.h"
#include "model/model_state.h"

namespace ctxzip {

namespace detail {

struct ContextState {
  Model model;
  CtzMeta meta;
  ContextRows rows;
  ZipReport report;
  // How sessions grow, where meta.recall is set; else null.
  std::shared_ptr<const StreamOptions> stream = {};
};

}  // namespace detail

// The part of a report that a file's content determines.
ZipReport describe_context(const CtzMeta& meta, const ContextRows& rows);

// Likewise of VestigeKV; absent without it.
std::optional<RecallReport> describe_recall(const CtzMeta& meta, const ContextRows& rows);

}  // namespace ctxzip
