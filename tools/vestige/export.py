"""Writes a trained model as GGUF, and what it computes as a golden file for the tests.

    python tools/vestige/export.py FOLDER/a-s1.pt models/vestige-a1.gguf [--golden tests/data/golden/vestige-a1.json]

Matrices are f16, the rest f32. Files load in libllama, but for kimi-linear ones with a rotated branch: they are named
kimi-linear-rope, which libllama refuses. Needs torch, numpy and gguf.
"""
import argparse, json, os
import gguf, numpy as np, torch, torch.nn.functional as F
import language
from model import Model

N_GOLDEN = 384


def is_granite(s): return "k" in s.kinds


def architecture(s):
    if is_granite(s): return "granitehybrid"
    if "r" not in s.kinds: return "deepseek2"
    return "kimi-linear-rope" if s.rotary else "kimi-linear"


def tensors(model):
    """(name, values) in GGUF's names; matrices as (n_out, n_in)."""
    yield "token_embd.weight", model.embed
    yield "output_norm.weight", model.norm.weight
    yield "output.weight", model.head
    for at, (kind, layer) in enumerate(zip(model.s.kinds, model.layers)):
        name = lambda stem: f"blk.{at}.{stem}"
        yield name("attn_norm.weight"), layer.attn_norm.weight
        yield name("ffn_norm.weight"), layer.ffn_norm.weight
        for stem in ("gate", "up", "down"): yield name(f"ffn_{stem}.weight"), getattr(layer.ffn, stem)
        for stem, values in mixer_tensors(kind, layer.mixer): yield name(stem), values


def mixer_tensors(kind, m):
    if kind == "s":
        yield "ssm_in.weight", m.into
        yield "ssm_conv1d.weight", m.conv.squeeze(1)
        yield "ssm_conv1d.bias", m.conv_bias
        yield "ssm_a", -m.a_log.exp()[:, None]
        yield "ssm_d", m.through[:, None]
        yield "ssm_dt.bias", m.dt_bias
        yield "ssm_norm.weight", m.norm.weight[None]
        yield "ssm_out.weight", m.out
        return
    yield "attn_q.weight", m.q
    yield "attn_output.weight", m.out
    if kind == "g":
        yield "attn_kv_a_mqa.weight", m.kv_a
        yield "attn_kv_a_norm.weight", m.norm.weight
        yield "attn_k_b.weight", m.k_b.transpose(1, 2)
        yield "attn_v_b.weight", m.v_b
        return
    yield "attn_k.weight", m.k
    yield "attn_v.weight", m.v
    if kind == "k": return
    for part in "qkv": yield f"ssm_conv1d_{part}.weight", getattr(m, f"conv_{part}")
    for part in ("f_a", "f_b", "g_a", "g_b", "beta"): yield f"ssm_{part}.weight", getattr(m, part)
    yield "ssm_a", -m.a_log.exp()[:, None]
    yield "ssm_dt.bias", m.dt_bias
    yield "ssm_norm.weight", m.norm.weight


def is_matrix(name): return name.endswith(".weight") and "norm" not in name and "conv1d" not in name


def round_matrices(model):
    """What the file will hold."""
    with torch.no_grad():
        for name, values in tensors(model):
            if is_matrix(name): values.copy_(values.half().float())


def write_latent_settings(s, writer):
    number = lambda key, value: writer.add_uint32(f"{architecture(s)}.{key}", value)
    writer.add_head_count_kv([int(kind == "g") for kind in s.kinds] if "r" in s.kinds else 1)
    for key, value in {"attention.kv_lora_rank": s.latent, "attention.key_length": s.latent + s.branch,
                       "attention.value_length": s.latent, "attention.key_length_mla": s.plain + s.branch,
                       "attention.value_length_mla": s.value, "rope.dimension_count": s.branch,
                       "leading_dense_block_count": len(s.kinds), "expert_feed_forward_length": s.n_ff,
                       "expert_count": 0, "expert_used_count": 0, "expert_shared_count": 1, "expert_gating_func": 1,
                       "attention.q_lora_rank": 0, "kda.head_dim": s.delta, "ssm.conv_kernel": s.n_tap}.items():
        number(key, value)
    writer.add_float32(f"{architecture(s)}.expert_weights_scale", 1.0)


def write_granite_settings(s, writer):
    writer.add_head_count_kv([s.n_kv_head * (kind == "k") for kind in s.kinds])
    for key, value in {"ssm.conv_kernel": s.n_tap, "ssm.inner_size": s.n_inner, "ssm.state_size": s.state,
                       "ssm.time_step_rank": s.n_step, "ssm.group_count": 1}.items():
        writer.add_uint32(f"granitehybrid.{key}", value)
    for key, value in {"embedding_scale": 1, "residual_scale": 1, "logit_scale": 1,
                       "attention.scale": (s.n_embd // s.n_head) ** -0.5}.items():
        writer.add_float32(f"granitehybrid.{key}", value)
    writer.add_bool("granitehybrid.rope.scaling.finetuned", s.rotary)


def write(model, path, title):
    s = model.s
    writer = gguf.GGUFWriter(path, architecture(s))
    writer.add_name(title)
    writer.add_license("Apache-2.0")
    writer.add_string("tokenizer.ggml.model", "none")
    writer.add_block_count(len(s.kinds))
    writer.add_embedding_length(s.n_embd)
    writer.add_feed_forward_length(s.n_ff)
    writer.add_head_count(s.n_head)
    writer.add_context_length(1 << 17)
    writer.add_vocab_size(s.n_vocab)
    writer.add_layer_norm_rms_eps(s.epsilon)
    writer.add_rope_freq_base(s.rope_base)
    (write_granite_settings if is_granite(s) else write_latent_settings)(s, writer)
    for name, values in tensors(model):
        values = values.detach().contiguous().numpy()
        writer.add_tensor(name, values.astype(np.float16 if is_matrix(name) else np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


@torch.no_grad()
def golden(model):
    """Tokens, their next-token losses, and logits of the last rows."""
    random = np.random.default_rng(7)
    tokens, _ = language.batch(random, language.transitions(), 1, N_GOLDEN, 6, 6, 6)
    logits = F.linear(model(torch.from_numpy(tokens)), model.head)[0]
    loss = F.cross_entropy(logits[:-1], torch.from_numpy(tokens[0, 1:]), reduction="none")
    rounded = lambda values, digits: [round(float(v), digits) for v in values]
    return {"tokens": tokens[0].tolist(), "loss": rounded(loss, 6), "last_logits": rounded(logits[-1], 5)}


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("trained")
    parser.add_argument("gguf")
    parser.add_argument("--golden")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    saved = torch.load(arguments.trained, weights_only=False)
    model = Model(saved["shape"])
    model.load_state_dict(saved["state"])
    round_matrices(model)
    name = os.path.splitext(os.path.basename(arguments.gguf))[0]
    title = "VestigeKV " + name.removeprefix("vestige-").upper()
    write(model, arguments.gguf, title)
    if arguments.golden:
        with open(arguments.golden, "w") as file: json.dump(golden(model), file)


if __name__ == "__main__": main()
