// Decode over latent rows that many heads share: the kernel of kernels/mla.h with the queries and
// partial results of kernels/attention.h.
#if defined(CTXZIP_KERNELS_ATTENTION_LATENT_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef CTXZIP_KERNELS_ATTENTION_LATENT_INL_H_
#undef CTXZIP_KERNELS_ATTENTION_LATENT_INL_H_
#else
#define CTXZIP_KERNELS_ATTENTION_LATENT_INL_H_
#endif

#include "kernels/mla-inl.h"

HWY_BEFORE_NAMESPACE();
namespace ctxzip {
namespace HWY_NAMESPACE {

// Heads whose queries and sums stay in the second-level cache beside a chunk of rows.
constexpr int64_t kLatentHeads = 32;

// Whatever the number of heads: a head's result must not depend on who is answered beside it.
inline bool has_latent_rows(const AttentionShape& shape, const Segment& segment) {
  return segment.k == segment.v && shape.n_value() < shape.head_dim;
}

// As attend_block, for rows of which that is true.
inline void attend_latent_block(const AttentionShape& shape, const float* q, const Segment& segment,
                                int64_t begin, int64_t end, float* partial) {
  alignas(64) float packed[packed_floats(kLatentHeads, kMaxHeadDim)];
  alignas(64) float sums[(kMaxHeadDim + kPartialStats) * kLatentHeads];
  const int64_t latent = shape.value_dim;
  for (int64_t first = 0; first < shape.group; first += kLatentHeads) {
    const int64_t n_head = std::min(kLatentHeads, shape.group - first);
    const int64_t padded = mla_padded(n_head);
    pack_vectors(q + first * shape.head_dim, n_head, shape.head_dim, shape.head_dim, shape.scale,
                 packed);
    attend_shared({.latent = latent, .branch = shape.head_dim - latent, .n_head = n_head},
                  {packed, n_head, shape.head_dim},
                  {segment.k, shape.row_type, shape.head_dim, segment.index}, begin, end, sums);
    for (int64_t head = 0; head < n_head; ++head) {
      float* out = partial + (first + head) * (latent + 2);
      // The maximum and the sum of weights lie behind the values in either form.
      for (int64_t at = 0; at < latent + 2; ++at) out[at] = sums[at * padded + head];
    }
  }
}

// NOLINTNEXTLINE(google-readability-namespace-comments)
}  // namespace HWY_NAMESPACE
}  // namespace ctxzip
HWY_AFTER_NAMESPACE();

#endif  // toggle
