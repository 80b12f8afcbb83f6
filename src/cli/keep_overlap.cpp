#include "cli/keep_overlap.h"

#include <fmt/format.h>

#include "cli/human.h"
#include "core/fail.h"
#include "format/ctz.h"

namespace ctxzip::cli {
namespace {

double quotient(int64_t part, int64_t whole) {
  return whole > 0 ? static_cast<double>(part) / static_cast<double>(whole) : 0;
}

CtzFile read_evicted(const std::string& path) {
  CtzFile file = read_ctz(path);
  if (file.meta.recall != nullptr) {
    fail(ErrorKind::kUnsupported,
         "{} is under VestigeKV, which evicts nothing: only zips that evict can be compared", path);
  }
  return file;
}

void check_same(const CtzMeta& here, const std::string& other, const CtzMeta& there) {
  if (here.model.digest() != there.model.digest()) {
    fail(ErrorKind::kMismatch,
         "{} was made with {} (fingerprint {}), this file with {} ({}): only zips of one text by "
         "one model can be compared",
         other, there.model_name, there.model.digest(), here.model_name, here.model.digest());
  }
  if (here.context_tokens != there.context_tokens) {
    fail(ErrorKind::kMismatch,
         "{} holds another text ({} tokens, this file {}): only zips of one text can be compared",
         other, there.context_tokens.size(), here.context_tokens.size());
  }
}

}  // namespace

double KeepOverlap::share() const { return quotient(shared, pairs_kept); }

KeepOverlap keep_overlap(const std::string& file, const std::string& other) {
  const CtzFile here = read_evicted(file);
  const CtzFile there = read_evicted(other);
  check_same(here.meta, other, there.meta);
  const KeepSet& kept = here.rows.global.kept;
  const KeepSet& also = there.rows.global.kept;
  CHECK(kept.rows.size() == also.rows.size());
  return {.other = other,
          .pairs_kept = kept.pairs_kept(),
          .other_pairs_kept = also.pairs_kept(),
          .shared = pairs_shared(kept, also),
          .by_chance = quotient(also.pairs_kept(), also.pairs_total())};
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
