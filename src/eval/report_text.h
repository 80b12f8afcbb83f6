// Made-up reports whose summaries are known, because they are made of the same facts.
#pragma once

#include <string>
#include <vector>

#include "eval/draw.h"
#include "eval/generator.h"

namespace ctxzip::eval {

struct MadeUpReport {
  std::string title;
  std::vector<std::string> sentences;  // facts, with filler between them
  std::string summary;                 // one sentence with all of them
};

MadeUpReport make_up_report(const Filler& filler, Draw& draw);

}  // namespace ctxzip::eval
