// VestigeKV in a model's graph: what a stream attends to, and what it leaves behind.
#include "engine/recall_stream.h"

#include <gtest/gtest.h>
#include <malloc.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <limits>
#include <optional>

#include "core/memory.h"
#include "ctxzip/error.h"
#include "recall_stream_fixture.h"

namespace ctxzip::test {
namespace {

// Of the largest logit, where sums are taken in another order.
constexpr double kTolerance = 1e-5;

// Of `expected`'s largest value.
double relative_difference(const std::vector<float>& actual, const std::vector<float>& expected) {
  EXPECT_EQ(actual.size(), expected.size());
  double worst = 0;
  double largest = 0;
  for (size_t at = 0; at < std::min(actual.size(), expected.size()); ++at) {
    const double value{expected[at]};
    worst = std::max(worst, std::abs(double{actual[at]} - value));
    largest = std::max(largest, std::abs(value));
  }
  return worst / largest;
}

// What the plain cache gives for the same tokens.
std::vector<float> plain(const Model& model, const std::vector<Token>& text,
                         const std::vector<Token>& more) {
  const SegmentTable past = segment_table(*model.state());
  TailRun run(model, past, 0);
  run.feed(text, 128);
  return run.feed(more, 1);
}

double exact_score(const MlaShape& shape, const float* query, const float* row) {
  double sum = 0;
  for (int64_t at = 0; at < shape.row_dim(); ++at) sum += double{query[at]} * double{row[at]};
  return sum * double{shape.scale};
}

struct Winners {
  int64_t n = 0;       // archived rows that score above all kept ones and the tail, for any head
  int64_t missed = 0;  // of these not attended to
};

// Of the last step in one of the layers, whose rows are f32.
Winners winners_of(const RecallAttention& layers, int64_t layer) {
  const RecallCache& cache = layers.cache(layer);
  const MlaShape& shape = cache.shape();
  const auto* closed = static_cast<const float*>(cache.closed_rows().data);
  const auto* tail = static_cast<const float*>(cache.tail_rows().data);
  std::vector<bool> wins(static_cast<size_t>(cache.n_closed()));
  for (int64_t head = 0; head < shape.n_head; ++head) {
    const float* query = layers.queries(layer) + head * shape.row_dim();
    const auto score_of = [&](const float* rows, int64_t row) {
      return exact_score(shape, query, rows + row * shape.row_dim());
    };
    double best = -std::numeric_limits<double>::infinity();
    for (const uint32_t row : cache.kept()) best = std::max(best, score_of(closed, row));
    for (int64_t row = 0; row < cache.n_tail(); ++row) best = std::max(best, score_of(tail, row));
    for (int64_t row = 0; row < cache.n_closed(); ++row) {
      if (score_of(closed, row) > best) wins[static_cast<size_t>(row)] = true;
    }
  }
  Winners result;
  const auto fetched = layers.step(layer).fetched();
  for (int64_t row = 0; row < cache.n_closed(); ++row) {
    if (!wins[static_cast<size_t>(row)]) continue;
    ++result.n;
    if (!std::binary_search(fetched.begin(), fetched.end(), row)) ++result.missed;
  }
  return result;
}

TEST_F(RecallStreamTest, KeepingAllIsPlainAttention) {
  StreamOptions options = small_blocks();
  options.policy.keep_ratio = 1;
  options.policy.recall = false;
  RecallStream kept(model_, options);
  const std::vector<float> after_text = floats(kept.prefill(text_, nullptr));
  RecallStream dense(model_, options);
  EXPECT_EQ(floats(dense.prefill(text_, nullptr)), after_text);
  EXPECT_EQ(kept.layers().cache(0).n_closed(), 3 * kBlock);
  EXPECT_EQ(kept.layers().cache(0).n_archived(), 0);
  // Closed rows are whole blocks of what the kernels sum at once: not a bit differs.
  dense.set_dense(true);
  const std::vector<float> logits = decode_all(kept, more_);
  EXPECT_EQ(logits, decode_all(dense, more_));
  const double difference = relative_difference(logits, plain(model_, text_, more_));
  std::printf("logits differ by %.1e of the largest from the plain cache's\n", difference);
  EXPECT_LE(difference, kTolerance);
  EXPECT_EQ(kept.report().bytes_read, kept.report().bytes_dense);
}

TEST_F(RecallStreamTest, SoundRecallFindsWhatDecides) {
  const std::vector<float> expected = plain(model_, text_, more_);
  const auto error_of = [&](bool recall, bool sound, RecallReport& report) {
    StreamOptions options = small_blocks();
    options.policy.recall = recall;
    options.policy.sound = sound;
    RecallStream stream(model_, options);
    stream.prefill(text_, nullptr);
    const double worst = relative_difference(decode_all(stream, more_), expected);
    report = stream.report();
    return worst;
  };
  RecallReport off;
  RecallReport sound;
  RecallReport calibrated;
  const double without = error_of(false, false, off);
  const double with_sound = error_of(true, true, sound);
  error_of(true, false, calibrated);
  EXPECT_GT(without, 1e-2) << "the archive does not matter here: nothing is tested";
  EXPECT_LT(with_sound, without);
  EXPECT_EQ(off.fired_rows, 0);
  EXPECT_GT(sound.fired_rows, 0);
  EXPECT_GT(calibrated.fired_rows, 0);
  EXPECT_EQ(off.layer_steps, 2 * 40);
  EXPECT_LT(off.bytes_read, off.bytes_dense);
  EXPECT_NEAR(off.effective_ratio, 1040.0 / (4 + 64 + 16), 1e-9) << "a block closed meanwhile";
  ASSERT_TRUE(sound.excluded_mass_limit);
  EXPECT_LE(*sound.excluded_mass_limit, 1);
}

// Whatever the graph asks for: no archived row that scores above all that is attended to anyway is
// left out, in any layer and step. Without recall there are such rows.
TEST_F(RecallStreamTest, SoundRecallMissesNoRowThatWins) {
  for (const bool recall : {true, false}) {
    StreamOptions options = small_blocks();
    options.policy.sound = true;
    options.policy.recall = recall;
    options.policy.sketch_rank = 24;  // limits so tight that some rows are left out
    RecallStream stream(model_, options);
    stream.prefill(text_, nullptr);
    Winners all;
    int64_t n_fetched = 0;
    int n_steps = 0;
    for (const Token token : more_) {
      const int64_t n_closed = stream.layers().cache(0).n_closed();
      stream.decode(token);
      // A block that closed after the step has changed what is archived.
      if (stream.layers().cache(0).n_closed() != n_closed) continue;
      ++n_steps;
      for (int64_t layer = 0; layer < stream.layers().n_layer(); ++layer) {
        const Winners here = winners_of(stream.layers(), layer);
        all.n += here.n;
        all.missed += here.missed;
        EXPECT_FALSE(stream.layers().step(layer).counts().overflowed);
        n_fetched += stream.layers().step(layer).counts().fetched_rows;
      }
    }
    EXPECT_EQ(n_steps, 39);
    EXPECT_GT(all.n, 100);
    EXPECT_EQ(all.missed, recall ? 0 : all.n);
    if (recall) {
      EXPECT_LT(n_fetched, stream.report().layer_steps * stream.report().layers[0].archived / 2)
          << "most is fetched: little is tested";
    }
    std::printf("%ld rows win, %ld are missed, %ld fetched\n", static_cast<long>(all.n),
                static_cast<long>(all.missed), static_cast<long>(n_fetched));
  }
}

TEST_F(RecallStreamTest, TailsAroundABlock) {
  for (const int64_t n : {kBlock - 1, kBlock, kBlock + 1}) {
    const auto text = random_tokens(n, kVocab, 7);
    RecallStream stream(model_, small_blocks());
    stream.prefill(text, nullptr);
    EXPECT_EQ(stream.layers().cache(0).n_closed(), n / kBlock * kBlock) << n;
    EXPECT_EQ(stream.layers().cache(1).n_tail(), n % kBlock) << n;
    const std::vector<float> logits = decode_all(stream, {1, 2, 3});
    EXPECT_EQ(stream.layers().cache(0).n_closed(), kBlock) << n;
    if (n == kBlock - 1) {  // nothing was archived before the first step
      const std::vector<float> first(logits.begin(), logits.begin() + kVocab);
      EXPECT_LE(relative_difference(first, plain(model_, text, {1})), kTolerance);
    }
  }
}

// Nothing is closed: an index without entries, a scan of nothing.
TEST_F(RecallStreamTest, AnEmptyArchive) {
  const auto text = random_tokens(60, kVocab, 8);
  RecallStream stream(model_, small_blocks());
  stream.prefill(text, nullptr);
  EXPECT_LE(relative_difference(decode_all(stream, more_), plain(model_, text, more_)), kTolerance);
  EXPECT_EQ(stream.report().fired_rows, 0);
  EXPECT_EQ(stream.report().layers[0].calibration.phase, CalibrationPhase::kProvisional);
  RecallStream empty(model_, small_blocks());
  EXPECT_LE(relative_difference(decode_all(empty, more_), plain(model_, {}, more_)), kTolerance);
}

TEST_F(RecallStreamTest, AnOverflowAttendsToEverything) {
  StreamOptions options = small_blocks();
  options.policy.sound = true;
  options.policy.max_fetched = 1;
  RecallStream stream(model_, options);
  stream.prefill(text_, nullptr);
  EXPECT_LE(relative_difference(decode_all(stream, more_), plain(model_, text_, more_)),
            kTolerance);
  EXPECT_GT(stream.report().overflowed, 0);
}

TEST_F(RecallStreamTest, ClosingAsItFillsOrAtTheEndIsTheSame) {
  StreamOptions options = small_blocks();
  RecallStream small(model_, options);
  options.batch_tokens = 512;
  RecallStream large(model_, options);
  small.prefill(std::span(text_).first(700), nullptr);
  small.prefill(std::span(text_).subspan(700), nullptr);
  large.prefill(text_, nullptr);
  for (int64_t at = 0; at < 2; ++at) {
    const RecallState a = small.layers().cache(at).state();
    const RecallState b = large.layers().cache(at).state();
    EXPECT_EQ(a.n_closed, b.n_closed);
    EXPECT_EQ(a.kept.size(), b.kept.size());
    EXPECT_EQ(a.calibration, b.calibration);
  }
}

TEST_F(RecallStreamTest, ThreadsDoNotMatter) {
  std::vector<float> first;
  for (const int n_threads : {1, 2, 3}) {
    const Model model = tiny(n_threads, false);
    RecallStream stream(model, small_blocks());
    stream.prefill(text_, nullptr);
    const std::vector<float> logits = decode_all(stream, more_);
    if (first.empty()) first = logits;
    EXPECT_EQ(logits, first) << n_threads;
  }
}

TEST_F(RecallStreamTest, AnArchiveInFilesChangesNoBit) {
  StreamOptions options = small_blocks();
  RecallStream memory(model_, options);
  options.policy.archive_path = temp_path("archive");
  RecallStream files(model_, options);
  memory.prefill(text_, nullptr);
  files.prefill(text_, nullptr);
  EXPECT_EQ(decode_all(files, more_), decode_all(memory, more_));
  EXPECT_GT(files.report().fetched_rows, 0);
  options.policy.archive_path = "/nowhere/at/all";
  EXPECT_THROW(RecallStream(model_, options), Error);
}

// What leaves memory is the archive; kept rows, index and tail stay.
TEST(RecallStreamMemory, AnArchiveInFilesIsNotResident) {
  const std::string path = temp_path("wide.gguf");
  write_tiny_model({.architecture = "kimi-linear",
                    .n_expert = 0,
                    .latent = 512,
                    .branch = 64,
                    .key_dim = 80,
                    .kinds = "rgg"},
                   path);
  const Model model = Model::load(path, {.n_threads = 1});
  const auto text = random_tokens(2400, kVocab, 5);
  const auto grown_by = [&](const std::string& archive, RecallReport& report) {
    StreamOptions options;
    options.policy.block_rows = 256;
    options.policy.archive_path = archive;
    malloc_trim(0);  // else a run would use what the one before it gave back
    const auto resident = [] {
      const ResidentMemory memory = resident_memory();
      return memory.anonymous_bytes + memory.file_bytes;
    };
    const int64_t before = resident();
    RecallStream stream(model, options);
    stream.prefill(std::span(text).first(2380), nullptr);
    stream.prefill(std::span(text).subspan(2380), nullptr);
    report = stream.report();
    // The prompt attended to everything: what it brought in has to be gone.
    return resident() - before;
  };
  RecallReport report;
  grown_by("", report);  // maps the weights
  const int64_t in_memory = grown_by("", report);
  const int64_t in_files = grown_by(temp_path("archive"), report);
  std::printf("resident %.1f MB, with the archive of %.1f MB in files %.1f MB\n",
              static_cast<double>(in_memory) / 1e6, static_cast<double>(report.archive_bytes) / 1e6,
              static_cast<double>(in_files) / 1e6);
  EXPECT_EQ(report.archive_bytes, 2 * 2304 * 1152);
  EXPECT_LT(report.resident_bytes, report.archive_bytes * 35 / 100);
  EXPECT_LT(in_files, in_memory - report.archive_bytes * 8 / 10);
}

// Turning back forgets what came after the mark, a calibration and closed blocks with it.
TEST_F(RecallStreamTest, ARewoundStreamIsAsItWas) {
  RecallStream stream(model_, small_blocks());
  stream.prefill(std::span(text_).first(900), nullptr);
  decode_all(stream, random_tokens(5, kVocab, 9));
  const StreamMark mark = stream.mark();
  const auto long_more = random_tokens(200, kVocab, 10);
  const std::vector<float> expected = decode_all(stream, long_more);
  EXPECT_NE(stream.report().layers[0].calibration.phase, CalibrationPhase::kProvisional);
  EXPECT_GT(stream.layers().cache(0).n_closed(), mark.layers[0].n_closed);
  for (int round = 0; round < 2; ++round) {
    stream.rewind(mark);
    EXPECT_TRUE(stream.mark().layers == mark.layers);
    EXPECT_EQ(decode_all(stream, long_more), expected);
    stream.prefill(std::span(text_).first(300), nullptr);
  }
}

// Another conversation in the same place sees nothing of the one before.
TEST_F(RecallStreamTest, AUsedSlotForgetsItsPredecessor) {
  RecallStream fresh(model_, small_blocks());
  const StreamMark start = fresh.mark();
  RecallStream used(model_, small_blocks());
  used.prefill(random_tokens(1500, kVocab, 11), nullptr);
  decode_all(used, random_tokens(100, kVocab, 12));
  used.rewind(start);
  for (RecallStream* stream : {&fresh, &used}) stream->prefill(text_, nullptr);
  EXPECT_EQ(decode_all(used, more_), decode_all(fresh, more_));
}

TEST_F(RecallStreamTest, AStoredStreamGoesOnAsIfItNeverHadBeen) {
  for (const int64_t n_steps : {0, 5, 30, 150}) {  // before, in and after a calibration
    RecallStream stream(model_, small_blocks());
    stream.prefill(std::span(text_).first(900), nullptr);
    decode_all(stream, random_tokens(n_steps, kVocab, 9));
    const ContextRows rows = stream.copy_rows(0);
    const StreamMark mark = stream.mark();
    RecallStream restored(model_, small_blocks(), rows, mark.layers);
    EXPECT_TRUE(restored.mark().layers == mark.layers) << n_steps;
    EXPECT_EQ(decode_all(restored, more_), decode_all(stream, more_)) << n_steps;
  }
}

TEST_F(RecallStreamTest, ACancelledStepLeavesNoTrace) {
  RecallStream stream(model_, small_blocks());
  RecallStream undisturbed(model_, small_blocks());
  CancelToken cancel;
  cancel.cancel();
  stream.prefill(text_, nullptr);
  undisturbed.prefill(text_, nullptr);
  for (const Token token : more_) {
    EXPECT_THROW(stream.decode(7, &cancel), Error);
    EXPECT_FALSE(stream.report().excluded_mass_limit) << "the step before it is gone";
    EXPECT_THROW(stream.prefill(std::span(text_).first(20), &cancel), Error);
    EXPECT_EQ(floats(stream.decode(token)), floats(undisturbed.decode(token)));
  }
}

TEST_F(RecallStreamTest, TeacherForcing) {
  RecallStream stream(model_, small_blocks());
  const std::vector<float> before = floats(stream.prefill(text_, nullptr));
  const StreamMark mark = stream.mark();
  const std::vector<double> nats = forced_nll(stream, before, more_);
  ASSERT_EQ(nats.size(), more_.size());
  stream.rewind(mark);
  const std::vector<float> logits = floats(stream.decode(more_[0]));
  double sum = 0;
  for (const float logit : logits) sum += std::exp(double{logit});
  EXPECT_NEAR(nats[1], std::log(sum) - double{logits[static_cast<size_t>(more_[1])]}, 1e-6);
}

TEST_F(RecallStreamTest, ModelsThatItIsNotForAreNamed) {
  const auto refusal = [](const TinyModel& tiny_model, bool control) -> std::string {
    const std::string path = temp_path("refused_stream.gguf");
    write_tiny_model(tiny_model, path);
    try {
      StreamOptions options = small_blocks();
      options.control = control;
      RecallStream stream(Model::load(path), options);
      stream.prefill(random_tokens(600, kVocab, 1), nullptr);
      stream.decode(1);
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::kUnsupported);
      return error.what();
    }
    return "";
  };
  const auto names = [](const std::string& message, const char* what) {
    EXPECT_NE(message.find(what), std::string::npos) << message;
  };
  for (const char* architecture : {"llama", "granitehybrid"}) {
    for (const bool control : {false, true}) {
      const std::string message = refusal({.architecture = architecture}, control);
      names(message, architecture);
      names(message, "kimi-linear");
      names(message, "without --policy");
    }
  }
  names(refusal({.architecture = "deepseek2"}, false), "rotates");
  EXPECT_EQ(refusal({.architecture = "deepseek2"}, true), "");
}

}  // namespace
}  // namespace ctxzip::test
