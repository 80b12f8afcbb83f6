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

// One teacher-forced pass: the prompt, then context tokens [begin, end) themselves.
struct ReconstructionPass {
  int64_t begin = 0;
  int64_t end = 0;
  std::vector<Token> input;
  int64_t n_prompt = 0;  // input tokens before the context's own
};

ReconstructionPass reconstruction_pass(const RepeatPrompts& prompts,
                                       const std::vector<Token>& context, int64_t begin,
                                       int64_t end);

// Chunks of `chunk_tokens`, the last one shorter.
std::vector<ReconstructionPass> plan_reconstruction(const RepeatPrompts& prompts,
                                                    const std::vector<Token>& context,
                                                    int64_t chunk_tokens);

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
// outlive the result.
//
// Local attention to a chunk: `prefix_and_chunk` has those two segments of global layers, in this
// order. More may be added to the result's `past`.
PassAttention chunk_attention(SegmentTable prefix_and_chunk, int64_t chunk_begin, Scores& scores);
// The same within a full cache, windows included.
PassAttention pass_attention(const FullRows& rows, const ReconstructionPass& pass,
                             ReconAttention attention, Scores& scores);

Scores start_scores(int64_t n_layer, int64_t n_kv_head, int64_t n_context);
// Logs to probabilities; pairs that no pass looked at get 0.
void finish_scores(Scores& scores);

}  // namespace ctxzip
