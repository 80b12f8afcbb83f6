// A whole text through a model of latent attention, with what its attention saw: the rows and
// queries of every layer.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "ctxzip/model.h"
#include "ctxzip/progress.h"
#include "kernels/mla.h"

namespace ctxzip::eval {

// Of one layer, as floats.
struct LayerCapture {
  std::vector<float> rows;     // (token, row_dim)
  std::vector<float> queries;  // (token, head, row_dim), rotated where rows are, not scaled
};

struct TextCapture {
  MlaShape shape;
  std::vector<LayerCapture> layers;  // attention layers in order
};

// Every token attends to all before it. Throws Error: kOutOfMemory, kCancelled.
TextCapture capture_text(const Model& model, std::span<const Token> tokens,
                         const CancelToken* cancel);

}  // namespace ctxzip::eval
