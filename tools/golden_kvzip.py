"""Golden vectors for KVzip scores: tiny random models of each architecture.

    python tools/golden_kvzip.py [--out tests/data/golden]

Writes tiny-NAME.gguf (float32, no vocabulary, token ids only) and tiny-NAME-kvzip.json for each NAME in MODELS.
Scores come from kvpress's own KVzipPress, fed with ids in place of a tokenizer. A plain float64 forward pass that
reads the written GGUF file computes them again; both must agree, so the file, its rope order and the score are checked.
Needs torch, transformers, kvpress==0.5.5, gguf, numpy. Takes under a minute.
"""
import argparse, base64, json, math, os
import gguf, numpy as np, torch
from kvpress.presses import kvzip_press
from transformers import (DynamicCache, LlamaConfig, LlamaForCausalLM, Qwen2Config, Qwen2ForCausalLM, Qwen3Config,
                          Qwen3ForCausalLM)

VOCAB, HIDDEN, LAYERS, Q_HEADS, KV_HEADS, FFN, CHUNK = 384, 64, 3, 4, 2, 128, 128
N_PREFIX, N_CONTEXT, N_FIRST, N_LATER, N_TURN, N_TAIL, N_QUESTION = 5, 300, 7, 9, 4, 8, 12
KEEP = 0.3
SIZES = dict(vocab_size=VOCAB, hidden_size=HIDDEN, num_hidden_layers=LAYERS, num_attention_heads=Q_HEADS,
             num_key_value_heads=KV_HEADS, intermediate_size=FFN, max_position_embeddings=4096)
LLAMA3_ROPE = dict(rope_type="llama3", rope_theta=1e3, factor=8.0, low_freq_factor=1.0, high_freq_factor=4.0,
                   original_max_position_embeddings=256)
MODELS = {
    "llama": (LlamaForCausalLM, LlamaConfig, dict(rope_theta=1e4, tie_word_embeddings=False, rms_norm_eps=1e-5), 1),
    "qwen2": (Qwen2ForCausalLM, Qwen2Config, dict(rope_theta=1e6, tie_word_embeddings=True, rms_norm_eps=1e-6), 2),
    "llama3": (LlamaForCausalLM, LlamaConfig, dict(rope_parameters=LLAMA3_ROPE, tie_word_embeddings=False,
                                                   rms_norm_eps=1e-5), 3),
    "qwen3": (Qwen3ForCausalLM, Qwen3Config, dict(rope_theta=1e6, tie_word_embeddings=True, rms_norm_eps=1e-6,
                                                  head_dim=24), 4),
}
# Standard deviations: query-key logits near 2, residual branches as large as the embedding, logits near 2.4.
STD = {"embed_tokens": 0.3, "lm_head": 0.3, "q_proj": 0.175, "k_proj": 0.175, "v_proj": 0.125, "o_proj": 0.06,
       "gate_proj": 0.125, "up_proj": 0.125, "down_proj": 0.07}
NORM_MEAN = {"q_norm": 1.4, "k_norm": 1.4}      # 1 for other norms
NAMES = {"model.embed_tokens": "token_embd", "model.norm": "output_norm", "lm_head": "output"}
PARTS = {"input_layernorm": "attn_norm", "post_attention_layernorm": "ffn_norm", "q_proj": "attn_q", "k_proj": "attn_k",
         "v_proj": "attn_v", "o_proj": "attn_output", "q_norm": "attn_q_norm", "k_norm": "attn_k_norm",
         "gate_proj": "ffn_gate", "up_proj": "ffn_up", "down_proj": "ffn_down"}


def make_model(key):
    cls, config, options, seed = MODELS[key]
    model = cls(config(**SIZES, **options)).float().eval()
    rng = np.random.default_rng(seed)
    for tensor, p in sorted(model.named_parameters()):
        part = tensor.split(".")[-2]
        if part.endswith("norm"): w = NORM_MEAN.get(part, 1) + 0.2 * rng.standard_normal(p.shape)
        elif tensor.endswith("bias"): w = 0.5 * rng.standard_normal(p.shape)
        else: w = STD[part] * rng.standard_normal(p.shape)
        p.data.copy_(torch.from_numpy(w.astype(np.float32)))
    return model


