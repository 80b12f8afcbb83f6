// Audits of a stream: what recall found, whether that is what was promised, and what follows if
// not.
#include <cstdio>

#include "recall_stream_fixture.h"

namespace ctxzip::test {
namespace {

TEST_F(RecallStreamTest, AuditsCountWhatWasFound) {
  StreamOptions options = small_blocks();
  options.audit_steps = 1;
  options.policy.sound = true;
  RecallStream sound(model_, options);
  sound.prefill(text_, nullptr);
  decode_all(sound, more_);
  const RecallAudit found = sound.report().audit;
  EXPECT_EQ(found.steps, 40);
  EXPECT_GT(found.queries, 20);
  EXPECT_EQ(found.found, found.queries) << "sound recall misses nothing that wins";
  EXPECT_GT(found.lower, 0.8);
  options.policy.recall = false;
  RecallStream blind(model_, options);
  blind.prefill(text_, nullptr);
  decode_all(blind, more_);
  EXPECT_EQ(blind.report().audit.found, 0);
  EXPECT_GT(blind.report().audit.queries, 20);
}

// Queries like those that calibrated find their best row as often as was promised.
TEST_F(RecallStreamTest, TheTargetIsMet) {
  StreamOptions options = small_blocks();
  options.policy.block_rows = 512;
  RecallStream stream(model_, options);
  stream.prefill(random_tokens(1040, kVocab, 16), nullptr);
  decode_all(stream, random_tokens(64, kVocab, 14));
  stream.settle();
  const StreamMark mark = stream.mark();
  options.audit_steps = 1;
  RecallStream audited(model_, options, stream.copy_rows(0), mark.layers);
  decode_all(audited, random_tokens(250, kVocab, 15));
  const RecallReport report = audited.report();
  std::printf("recall %ld of %ld, %.3f to %.3f; z %.2f and %.2f\n",
              static_cast<long>(report.audit.found), static_cast<long>(report.audit.queries),
              report.audit.lower, report.audit.upper, report.layers[0].calibration.z,
              report.layers[1].calibration.z);
  for (const RecallLayerReport& layer : report.layers) EXPECT_TRUE(layer.calibration.holds());
  EXPECT_GT(report.audit.queries, 300);
  EXPECT_GE(report.audit.found, report.audit.queries * 9 / 10);
}

// A target that is missed makes the stream calibrate again: here the answers change their kind.
TEST_F(RecallStreamTest, AMissedTargetRecalibrates) {
  StreamOptions options = small_blocks();
  options.audit_steps = 1;
  options.policy.max_steps = 16;
  options.policy.top_per_head = 1;  // loses rows that the calibration counts on
  RecallStream stream(model_, options);
  stream.prefill(text_, nullptr);
  decode_all(stream, random_tokens(250, kVocab, 13));
  EXPECT_GT(stream.report().audit.recalibrations, 0);
  for (const RecallLayerReport& layer : stream.report().layers) {
    EXPECT_TRUE(layer.calibration.notes & kRowsCapped);
    EXPECT_FALSE(layer.calibration.holds());
  }
}

// What an audit refuted promises nothing, also where the stream turns back to it.
TEST_F(RecallStreamTest, AMissedTargetIsNoPromise) {
  StreamOptions options = small_blocks();
  RecallStream calibrated(model_, options);
  calibrated.prefill(text_, nullptr);
  decode_all(calibrated, random_tokens(64, kVocab, 14));
  calibrated.settle();
  std::vector<RecallState> layers = calibrated.mark().layers;
  for (RecallState& layer : layers) {
    ASSERT_TRUE(layer.calibration.state.holds());
    layer.calibration.state.z = -8;  // next to nothing fires
  }
  options.audit_steps = 1;
  RecallStream stream(model_, options, calibrated.copy_rows(0), layers);
  const StreamMark mark = stream.mark();
  const auto n_refuted = [&] {
    int n = 0;
    for (const RecallLayerReport& layer : stream.report().layers) {
      const bool missed = (layer.calibration.notes & kTargetMissed) != 0;
      EXPECT_FALSE(missed && layer.calibration.holds());
      n += missed ? 1 : 0;
    }
    return n;
  };
  EXPECT_EQ(n_refuted(), 0);
  for (const Token token : random_tokens(60, kVocab, 15)) {
    stream.decode(token);
    if (n_refuted() > 0) break;
  }
  EXPECT_GT(n_refuted(), 0);
  stream.rewind(mark);
  EXPECT_GT(n_refuted(), 0);
}

}  // namespace
}  // namespace ctxzip::test
