// The scan of a recall index for all heads in one pass, compiled once per Highway target.
#if defined(CTXZIP_KERNELS_INDEX_SCAN_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef CTXZIP_KERNELS_INDEX_SCAN_INL_H_
#undef CTXZIP_KERNELS_INDEX_SCAN_INL_H_
#else
#define CTXZIP_KERNELS_INDEX_SCAN_INL_H_
#endif

#include "kernels/mla-inl.h"

HWY_BEFORE_NAMESPACE();
namespace ctxzip {
namespace HWY_NAMESPACE {

// Scores of kN entries for one tile: the certificate first, then the exact branch, then the sketch.
template <int kN, int kVectors>
HWY_INLINE void score_entries(const ScanQueries& queries, const IndexRows& index, int64_t row,
                              int64_t lane, hn::Vec<FloatTag> (&acc)[kN][kVectors]) {
  const FloatTag d;
  alignas(64) float unpacked[kN * kScoreDims];
  const int64_t dim = queries.vectors.dim;
  for (int vector = 0; vector < kVectors; ++vector) {
    const auto slope = hn::LoadU(d, queries.slope + lane + vector * kMlaLanesHere);
    for (int a = 0; a < kN; ++a) {
      acc[a][vector] = hn::Mul(slope, hn::Set(d, index.residual[row + a]));
    }
  }
  const MlaRows parts[2] = {{index.side, RowType::kF16, index.side_dim, nullptr},
                            {index.sketch, RowType::kF16, index.sketch_dim, nullptr}};
  const float* right = queries.vectors.data + lane * dim;
  for (const MlaRows& part : parts) {
    for (int64_t first = 0; first < part.stride; first += kScoreDims) {
      const int64_t n_dims = std::min(kScoreDims, part.stride - first);
      unpack_rows<kN>(part, row, first, n_dims, kScoreDims, unpacked);
      multiply_tile<kN, kVectors, kScoreDims, 1>(unpacked, right, n_dims, acc);
      right += n_dims * kTileLanes<kVectors>;
    }
  }
}

void scan_index(const ScanQueries& queries, const IndexRows& index, int64_t begin, int64_t end,
                uint64_t* fired) noexcept {
  const FloatTag d;
  for (int64_t group = begin; group < end; group += kScanRows) {
    uint64_t bits = 0;
    for_each_tile(queries.vectors.n, [&](auto tile_vectors, int64_t lane) HWY_ATTR {
      constexpr int kVectors = decltype(tile_vectors)::value;
      constexpr int kN = kMlaAccumulators / kVectors;
      const int64_t n = std::min(kScanRows, end - group);
      for_each_piece<kN>(0, n, [&](auto piece, int64_t row) HWY_ATTR {
        constexpr int kPiece = decltype(piece)::value;
        hn::Vec<FloatTag> acc[kPiece][kVectors];
        score_entries<kPiece, kVectors>(queries, index, group + row, lane, acc);
        for (int a = 0; a < kPiece; ++a) {
          auto reached = hn::Ge(acc[a][0], hn::LoadU(d, queries.threshold + lane));
          for (int vector = 1; vector < kVectors; ++vector) {
            const float* threshold = queries.threshold + lane + vector * kMlaLanesHere;
            reached = hn::Or(reached, hn::Ge(acc[a][vector], hn::LoadU(d, threshold)));
          }
          if (!hn::AllFalse(d, reached)) bits |= uint64_t{1} << (row + a);
        }
      });
    });
    fired[group / kScanRows] = bits;
  }
}

void index_scores(const ScanQueries& queries, const IndexRows& index, int64_t begin, int64_t end,
                  float* out) noexcept {
  const FloatTag d;
  const int64_t padded = mla_padded(queries.vectors.n);
  for_each_tile(queries.vectors.n, [&](auto tile_vectors, int64_t lane) HWY_ATTR {
    constexpr int kVectors = decltype(tile_vectors)::value;
    constexpr int kN = kMlaAccumulators / kVectors;
    for_each_piece<kN>(0, end - begin, [&](auto piece, int64_t row) HWY_ATTR {
      constexpr int kPiece = decltype(piece)::value;
      hn::Vec<FloatTag> acc[kPiece][kVectors];
      score_entries<kPiece, kVectors>(queries, index, begin + row, lane, acc);
      for (int a = 0; a < kPiece; ++a) {
        for (int vector = 0; vector < kVectors; ++vector) {
          hn::StoreU(acc[a][vector], d, out + (row + a) * padded + lane + vector * kMlaLanesHere);
        }
      }
    });
  });
}

// NOLINTNEXTLINE(google-readability-namespace-comments)
}  // namespace HWY_NAMESPACE
}  // namespace ctxzip
HWY_AFTER_NAMESPACE();

#endif  // toggle
