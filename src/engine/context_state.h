// What a Context handle points to.
#pragma once

#include <memory>

#include "cache/context_rows.h"
#include "ctxzip/context.h"
#include "format/ctz.h"
#include "model/model_state.h"

namespace ctxzip {

namespace detail {

struct ContextState {
  Model model;
  CtzMeta meta;
  ContextRows rows;
  ZipReport report;
};

}  // namespace detail

// The part of a report that a file's content determines.
ZipReport describe_context(const CtzMeta& meta, const ContextRows& rows);

}  // namespace ctxzip
