// Decoding on top of a long context, against libllama in the same process and run: tokens per
// second with the whole cache and with 30% of it.
//   bench_decode [MODEL.gguf [CONTEXT_TOKENS [ROUNDS]]]
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <deque>
#include <fstream>
#include <iterator>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "attention/segment_table.h"
#include "ctxzip/error.h"
#include "engine/zipper.h"
#include "support/engine_run.h"
#include "support/libllama.h"

namespace ctxzip {
namespace {

constexpr int kThreads = 2;
constexpr int64_t kContextTokens = 7168;
constexpr int kRounds = 7;
constexpr int64_t kBatch = 512;
constexpr size_t kDecodeTokens = 24;  // timed in each round
// Of issue 3: times libllama's tokens per second at 7,168 tokens of SmolLM2 context.
struct Target {
  double ratio;
  double speedup;
};
constexpr Target kTargets[] = {{1.0, 1.6}, {0.3, 2.3}};

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  const size_t middle = values.size() / 2;
  return values.size() % 2 == 1 ? values[middle] : (values[middle - 1] + values[middle]) / 2;
}

// The sample document, over and over.
std::vector<Token> context_tokens(const Model& model, int64_t n_tokens) {
  std::ifstream in(test::data_path("sample.txt"), std::ios::binary);
  const std::string text{std::istreambuf_iterator<char>(in), {}};
  const std::vector<Token> once = model.tokenize(text);
  std::vector<Token> tokens;
  while (static_cast<int64_t>(tokens.size()) < n_tokens) {
    tokens.insert(tokens.end(), once.begin(), once.end());
  }
  tokens.resize(static_cast<size_t>(n_tokens));
  return tokens;
}

template <typename Feed>
double tokens_per_second(std::span<const Token> tokens, Feed feed) {
  feed(tokens.first(1));  // builds the graph
  const auto start = std::chrono::steady_clock::now();
  for (size_t at = 1; at < tokens.size(); ++at) feed(tokens.subspan(at, 1));
  const std::chrono::duration<double> elapsed = std::chrono::steady_clock::now() - start;
  return static_cast<double>(tokens.size() - 1) / elapsed.count();
}

// One way of ours: a context zipped to `ratio` (which rows stay does not matter for the time).
class OurDecode {
 public:
  OurDecode(Zipper& zipper, const Model& model, double ratio)
      : context_(zip_at(zipper, ratio)), past_(segment_table(*model.state())) {
    past_.add(context_.state()->rows);
    run_ = std::make_unique<test::TailRun>(model, past_, context_.state()->rows.n_positions(), 512);
  }

  OurDecode(const OurDecode&) = delete;  // run_ points to past_
  OurDecode& operator=(const OurDecode&) = delete;

  double round(std::span<const Token> tokens) {
    run_->tail().truncate(0);
    return tokens_per_second(tokens, [&](std::span<const Token> next) { run_->feed(next, 1); });
  }

  int64_t kv_bytes() const { return context_.report().kv_bytes_kept; }

 private:
  static Context zip_at(Zipper& zipper, double ratio) {
    const KeepSet kept =
        zipper.select(Method::kRandom, Budget{.ratio = ratio}, Allocation::kGlobal);
    return zipper.copy(Method::kRandom, Allocation::kGlobal, kept);
  }

  Context context_;
  SegmentTable past_;
  std::unique_ptr<test::TailRun> run_;
};

int run(const std::string& path, int64_t n_context, int n_rounds) {
  const Model model = Model::load(path, {.n_threads = kThreads});
  const std::vector<Token> tokens = context_tokens(model, n_context + kDecodeTokens + 1);
  const auto context = std::span(tokens).first(static_cast<size_t>(n_context));
  const auto next = std::span(tokens).subspan(static_cast<size_t>(n_context));

  std::fprintf(stderr, "prefilling %lld tokens twice (ctxzip, libllama) ...\n",
               static_cast<long long>(n_context));
  const ZipOptions options = {.allow_long = true, .self_check = false, .batch_tokens = kBatch};
  const std::vector<Token> document(context.begin(), context.end());
  Zipper zipper(model, plan_zip(*model.state(), PromptLayout{}, document, options), options);
  zipper.prefill();
  std::deque<OurDecode> ours;  // never moved
  for (const Target& target : kTargets) ours.emplace_back(zipper, model, target.ratio);
  test::Libllama peer(path, {.f32_cache = false,
                             .n_threads = kThreads,
                             .n_ctx = n_context + 2 * static_cast<int64_t>(kDecodeTokens),
                             .flash_attention = true});
  peer.feed_last(context, kBatch);

  std::vector<double> peer_speed;
  std::vector<std::vector<double>> our_speed(ours.size());
  std::vector<std::vector<double>> speedup(ours.size());
  for (int round = 0; round < n_rounds; ++round) {
    peer.truncate(n_context);
    peer_speed.push_back(
        tokens_per_second(next, [&](std::span<const Token> part) { peer.feed(part, 1); }));
    for (size_t way = 0; way < ours.size(); ++way) {
      our_speed[way].push_back(ours[way].round(next));
      speedup[way].push_back(our_speed[way].back() / peer_speed.back());
    }
  }

  std::printf(
      "bench_decode: %s, %lld context tokens, %d threads, %d interleaved rounds of %zu "
      "tokens, medians (least and most of the rounds)\n\n",
      model.info().name.c_str(), static_cast<long long>(n_context), kThreads, n_rounds,
      kDecodeTokens);
  std::printf("%-30s %10s %10s %24s %8s\n", "", "KV MiB", "tokens/s", "x libllama", "target");
  std::printf("%-30s %10.1f %10.1f\n", "libllama, f16, flash attention",
              static_cast<double>(zipper.full_rows().global.shape().pair_size()) *
                  static_cast<double>(model.info().n_layer * model.info().n_kv_head * n_context) /
                  (1 << 20),
              median(peer_speed));
  for (size_t way = 0; way < ours.size(); ++way) {
    const auto [least, most] = std::minmax_element(speedup[way].begin(), speedup[way].end());
    std::printf("ctxzip, ratio %-16.1f %10.1f %10.1f %10.2f (%.2f to %.2f) %8.1f\n",
                kTargets[way].ratio, static_cast<double>(ours[way].kv_bytes()) / (1 << 20),
                median(our_speed[way]), median(speedup[way]), *least, *most, kTargets[way].speedup);
  }
  return 0;
}

}  // namespace
}  // namespace ctxzip

int main(int argc, char** argv) {
  const std::string path = argc > 1 ? argv[1] : ctxzip::test::model_path(ctxzip::test::kSmolLm2);
  const int64_t n_context = argc > 2 ? std::atoll(argv[2]) : ctxzip::kContextTokens;
  const int n_rounds = argc > 3 ? std::atoi(argv[3]) : ctxzip::kRounds;
  if (argc > 4 || n_context < 1 || n_rounds < 1) {
    std::fprintf(stderr, "usage: bench_decode [MODEL.gguf [CONTEXT_TOKENS [ROUNDS]]]\n");
    return 2;
  }
  try {
    return ctxzip::run(path, n_context, n_rounds);
  } catch (const ctxzip::Error& error) {
    std::fprintf(stderr, "bench_decode: %s\n", error.what());
    return 1;
  }
}
