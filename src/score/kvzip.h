// KVzip: how much each cached pair is attended to while the model repeats its own context
// (arXiv 2505.23416, section 3; the passes themselves are run by the engine).
#pragma once

#include <cstdint>
#include <vector>

#include "attention/cache_attention.h"
#include "attention/segment_table.h"
#include "cache/dense_cache.h"
#include "ctxzip/model.h"
#include "ctxzip/zip.h"
#include "score/scores.h"

namespace ctxzip {

// Token ids of the instruction to repeat. `turn` follows every prompt.
struct RepeatPrompts {
  std::vector<Token> first;  // for the context's start
  std::vector<Token> later;  // for other places; the cue (the tokens just before the place) follows
  std::vector<Token> turn;   // end of the user turn, start of the answer
};

constexpr int64_t kCueTokens = 8;

// Which part of the context a pass is fed after the prompt (section 5.4's ablation).
enum class ReconInput : uint8_t { kFull, kFirst, kLast, kPrompt };
// kSoftmax: the largest weight. kLogit: the largest scaled q.k. kNormalised (KVzip+): a weight
// divided by the norm of the query's hidden state, times the norm of the value after the output
// projection.
enum class ReconScore : uint8_t { kSoftmax, kLogit, kNormalised };
enum class RepeatWording : uint8_t { kDefault, kParaphrase, kBlank };

struct ReconVariant {
  ReconInput input = ReconInput::kFull;
  ReconScore score = ReconScore::kSoftmax;
  RepeatWording wording = RepeatWording::kDefault;
  bool prompt_queries = true;  // false: only queries of the repeated context count
};

// The share of the context that kFirst and kLast feed.
constexpr double kPartialInput = 0.1;

// One teacher-forced pass, the prompt and part of the context, that scores context tokens
// [begin, end).
struct ReconstructionPass {
  int64_t begin = 0;
  int64_t end = 0;
  std::vector<Token> input;
  int64_t n_prompt = 0;  // input tokens before the context's own
};

// Feeds the very tokens that it scores.
ReconstructionPass reconstruction_pass(const RepeatPrompts& prompts,
                                       const std::vector<Token>& context, int64_t begin,
                                       int64_t end);

// Passes are fed `chunk_tokens` at most. With ReconInput::kFull each scores what it is fed, else
// all of the context.
std::vector<ReconstructionPass> plan_reconstruction(const RepeatPrompts& prompts,
                                                    const std::vector<Token>& context,
                                                    int64_t chunk_tokens,
                                                    ReconInput input = ReconInput::kFull);

// Tokens by which a pass is longer than its chunk, at most.
int64_t longest_prompt(const RepeatPrompts& prompts);

// A prefilled context before eviction.
struct FullRows {
  const LayerMap& layers;
  const DenseCache& global;
  const FrozenLayers& window;  // what local and recurrent layers hold before the pass
  int64_t n_prefix = 0;
};

// What one pass attends to, and where its scores go. Prefix, chunk and the pass's own rows come
// first: the score's softmax runs over exactly those (the subset of section 3.2). With kFull the
// rest of the cache follows.
struct PassAttention {
  SegmentTable past;
  int own_place = 0;
  ScoreSink sink;
};

// `scores` holds log values while passes run (start_scores before, finish_scores after) and must
// outlive the result. `value_logs` (kNormalised only): as output_norm_logs gives them, for the same
// context tokens as `scores`.
//
// Local attention to a chunk: `prefix_and_chunk` has those two segments of global layers, in this
// order. More may be added to the result's `past`.
PassAttention chunk_attention(SegmentTable prefix_and_chunk, int64_t chunk_begin, Scores& scores,
                              ReconScore score = ReconScore::kSoftmax,
                              const float* value_logs = nullptr);
// The same within a full cache, windows included.
PassAttention pass_attention(const FullRows& rows, const ReconstructionPass& pass,
                             ReconAttention attention, Scores& scores,
                             ReconScore score = ReconScore::kSoftmax,
                             const float* value_logs = nullptr);

Scores start_scores(int64_t n_layer, int64_t n_kv_head, int64_t n_context);
// Logs to probabilities, logits as they are; pairs that no pass looked at get the lowest value.
void finish_scores(Scores& scores, ReconScore score = ReconScore::kSoftmax);

}  // namespace ctxzip
