"""Golden vectors for the scores of the other methods, on the tiny models of golden_kvzip.py.

    python tools/golden_methods.py [--out tests/data/golden]

Writes tiny-NAME-methods.json for each NAME in NAMES. Scores come from kvpress's own presses, which only hand them out
here instead of pruning. What kvpress lacks is made from what it computes: H2O's maximum from the attention that
ObservedAttentionPress sees, SnapKV's max-pooling and KVzip without the softmax from the scores before.
Needs torch, transformers, kvpress==0.5.5, gguf, numpy. Takes under a minute.
"""
import argparse, json, os
from types import SimpleNamespace
import numpy as np, torch
from kvpress import ExpectedAttentionPress, KnormPress, ObservedAttentionPress, PyramidKVPress, SnapKVPress, StreamingLLMPress
from transformers import DynamicCache
import golden_kvzip as base

NAMES = ["llama", "qwen2"]
WINDOW, POOL, N_PREFIX = 32, 7, base.N_PREFIX
# (rows beside the window, share of them kept, layers); the last two run into the whole context.
PYRAMIDS = [(1000, 0.3, 30), (2000, 0.1, 28), (4000, 0.45, 16), (1000, 0.7, 12), (500, 0.95, 5)]


def recording(press_class):
    class Recording(press_class):
        def compress(self, module, hidden_states, keys, values, attentions, kwargs):
            self.scores.append(self.score(module, hidden_states, keys, values, attentions, kwargs)[0].clone())
            self.attentions.append(attentions)
            return keys, values
    return Recording


def press_scores(press_class, model, ids, **options):
    """(layer, kv_head, context row) and the attention weights where the press sees them."""
    press = recording(press_class)(compression_ratio=0.5, **options)
    press.scores, press.attentions = [], []
    with press(model): model(input_ids=torch.tensor([ids]), past_key_values=DynamicCache())
    return torch.stack(press.scores)[..., N_PREFIX:], press.attentions


def kvzip_scores(model, d, **options):
    base.kvzip_press.AutoTokenizer = base.IdTokenizer(d)
    press = base.Press(compression_ratio=0.5, n_sink=N_PREFIX, chunk_size=base.CHUNK, **options)
    with press(model): model(input_ids=torch.tensor([d["prefix"] + d["context"]]), past_key_values=DynamicCache())
    return press.result[..., N_PREFIX:]


def kvzip_logits(model, d):
    softmax = torch.nn.functional.softmax      # the model's own attention does not call it
    torch.nn.functional.softmax = lambda x, dim: x
    try: return kvzip_scores(model, d)
    finally: torch.nn.functional.softmax = softmax


def pyramids():
    cases = []
    for rows, share, layers in PYRAMIDS:
        press = PyramidKVPress(compression_ratio=1 - share, window_size=0)
        module = lambda layer: SimpleNamespace(layer_idx=layer, config=SimpleNamespace(num_hidden_layers=layers))
        cases.append({"rows": rows, "kept": round(rows * share), "layers": layers,
                      "budgets": [press.get_layer_budget(module(layer), rows) for layer in range(layers)]})
    return cases


def streaming(model, ids, kept):
    """Context rows that each head keeps when it keeps `kept` of them."""
    ratio = 1 - (N_PREFIX + kept + 0.5) / len(ids)
    press = recording(StreamingLLMPress)(compression_ratio=ratio, n_sink=N_PREFIX)
    press.scores, press.attentions = [], []
    with press(model): model(input_ids=torch.tensor([ids]), past_key_values=DynamicCache())
    rows = [np.flatnonzero(head[N_PREFIX:].numpy() > 0).tolist() for layer in press.scores for head in layer]
    assert all(row == rows[0] and len(row) == kept for row in rows)
    return rows[0]


def numbers(x): return np.vectorize(lambda v: float(f"{v:.7g}"))(x.numpy()).tolist()


def golden(key, folder):
    d, model = base.make_ids(), base.make_model(key)
    ids = d["prefix"] + d["context"]
    model.set_attn_implementation("sdpa")
    window = press_scores(SnapKVPress, model, ids, window_size=WINDOW, kernel_size=1)[0][..., :-WINDOW]
    scores = {
        "knorm": press_scores(KnormPress, model, ids)[0],
        "expected_attention": press_scores(ExpectedAttentionPress, model, ids, n_sink=N_PREFIX)[0],
        "window": window,
        "snapkv": torch.nn.functional.max_pool1d(window, POOL, stride=1, padding=POOL // 2),
        "kvzip_plus": kvzip_scores(model, d, kvzip_plus_normalization=True),
        "kvzip_logit": kvzip_logits(model, d),
    }
    model.set_attn_implementation("eager")
    mean, attentions = press_scores(ObservedAttentionPress, model, ids)
    per_head = torch.stack(attentions)[:, 0].amax(-2)       # (layer, query head, row)
    scores["h2o_mean"] = mean
    scores["h2o"] = per_head.view(base.LAYERS, base.KV_HEADS, -1, len(ids)).amax(2)[..., N_PREFIX:]
    result = {"model": f"tiny-{key}.gguf", "prefix": d["prefix"], "context": d["context"], "window_tokens": WINDOW,
              "kvpress": "0.5.5", "streaming_llm": {"kept": 90, "rows": streaming(model, ids, 90)}, "pyramids": pyramids()}
    result |= {name: numbers(value) for name, value in scores.items()}
    for name, value in scores.items():
        print(f"tiny-{key} {name}: {tuple(value.shape)}, quantiles {np.quantile(value, [0.05, 0.5, 0.95]).round(5).tolist()}")
    with open(os.path.join(folder, f"tiny-{key}-methods.json"), "w") as f:
        f.write("{\n" + ",\n".join(f"{json.dumps(k)}: {json.dumps(v)}" for k, v in result.items()) + "\n}\n")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--out", default="tests/data/golden")
    args = parser.parse_args()
    torch.set_grad_enabled(False); torch.set_num_threads(1)
    for key in NAMES: golden(key, args.out)
