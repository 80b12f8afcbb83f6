#include "attention_fixture.h"

#include "kernels/attention_targets.h"

namespace ctxzip::testing {

const std::vector<Implementation>& implementations() {
  static const std::vector<TargetKernels> targets = tuned_attention_targets();
  static const std::vector<Implementation> all = [] {
    std::vector<Implementation> list = {{"ref", &ref_attention_kernels(), kRefRoundings}};
    for (const TargetKernels& target : targets) {
      list.push_back({"tuned_" + std::string(target.target), &target.kernels, kTunedRoundings});
    }
    return list;
  }();
  return all;
}

std::vector<ExactRow> exact_rows(const StoredRows& rows, const Segment& segment) {
  std::vector<ExactRow> list;
  for (int64_t row = 0; row < segment.n_rows; ++row) {
    list.push_back({&rows, segment.index ? segment.index[row] : row});
  }
  return list;
}

// `rows` has one list per segment.
void AttentionTest::expect_tile(const std::vector<float>& q, int64_t n_tokens,
                                const TileSegments& over,
                                const std::vector<std::vector<ExactRow>>& rows) {
  const int64_t out_stride = shape_.group * shape_.n_value() + 5;
  GuardedFloats out(static_cast<size_t>((n_tokens - 1) * out_stride + out_stride - 5));
  GuardedFloats lse(static_cast<size_t>(n_tokens * shape_.group));
  GuardedFloats lse_alone(lse.size());
  GuardedScratch scratch(kernels().scratch_bytes(shape_));
  const Queries queries = {q.data() + 1, n_tokens, token_stride()};
  kernels().attend_tile(shape_, queries, over, out.data(), out_stride, lse.data(), scratch.data());
  kernels().attend_tile(shape_, queries, over, nullptr, 0, lse_alone.data(), scratch.data());
  EXPECT_TRUE(out.guards_intact() && lse.guards_intact() && lse_alone.guards_intact() &&
              scratch.guards_intact());

  for (int64_t token = 0; token < n_tokens; ++token) {
    std::vector<ExactRow> seen;
    size_t n_lse_rows = 0;
    for (int segment = 0; segment < static_cast<int>(rows.size()); ++segment) {
      const std::vector<ExactRow>& list = rows[static_cast<size_t>(segment)];
      for (size_t at = 0; at < list.size(); ++at) {
        seen.push_back(list[at]);
        const auto row = static_cast<int64_t>(at);
        const bool later = segment == over.causal && row >= over.causal_rows + token;
        const bool hidden =
            !over.hidden.empty() && row < over.hidden[static_cast<size_t>(segment)] + token;
        seen.back().masked = later || hidden;
      }
      if (segment < over.n_lse_segments) n_lse_rows = seen.size();
    }
    const std::vector<ExactRow> lse_rows(seen.begin(),
                                         seen.begin() + static_cast<std::ptrdiff_t>(n_lse_rows));
    for (int64_t head = 0; head < shape_.group; ++head) {
      const float* query = queries.data + token * token_stride() + head * shape_.head_dim;
      const ExactHead exact = exact_attention(query, shape_.head_dim, double{shape_.scale}, seen);
      const ExactHead exact_lse =
          exact_attention(query, shape_.head_dim, double{shape_.scale}, lse_rows);
      const double tolerance = score_tolerance(exact) * (exact.max_abs_v + 1e-30) + output_slack_;
      const float* result = out.data() + token * out_stride + head * shape_.n_value();
      for (int64_t dim = 0; dim < shape_.n_value(); ++dim) {
        ASSERT_NEAR(result[dim], exact.out[static_cast<size_t>(dim)], tolerance)
            << "token " << token << " head " << head << " dim " << dim;
      }
      const size_t at = static_cast<size_t>(token * shape_.group + head);
      if (exact_lse.lse == double{kMinusInfinity}) {
        ASSERT_EQ(lse[at], kMinusInfinity);
      } else {
        ASSERT_NEAR(lse[at], exact_lse.lse, score_tolerance(exact_lse));
      }
      ASSERT_EQ(lse[at], lse_alone[at]);
    }
  }
}

void AttentionTest::expect_block(const float* q, const Segment& segment, int64_t begin, int64_t end,
                                 const std::vector<ExactRow>& rows) {
  const int64_t n_value = shape_.n_value();
  const int64_t head_floats = n_value + 2;
  GuardedFloats partial(static_cast<size_t>(shape_.group * head_floats));
  kernels().attend_block(shape_, q, segment, begin, end, partial.data());
  EXPECT_TRUE(partial.guards_intact());
  const std::vector<ExactRow> range(rows.begin() + begin, rows.begin() + end);
  for (int64_t head = 0; head < shape_.group; ++head) {
    const ExactHead exact =
        exact_attention(q + head * shape_.head_dim, shape_.head_dim, double{shape_.scale}, range);
    const float* result = partial.data() + head * head_floats;
    const double tolerance =
        (score_tolerance(exact) * (exact.max_abs_v + 1e-30) + output_slack_) * exact.sum;
    if (range.empty()) {
      ASSERT_EQ(result[n_value], kMinusInfinity);
      ASSERT_EQ(result[n_value + 1], 0);
    } else {
      ASSERT_NEAR(result[n_value], exact.max, score_tolerance(exact));
      ASSERT_NEAR(result[n_value + 1], exact.sum, score_tolerance(exact) * exact.sum);
    }
    for (int64_t dim = 0; dim < n_value; ++dim) {
      ASSERT_NEAR(result[dim], exact.out[static_cast<size_t>(dim)] * exact.sum, tolerance)
          << "head " << head << " dim " << dim;
    }
  }
}

std::string test_name(const ::testing::TestParamInfo<AttentionTest::ParamType>& param) {
  const auto [implementation, type, shape] = param.param;
  return implementations()[implementation].name + "_" + std::string(row_type_name(type)) + "_d" +
         std::to_string(std::get<0>(shape)) + "_g" + std::to_string(std::get<1>(shape)) +
         (std::get<2>(shape) > 0 ? "_v" + std::to_string(std::get<2>(shape)) : "");
}

}  // namespace ctxzip::testing
