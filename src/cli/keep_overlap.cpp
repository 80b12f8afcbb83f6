#include "cli/keep_overlap.h"

#include <fmt/format.h>

#include <algorithm>

#include "cli/human.h"
#include "core/fail.h"

namespace ctxzip::cli {
namespace {

double quotient(int64_t part, int64_t whole) {
  return whole > 0 ? static_cast<double>(part) / static_cast<double>(whole) : 0;
}

void check_evicted(const std::string& file, const FileInfo& info) {
  if (!info.recall) return;
  fail(ErrorKind::kUnsupported,
       "{} is under VestigeKV, which evicts nothing: only zips that evict can be compared", file);
}

void check_same(const FileInfo& info, const std::string& other, const FileInfo& there) {
  if (info.model_fingerprint != there.model_fingerprint) {
    fail(ErrorKind::kMismatch,
         "{} was made with {} (fingerprint {}), this file with {} ({}): only zips of one text by "
         "one model can be compared",
         other, there.model_name, there.model_fingerprint, info.model_name, info.model_fingerprint);
  }
  if (info.report.context_tokens != there.report.context_tokens) {
    fail(ErrorKind::kMismatch,
         "{} has {} tokens, this file {}: only zips of one text can be compared", other,
         there.report.context_tokens, info.report.context_tokens);
  }
}

}  // namespace

double KeepOverlap::share() const { return quotient(shared, pairs_kept); }

KeepOverlap keep_overlap(const std::string& file, const FileInfo& info, const std::string& other) {
  const FileInfo there = inspect_file(other);
  check_evicted(file, info);
  check_evicted(other, there);
  check_same(info, other, there);
  KeepOverlap overlap = {.other = other,
                         .pairs_kept = info.report.pairs_kept,
                         .other_pairs_kept = there.report.pairs_kept,
                         .by_chance = quotient(there.report.pairs_kept, there.report.pairs_total)};
  // A part for every token: shares are 0 and 1.
  const int64_t n_part = std::max<int64_t>(1, info.report.context_tokens);
  const KeptMap here_map = read_kept_map(file, n_part);
  const KeptMap there_map = read_kept_map(other, n_part);
  CHECK(here_map.share.size() == there_map.share.size());
  for (size_t at = 0; at < here_map.share.size(); ++at) {
    if (here_map.share[at] > 0 && there_map.share[at] > 0) ++overlap.shared;
  }
  return overlap;
}

std::string overlap_line(const KeepOverlap& overlap) {
  return fmt::format("{} of the pairs kept here are kept in {} too ({} of {}; {} by chance)\n",
                     format_percent(overlap.share()), overlap.other, format_count(overlap.shared),
                     format_count(overlap.pairs_kept), format_percent(overlap.by_chance));
}

Json overlap_json(const KeepOverlap& overlap) {
  return {{"file", overlap.other},
          {"pairs_kept", overlap.other_pairs_kept},
          {"shared", overlap.shared},
          {"share", overlap.share()},
          {"by_chance", overlap.by_chance}};
}

}  // namespace ctxzip::cli
