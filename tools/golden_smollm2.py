"""Golden kept set of a real model: KVzip, two-pass, full reconstruction attention, float32, one chunk.

    python tools/golden_smollm2.py MODEL.gguf [--text tests/data/sample.txt] [--out tests/data/golden/smollm2-kept30.json]

The GGUF weights are dequantised to float32 by transformers. Needs torch, transformers, gguf, numpy, about 4 GiB of
memory and 3 to 7 minutes on two cores. The tokenizer is rebuilt from the file with SmolLM2's own splitting (every digit alone).
"""
import argparse, base64, hashlib, json, math, os
import numpy as np, torch, torch.nn.functional as F
from tokenizers import pre_tokenizers
from transformers import AutoModelForCausalLM, AutoTokenizer, DynamicCache, logging
from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

keep_masks = None      # bool (layer, kv_head, cached rows): rows that may be attended; None = all
scores = None          # float (layer, kv_head, columns) while the reconstruction pass runs
score_range = None     # (n_sink, first, last): the score's softmax sees sinks, rows first..last and the pass itself


def attention(module, q, k, v, attention_mask, scaling=None, dropout=0.0, **kw):
    n_q, n_rows, dim = q.shape[1:]
    n_kv, n_keys = k.shape[1:3]
    n_past, group, scale = n_keys - n_rows, n_q // n_kv, scaling or dim ** -0.5
    ok = (torch.arange(n_keys)[None] <= torch.arange(n_rows)[:, None] + n_past)[None].repeat(n_kv, 1, 1)
    if keep_masks is not None: ok[:, :, :n_past] &= keep_masks[module.layer_idx][:, None, :n_past]
    if scores is not None:
        sink, first, last = score_range
        cols = torch.cat([torch.arange(sink), torch.arange(first, last), torch.arange(n_past, n_keys)])
        for h in range(n_kv):
            w = (q[0, h * group : (h + 1) * group] @ k[0, h, cols].T) * scale
            w = w.masked_fill(~ok[h][:, cols], float("-inf")).softmax(-1)
            scores[module.layer_idx, h] = w[..., sink : sink + last - first].amax((0, 1))
    out = F.scaled_dot_product_attention(
        q, k.repeat_interleave(group, 1), v.repeat_interleave(group, 1),
        attn_mask=ok.repeat_interleave(group, 0)[None], scale=scale)
    return out.transpose(1, 2).contiguous(), None


ALL_ATTENTION_FUNCTIONS["reference"] = attention


def load(path):
    folder, name = os.path.split(os.path.abspath(path))
    tok = AutoTokenizer.from_pretrained(folder, gguf_file=name)
    tok.backend_tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False)])
    model = AutoModelForCausalLM.from_pretrained(folder, gguf_file=name, dtype=torch.float32).eval()
    model.config._attn_implementation = "reference"
    return tok, model


def select(s, keep):
    """The ceil(keep x pairs) highest scores of all layers and heads; equal scores: lower (layer, head, position) first."""
    order = np.argsort(-s.numpy().reshape(-1), kind="stable")
    kept = np.zeros(s.numel(), bool); kept[order[: math.ceil(keep * s.numel())]] = True
    return kept.reshape(s.shape), order