def permute(w, heads):
    """Rows of a head from halves (i, i + d/2) to neighbours (2i, 2i + 1), as llama.cpp's converter does for llama."""
    return w.reshape(heads, 2, w.shape[0] // heads // 2, *w.shape[1:]).swapaxes(1, 2).reshape(w.shape)


def rope_factors(rope, dim):
    """What ggml divides the frequencies by: 1 for fast ones, rope["factor"] for slow ones, between for the rest."""
    freq = rope["rope_theta"] ** (-np.arange(0, dim, 2) / dim)
    turns = rope["original_max_position_embeddings"] * freq / (2 * math.pi)
    low, high = rope["low_freq_factor"], rope["high_freq_factor"]
    smooth = np.clip((turns - low) / (high - low), 0, 1)
    assert {0, 1} < set(smooth), "not all three kinds of frequencies occur"
    return (1 / ((1 - smooth) / rope["factor"] + smooth)).astype(np.float32)


def write_gguf(model, name, path):
    arch, rope, dim = model.config.model_type, model.config.rope_parameters, model.model.layers[0].self_attn.head_dim
    out = gguf.GGUFWriter(path, arch)
    out.add_name(name); out.add_file_type(gguf.LlamaFileType.ALL_F32)
    out.add_context_length(4096); out.add_embedding_length(HIDDEN); out.add_block_count(LAYERS)
    out.add_feed_forward_length(FFN); out.add_head_count(Q_HEADS); out.add_head_count_kv(KV_HEADS)
    out.add_layer_norm_rms_eps(model.config.rms_norm_eps); out.add_rope_freq_base(rope["rope_theta"])
    if arch == "qwen3": out.add_key_length(dim); out.add_value_length(dim)
    else: out.add_rope_dimension_count(dim)
    out.add_vocab_size(VOCAB); out.add_tokenizer_model("none")
    if rope["rope_type"] == "llama3": out.add_tensor("rope_freqs.weight", rope_factors(rope, dim))
    for tensor, p in model.named_parameters():      # a tied output is listed once, as the embedding
        stem, kind = tensor.rsplit(".", 1)
        if stem in NAMES: to = NAMES[stem]
        else: to = f"blk.{stem.split('.')[2]}.{PARTS[stem.split('.')[-1]]}"
        w = p.detach().numpy()
        if arch == "llama" and to.endswith(("attn_q", "attn_k")): w = permute(w, Q_HEADS if to.endswith("q") else KV_HEADS)
        out.add_tensor(f"{to}.{kind}", np.ascontiguousarray(w))
    out.write_header_to_file(); out.write_kv_data_to_file(); out.write_tensors_to_file(); out.close()


class Reference:
    """Float64 forward pass from a GGUF file. A cache is a list over layers of [keys, values], each (kv_head, row, dim)."""

    def __init__(self, path):
        reader = gguf.GGUFReader(path)
        get = lambda key: reader.get_field(key) and reader.get_field(key).contents()
        self.arch = get("general.architecture")
        at = lambda key: get(f"{self.arch}.{key}")
        self.layers, self.q_heads, self.kv_heads = at("block_count"), at("attention.head_count"), at("attention.head_count_kv")
        self.dim = at("attention.key_length") or at("embedding_length") // self.q_heads
        self.eps, self.theta = at("attention.layer_norm_rms_epsilon"), at("rope.freq_base")
        self.w = {t.name: np.array(t.data, np.float64) for t in reader.tensors}

    def norm(self, x, name): return x / np.sqrt((x * x).mean(-1, keepdims=True) + self.eps) * self.w[name + ".weight"]

    def linear(self, x, name):
        y = x @ self.w[name + ".weight"].T
        return y + self.w[name + ".bias"] if name + ".bias" in self.w else y

    def heads(self, x, name, n):
        """Projection cut into n heads, (head, row, dim), each row of a head normed where the file has a norm for it."""
        y = self.linear(x, name).reshape(len(x), n, self.dim).swapaxes(0, 1)
        return self.norm(y, name + "_norm") if name + "_norm.weight" in self.w else y

    def rope(self, x, pos):
        freq = self.theta ** (-np.arange(0, self.dim, 2) / self.dim) / self.w.get("rope_freqs.weight", 1)
        angle = np.array(pos)[:, None] * freq
        cos, sin, half = np.cos(angle), np.sin(angle), self.dim // 2
        a, b = (slice(0, None, 2), slice(1, None, 2)) if self.arch == "llama" else (slice(0, half), slice(half, None))
        out = np.empty_like(x)
        out[..., a], out[..., b] = x[..., a] * cos - x[..., b] * sin, x[..., b] * cos + x[..., a] * sin
        return out

    def forward(self, ids, past, pos0, keep=None, score=None):
        """Returns (hidden rows, cache with this pass's rows, scores). keep[layer] (kv_head, row): past rows that may be
        attended. score = (n_sink, first, last): softmax over sinks, rows first..last and this pass; columns first..last."""
        x, n, cache, scores = self.w["token_embd.weight"][ids], len(ids), [], []
        pos, group = range(pos0, pos0 + n), self.q_heads // self.kv_heads
        for l in range(self.layers):
            blk, h = f"blk.{l}.", self.norm(x, f"blk.{l}.attn_norm")
            q = self.rope(self.heads(h, blk + "attn_q", self.q_heads), pos)
            k = self.rope(self.heads(h, blk + "attn_k", self.kv_heads), pos)
            v = self.heads(h, blk + "attn_v", self.kv_heads)
            if past: k, v = np.concatenate([past[l][0], k], 1), np.concatenate([past[l][1], v], 1)
            rows, n_past = k.shape[1], k.shape[1] - n
            ok = np.arange(rows)[None] <= np.arange(n)[:, None] + n_past
            out, best = [], []
            for head in range(self.q_heads):
                kv = head // group
                logits = np.where(ok, q[head] @ k[kv].T / math.sqrt(self.dim), -np.inf)
                if score:
                    sink, first, last = score
                    cols = np.r_[0:sink, first:last, n_past:rows]
                    best.append(softmax(logits[:, cols])[:, sink : sink + last - first].max(0))
                if keep is not None: logits[:, :n_past] = np.where(keep[l][kv][None, :n_past], logits[:, :n_past], -np.inf)
                out.append(softmax(logits) @ v[kv])
            x = x + self.linear(np.stack(out, 1).reshape(n, -1), blk + "attn_output")
            h = self.norm(x, blk + "ffn_norm"); gate = self.linear(h, blk + "ffn_gate")
            x = x + self.linear(gate / (1 + np.exp(-gate)) * self.linear(h, blk + "ffn_up"), blk + "ffn_down")
            cache.append([k, v])
            if score: scores.append(np.stack(best).reshape(self.kv_heads, group, -1).max(1))
        return x, cache, np.array(scores)

    def logits(self, x):
        return self.norm(x, "output_norm") @ self.w.get("output.weight", self.w["token_embd.weight"]).T


def softmax(x):
    e = np.exp(x - x.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


def make_ids():
    rng = np.random.default_rng(7)
    draw = lambda n: rng.integers(0, VOCAB, n).tolist()
    d = {"prefix": draw(N_PREFIX), "context": draw(N_CONTEXT), "first": draw(N_FIRST), "later": draw(N_LATER),
         "turn": draw(N_TURN), "question": draw(N_QUESTION)}
    d["inputs"], d["n_prompt"] = [], []
    for a in range(0, N_CONTEXT, CHUNK):
        prompt = d["first"] + d["turn"] if a == 0 else d["later"] + d["context"][a - N_TAIL : a] + d["turn"]
        d["inputs"].append(prompt + d["context"][a : a + CHUNK]); d["n_prompt"].append(len(prompt))
    return d


class IdTokenizer:
    """Stands in for the tokenizer: gives fixed ids for exactly the texts that KVzipPress encodes."""
    chat_template = "ids"

    def __init__(self, d):
        self.table = {"<head>": d["prefix"], "<turn>": d["turn"], "\n\nRepeat the previous context exactly.": d["first"],
                      "\n\nRepeat the part of the previous context exactly, starting with": d["later"]}

    def from_pretrained(self, *_): return self

    def apply_chat_template(self, messages, **_): return "<head>" + messages[0]["content"] + "<turn>"

    def encode(self, text, **_): return torch.tensor([self.table[text]])


class Press(kvzip_press.KVzipPress):
    """KVzipPress that hands out its scores instead of masking keys. Nothing that computes them is changed."""

    def compress_post(self, model): self.result = self.score_val[:, 0].clone()


def kvpress_scores(model, d):
    seen, hook = [], model.model.register_forward_pre_hook(
        lambda _, args, kw: seen.append(kw["input_ids"][0].tolist()), with_kwargs=True)
    kvzip_press.AutoTokenizer = IdTokenizer(d)
    press = Press(compression_ratio=0.5, n_sink=N_PREFIX, chunk_size=CHUNK)
    with press(model): logits = model(input_ids=torch.tensor([d["prefix"] + d["context"]]), past_key_values=DynamicCache()).logits[0]
    hook.remove()
    assert seen[-len(d["inputs"]):] == d["inputs"], "kvpress built other inputs"
    return press.result[..., N_PREFIX:].numpy(), logits.numpy()


def bitmap(kept):
    """Base64 of bits ordered (layer, kv_head, position), lowest bit first, each head padded to a byte."""
    return base64.b64encode(np.packbits(kept, axis=-1, bitorder="little").tobytes()).decode()


def select(scores, keep):
    """The ceil(keep x pairs) highest scores of all layers and heads; equal scores: lower (layer, head, position) first."""
    kept = np.zeros(scores.size, bool)
    kept[np.argsort(-scores.reshape(-1), kind="stable")[: math.ceil(keep * scores.size)]] = True
    return kept.reshape(scores.shape)


def digits(x): return np.vectorize(lambda v: float(f"{v:.9g}"))(x).tolist()


def golden(key, folder):
    name, d = f"tiny-{key}", make_ids()
    path, n = os.path.join(folder, name + ".gguf"), N_PREFIX + N_CONTEXT
    model = make_model(key); write_gguf(model, name, path)
    scores, logits = kvpress_scores(model, d)

    ref = Reference(path)
    hidden, cache, _ = ref.forward(d["prefix"] + d["context"], None, 0)
    ref_logits, full, local = ref.logits(hidden), [], []
    for t, ids in enumerate(d["inputs"]):
        first, last = N_PREFIX + t * CHUNK, N_PREFIX + min(N_CONTEXT, (t + 1) * CHUNK)
        full.append(ref.forward(ids, cache, n, score=(N_PREFIX, first, last))[2])
        rows = np.r_[0:N_PREFIX, first:last]
        part = [[k[:, rows], v[:, rows]] for k, v in cache]
        local.append(ref.forward(ids, part, n, score=(N_PREFIX, N_PREFIX, N_PREFIX + last - first))[2])
    full, local = np.concatenate(full, -1), np.concatenate(local, -1)

    p = softmax(ref_logits); entropy = -(p * np.log(p)).sum(-1).mean() / math.log(VOCAB)
    errors = np.abs(full - scores).max(), np.abs(ref_logits - logits).max()
    kept = select(scores, KEEP)
    print(f"{name}: {os.path.getsize(path)} bytes, entropy {entropy:.3f} ln(vocab), |reference - kvpress| scores {errors[0]:.1e}, "
          f"logits {errors[1]:.1e}, |local - full| mean {np.abs(local - full).mean():.3f}, kept sets of local and full overlap "
          f"{(select(local, KEEP) & kept).sum() / kept.sum():.3f}, "
          f"score quantiles {np.quantile(scores, [0.05, 0.25, 0.5, 0.75, 0.95]).round(4).tolist()}")
    assert entropy < 0.7 and errors[0] < 1e-5 and errors[1] < 1e-4

    keep = np.concatenate([np.ones((LAYERS, KV_HEADS, N_PREFIX), bool), kept], -1)
    ask = lambda keep: ref.logits(ref.forward(d["question"], cache, n, keep)[0])[-1]
    result = {
        "model": name + ".gguf", "prefix": d["prefix"], "context": d["context"], "chunk": CHUNK, "inputs": d["inputs"],
        "n_prompt": d["n_prompt"], "position": n, "scores_kvpress": digits(scores), "scores_full": digits(full),
        "scores_local": digits(local), "logits_last": digits(ref_logits[-1]), "question": d["question"],
        "logits_question": digits(ask(None)), "keep": KEEP, "pairs_kept": int(kept.sum()), "kept_bitmap": bitmap(kept),
        "logits_question_kept": digits(ask(keep)), "kvpress": "0.5.5", "entropy_share": digits(entropy),
    }
    with open(os.path.join(folder, name + "-kvzip.json"), "w") as f:
        f.write("{\n" + ",\n".join(f"{json.dumps(k)}: {json.dumps(v)}" for k, v in result.items()) + "\n}\n")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--out", default="tests/data/golden")
    args = parser.parse_args()
    torch.set_grad_enabled(False); torch.set_num_threads(1); os.makedirs(args.out, exist_ok=True)
    for key in MODELS: golden(key, args.out)
