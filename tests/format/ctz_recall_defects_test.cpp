// Defects of a context under VestigeKV, one per test; checksums are right unless they are the
// defect.
#include <cmath>
#include <cstring>
#include <limits>
#include <string>

#include "ctz_defect.h"
#include "format/ctz_layout.h"

namespace ctxzip {
namespace {

class CtzRecallDefect : public CtzDefect {
 protected:
  CtzRecallDefect() {
    valid_ = to_bytes(make_sample({.layers = "gg",
                                   .value_dim = 16,
                                   .n_kv_head = 1,
                                   .head_dim = 24,
                                   .n_context = 175,
                                   .ratio = 1,
                                   .n_closed = 60,
                                   .n_observed = 4}));
    raw_ = RawGguf(valid_);
  }
  std::byte* tensor(const std::string& name) {
    for (const RawTensor& each : raw_.tensors) {
      if (each.name == name) return raw_.data.data() + each.offset;
    }
    ADD_FAILURE() << "no tensor " << name;
    return raw_.data.data();
  }
};

TEST_F(CtzRecallDefect, RebuiltWithoutDefectIsTheSame) { EXPECT_EQ(raw_.build(), valid_); }
TEST_F(CtzRecallDefect, WithoutItsKeys) {
  for (const RawKey& key : raw_.keys) {
    if (key.name.rfind("ctxzip.policy", 0) != 0) continue;
    RawGguf raw(valid_);
    raw.erase(key.name);
    expect_refused(raw.build(), key.name + " is missing");
  }
}
TEST_F(CtzRecallDefect, ReadAsVersion3) {
  raw_.set(kKeyVersion, kU32, uint32_t{3});
  expect_refused("tensors, expected 3");
}
TEST_F(CtzRecallDefect, AnotherPolicy) {
  raw_.set_string("ctxzip.policy", "other");
  expect_refused("ctxzip.policy is 'other', expected 'vestige'");
}
TEST_F(CtzRecallDefect, SettingsThatDoNotFit) {
  raw_.set("ctxzip.policy.block_rows", kI64, int64_t{1});
  expect_refused("the block length is 1");
}
TEST_F(CtzRecallDefect, ARankBeyondTheLatent) {
  raw_.set("ctxzip.policy.sketch_rank", kI64, std::numeric_limits<int64_t>::max() / 8 * 8);
  expect_refused("expected a multiple of 8 below the latent of 16");
}
TEST_F(CtzRecallDefect, AbsurdSteps) {
  raw_.set("ctxzip.policy.max_steps", kI64, std::numeric_limits<int64_t>::max());
  expect_refused("max_steps is 9223372036854775807");
}
TEST_F(CtzRecallDefect, MoreClosedRowsThanRows) {
  for (const uint64_t layer : {0u, 1u}) {
    raw_.set_item("ctxzip.policy.closed", layer, uint32_t{179});
  }
  expect_refused("179 of 178 rows are closed");
}
TEST_F(CtzRecallDefect, ATailOfTwoBlocks) {
  for (const uint64_t layer : {0u, 1u}) {
    raw_.set_item("ctxzip.policy.closed", layer, uint32_t{50});
  }
  expect_refused("50 of 178 rows are closed");
}
TEST_F(CtzRecallDefect, LayersThatDiffer) {
  raw_.set_item("ctxzip.policy.closed", 1, uint32_t{59});
  expect_refused("59 of 178 rows are closed");
}
TEST_F(CtzRecallDefect, CountsOfWrongLength) {
  raw_.set_array_length("ctxzip.policy.hard", 1);
  raw_.key("ctxzip.policy.hard").payload.resize(12 + 4);
  expect_refused("ctxzip.policy.hard has 1 entries, expected 2");
}
TEST_F(CtzRecallDefect, AnUnknownStage) {
  raw_.set_item("ctxzip.policy.stage", 0, uint32_t{4});
  expect_refused("ctxzip.policy.stage has 2 entries, expected 2, each at most 3");
}
TEST_F(CtzRecallDefect, ProgressBeyondWhatWasObserved) {
  raw_.set_item("ctxzip.policy.labelled", 0, uint32_t{5});
  expect_refused("the calibration's progress does not fit the rows");
}
TEST_F(CtzRecallDefect, ObservedStepsUnlikeTheTensors) {
  raw_.set_item("ctxzip.policy.observed", 0, uint32_t{5});
  expect_refused("the tensor queries.0 is 24 x 9 x 4");
}
TEST_F(CtzRecallDefect, APartitionUnlikeSigma) {
  std::byte* const bitmap = tensor("partition.0");
  bitmap[1] ^= std::byte{0xff};
  expect_refused("kept rows are not those of largest sigma");
}
TEST_F(CtzRecallDefect, APartitionBeyondTheClosedRows) {
  tensor("partition.1")[7] |= std::byte{16};
  expect_refused("a partition marks row 60 of 60");
}
TEST_F(CtzRecallDefect, SigmaThatIsNoNumber) {
  const float nan = std::nanf("");
  std::memcpy(tensor("sigma.0") + 40, &nan, sizeof(nan));
  expect_refused("a value is no number");
}
TEST_F(CtzRecallDefect, ATargetThatIsNotThere) {
  const uint32_t row = 60;
  std::memcpy(tensor("target.0"), &row, sizeof(row));
  expect_refused("best row is not among the closed ones");
}

}  // namespace
}  // namespace ctxzip