def main(args):
    global keep_masks, scores, score_range
    tok, model = load(args.model)
    n_layer, n_kv = model.config.num_hidden_layers, model.config.num_key_value_heads
    enc = lambda s: tok.encode(s, add_special_tokens=False)
    chat = tok.apply_chat_template([{"role": "user", "content": "@@@"}], add_generation_prompt=True, tokenize=False)
    head, turn = chat.split("@@@")
    with open(args.text, encoding="utf-8") as f: text = f.read()
    prefix, whole = enc(head), enc(text)
    context = whole[: args.tokens]
    assert tok.decode(whole) == text and len(context) == args.tokens <= args.chunk
    prompt = enc("\n\nRepeat the previous context exactly." + turn)
    ids, P, n = prompt + context, len(prefix), len(prefix) + len(context)
    print(repr(head), repr(turn), f"{len(whole)} tokens in the text, prefix {P}, prompt {len(prompt)}", flush=True)

    def forward(ids, pos0):
        out = model.model(input_ids=torch.tensor([ids]), past_key_values=cache,
                          position_ids=torch.arange(pos0, pos0 + len(ids))[None]).last_hidden_state[0]
        if pos0:                                    # a pass leaves the context's cache as it was
            for layer in cache.layers: layer.keys, layer.values = layer.keys[:, :, :n], layer.values[:, :, :n]
        return out

    def predict(kept):
        """Mean loss (nats/token) of repeating the context, and the most likely tokens."""
        global keep_masks
        if kept is not None: keep_masks = torch.cat([torch.ones(n_layer, n_kv, P, dtype=torch.bool), torch.from_numpy(kept)], -1)
        hidden = forward(ids, n)[len(prompt) - 1 : -1]; keep_masks = None
        logits = model.lm_head(hidden)
        return F.cross_entropy(logits, torch.tensor(context)).item(), logits.argmax(-1)

    cache = DynamicCache(); last = model.lm_head(forward(prefix + context, 0)[-1])
    scores, score_range = torch.zeros(n_layer, n_kv, len(context)), (P, P, n)
    forward(ids, n); s, scores = scores, None
    kept, order = select(s, args.keep)
    flat, count = s.numpy().reshape(-1), int(kept.sum())
    threshold, below = float(flat[order[count - 1]]), float(flat[order[count]])
    share = lambda w: float(((flat > threshold * (1 - w)) & (flat < threshold * (1 + w))).mean())
    rng = np.random.default_rng(0)
    base, top = predict(None)
    nll, top_kept = predict(kept)
    facts = {
        "pairs_total": s.numel(), "pairs_kept": count, "threshold": threshold, "next_below": below,
        "share_within_1_percent_of_threshold": share(0.01), "share_within_5_percent_of_threshold": share(0.05),
        "nll_full": base, "delta_nll_kept": nll - base, "top1_agreement": (top == top_kept).float().mean().item(),
        "delta_nll_10_percent": predict(select(s, 0.1)[0])[0] - base,
        "delta_nll_random": predict(rng.permutation(kept.reshape(-1)).reshape(kept.shape))[0] - base,
        "last_top5": last.topk(5).indices.tolist(), "last_top5_logits": last.topk(5).values.tolist(),
    }
    for k, v in facts.items(): print(k, v)
    with open(args.model, "rb") as f: digest = hashlib.file_digest(f, "sha256").hexdigest()
    bits = np.packbits(kept, axis=-1, bitorder="little").tobytes()
    result = {
        "model_sha256": digest, "prefix": prefix, "context": context, "chunk": args.chunk, "input": ids,
        "n_prompt": len(prompt), "position": n, "keep": args.keep, "kept_bitmap": base64.b64encode(bits).decode(),
        "kept_per_head": kept.sum(-1).tolist(), "mean_score_per_head": [[float(f"{x:.6g}") for x in row] for row in s.mean(-1)],
        **{k: float(f"{v:.9g}") if isinstance(v, float) else v for k, v in facts.items()},
    }
    with open(args.out, "w") as f:
        f.write("{\n" + ",\n".join(f"{json.dumps(k)}: {json.dumps(v)}" for k, v in result.items()) + "\n}\n")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("model")
    parser.add_argument("--text", default="tests/data/sample.txt")
    parser.add_argument("--out", default="tests/data/golden/smollm2-kept30.json")
    parser.add_argument("--tokens", type=int, default=2000)
    parser.add_argument("--chunk", type=int, default=2048)
    parser.add_argument("--keep", type=float, default=0.3)
    torch.set_grad_enabled(False); logging.disable_progress_bar()
    main(parser.parse_args())
