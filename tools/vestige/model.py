"""The graphs of kimi-linear, deepseek2 and granitehybrid in PyTorch, as src/model/arch builds them."""
from dataclasses import dataclass
import math
import torch, torch.nn as nn, torch.nn.functional as F

CHUNK = 8                # of delta attention
STATE_CHUNK = 32         # of a state space
LEAST_DECAY = -20.0      # e^-20 is nothing, and e^(20 CHUNK / 2) is still a float


@dataclass(frozen=True)
class Shape:
    kinds: str = "rgrg"      # r: delta attention, g: latent attention; s: state space, k: attention to keys
    rotary: bool = False     # of the branch, or of whole keys
    n_vocab: int = 256
    n_embd: int = 128
    n_head: int = 4
    n_ff: int = 192
    latent: int = 64
    branch: int = 16
    plain: int = 32          # of a query head, beside the branch
    value: int = 32
    delta: int = 16          # of a head of delta attention
    n_tap: int = 4
    n_kv_head: int = 2       # of attention to keys
    n_inner: int = 256       # values of a state space
    n_step: int = 8          # heads of a state space
    state: int = 16
    epsilon: float = 1e-5
    rope_base: float = 10000.0


def matrix(n_in, n_out, scale=1.0):
    return nn.Parameter(torch.randn(n_out, n_in) * (scale / math.sqrt(n_in)))


class Norm(nn.Module):
    def __init__(self, n, epsilon):
        super().__init__()
        self.weight, self.epsilon = nn.Parameter(torch.ones(n)), epsilon

    def forward(self, x): return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + self.epsilon) * self.weight


def rotate(x, base):
    """Interleaved pairs, as ggml's normal rope; x (..., token, dim)."""
    n, dim = x.shape[-2:]
    angle = torch.arange(n)[:, None] * base ** (-torch.arange(0, dim, 2) / dim)
    cos, sin = angle.cos(), angle.sin()
    even, odd = x[..., 0::2], x[..., 1::2]
    return torch.stack([even * cos - odd * sin, even * sin + odd * cos], -1).flatten(-2)


class LatentAttention(nn.Module):
    def __init__(self, s):
        super().__init__()
        self.s = s
        self.q = matrix(s.n_embd, s.n_head * (s.plain + s.branch))
        self.kv_a = matrix(s.n_embd, s.latent + s.branch)
        self.norm = Norm(s.latent, s.epsilon)
        self.k_b = nn.Parameter(torch.randn(s.n_head, s.plain, s.latent) / math.sqrt(s.latent))
        self.v_b = nn.Parameter(torch.randn(s.n_head, s.value, s.latent) / math.sqrt(s.latent))
        self.out = matrix(s.n_head * s.value, s.n_embd, 0.5)

    def forward(self, x):
        s, (n, t, _) = self.s, x.shape
        q = F.linear(x, self.q).view(n, t, s.n_head, -1).transpose(1, 2)
        content, branch = F.linear(x, self.kv_a).split([s.latent, s.branch], -1)
        content, branch = self.norm(content)[:, None], branch[:, None]
        q_plain, q_branch = q.split([s.plain, s.branch], -1)
        if s.rotary: q_branch, branch = rotate(q_branch, s.rope_base), rotate(branch, s.rope_base)
        k = torch.cat([content @ self.k_b.transpose(1, 2), branch.expand(-1, s.n_head, -1, -1)], -1)
        v = content @ self.v_b.transpose(1, 2)
        y = F.scaled_dot_product_attention(torch.cat([q_plain, q_branch], -1), k, v, is_causal=True)
        return F.linear(y.transpose(1, 2).flatten(2), self.out)


def delta_scan(q, k, v, decay, beta):
    """S = (I - beta k k^T) diag(exp decay) S + beta k v^T; out = q^T S. (batch, head, token, dim), beta without dim.
    In chunks: inside one the recurrence is a triangular system, and S is carried between them."""
    n, h, t, d = q.shape
    pad = -t % CHUNK
    chunks = lambda x: F.pad(x, (0, 0, 0, pad)).view(n, h, -1, CHUNK, d)
    q, k, v, decay, beta = *map(chunks, (q, k, v, decay)), F.pad(beta, (0, pad)).view(n, h, -1, CHUNK, 1)
    since = decay.clamp(min=LEAST_DECAY).cumsum(-2)  # from the chunk's start
    middle = since[..., CHUNK // 2:CHUNK // 2 + 1, :]
    ahead, back = (since - middle).exp(), (middle - since).exp()
    pair = (k * back).transpose(-1, -2)
    # What lies above the diagonal may be infinite: it is cut off before anything is multiplied with it.
    among_keys = beta * ((k * ahead) @ pair).tril(-1)
    among_queries = ((q * ahead) @ pair).tril()
    start = since.exp()
    both = torch.linalg.solve_triangular(among_keys, torch.cat([beta * v, beta * k * start], -1), upper=False,
                                         unitriangular=True)
    fresh, of_state = both.split(d, -1)
    to_end = (since[..., -1:, :] - since).exp() * k
    state, out = q.new_zeros(n, h, d, d), []
    for c in range(q.shape[2]):
        u = fresh[:, :, c] - of_state[:, :, c] @ state
        out.append((q * start)[:, :, c] @ state + among_queries[:, :, c] @ u)
        state = start[:, :, c, -1, :, None] * state + to_end[:, :, c].transpose(-1, -2) @ u
    return torch.cat(out, 2)[:, :, :t]


class DeltaAttention(nn.Module):
    def __init__(self, s):
        super().__init__()
        self.s = s
        inner = s.n_head * s.delta
        # Starts as a short convolution, head h looking h tokens back: queries are keys, and states fade at once.
        self.q, self.v = matrix(s.n_embd, inner), matrix(s.n_embd, inner)
        self.k = nn.Parameter(self.q.detach().clone())
        now, back = torch.zeros(inner, 1, s.n_tap), torch.zeros(inner, 1, s.n_tap)
        now[..., -1] = 1
        for channel in range(inner): back[channel, 0, -1 - channel // s.delta % s.n_tap] = 1
        self.conv_q, self.conv_k, self.conv_v = nn.Parameter(now), nn.Parameter(now.clone()), nn.Parameter(back)
        self.f_a, self.f_b = matrix(s.n_embd, s.delta), matrix(s.delta, inner, 0.1)
        self.g_a, self.g_b = matrix(s.n_embd, s.delta), matrix(s.delta, inner)
        self.beta = matrix(s.n_embd, s.n_head)
        self.a_log = nn.Parameter(torch.linspace(0.5, 2.0, s.n_head))
        self.dt_bias = nn.Parameter(torch.full((inner,), 0.5))
        self.norm = Norm(s.delta, s.epsilon)
        self.out = matrix(inner, s.n_embd, 0.5)

    def heads(self, x): return x.unflatten(-1, (self.s.n_head, self.s.delta)).transpose(1, 2)

    def mixed(self, x, weight, taps):
        y = F.pad(F.linear(x, weight).transpose(1, 2), (self.s.n_tap - 1, 0))
        return self.heads(F.silu(F.conv1d(y, taps, groups=taps.shape[0])).transpose(1, 2))

    def forward(self, x):
        s = self.s
        q, k, v = (self.mixed(x, w, c) for w, c in
                   ((self.q, self.conv_q), (self.k, self.conv_k), (self.v, self.conv_v)))
        unit = lambda y: F.normalize(y, dim=-1, eps=s.epsilon)
        decay = self.heads(F.softplus(F.linear(F.linear(x, self.f_a), self.f_b) + self.dt_bias))
        decay = -self.a_log.exp()[:, None, None] * decay
        beta = F.linear(x, self.beta).sigmoid().transpose(1, 2)
        y = delta_scan(unit(q), unit(k), v, decay, beta) / math.sqrt(s.delta)
        y = self.norm(y) * self.heads(F.linear(F.linear(x, self.g_a), self.g_b)).sigmoid()
        return F.linear(y.transpose(1, 2).flatten(2), self.out)


class KeyAttention(nn.Module):
    """Grouped heads; keys are rotated or nothing is."""

    def __init__(self, s):
        super().__init__()
        self.s, self.dim = s, s.n_embd // s.n_head
        self.q = matrix(s.n_embd, s.n_embd)
        self.k, self.v = matrix(s.n_embd, s.n_kv_head * self.dim), matrix(s.n_embd, s.n_kv_head * self.dim)
        self.out = matrix(s.n_embd, s.n_embd, 0.5)

    def forward(self, x):
        heads = lambda weight: F.linear(x, weight).unflatten(-1, (-1, self.dim)).transpose(1, 2)
        q, k, v = heads(self.q), heads(self.k), heads(self.v)
        if self.s.rotary: q, k = rotate(q, self.s.rope_base), rotate(k, self.s.rope_base)
        k, v = (y.repeat_interleave(self.s.n_head // self.s.n_kv_head, 1) for y in (k, v))
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return F.linear(y.transpose(1, 2).flatten(2), self.out)


def state_scan(x, b, c, decay):
    """S = exp(decay) S + x b^T; out = S c. x (batch, head, token, dim), b and c (batch, 1, token, state), decay (batch,
    head, token). In chunks, as delta_scan."""
    n, h, t, _ = x.shape
    pad, size = -t % STATE_CHUNK, STATE_CHUNK
    chunks = lambda y: F.pad(y, (0, 0, 0, pad)).unflatten(2, (-1, size))
    x, b, c, since = chunks(x), chunks(b), chunks(c), chunks(decay[..., None]).cumsum(-2)
    among = (since - since.transpose(-1, -2)).masked_fill(torch.ones(size, size).triu(1).bool(), -math.inf).exp()
    inside = (c @ b.transpose(-1, -2) * among) @ x
    added = ((since[..., -1:, :] - since).exp() * x).transpose(-1, -2) @ b
    state, before = x.new_zeros(n, h, x.shape[-1], b.shape[-1]), []
    for at in range(x.shape[2]):
        before.append(state)
        state = since[:, :, at, -1, :, None].exp() * state + added[:, :, at]
    across = since.exp() * (c @ torch.stack(before, 2).transpose(-1, -2))
    return (inside + across).flatten(2, 3)[:, :, :t]


class StateSpace(nn.Module):
    """Mamba2 (arXiv 2405.21060) with one group."""

    def __init__(self, s):
        super().__init__()
        self.s, self.dim = s, s.n_inner // s.n_step
        mixed = s.n_inner + 2 * s.state
        self.into = matrix(s.n_embd, s.n_inner + mixed + s.n_step)
        # Starts as a short convolution, head h looking h tokens back.
        taps = torch.zeros(mixed, 1, s.n_tap)
        for channel in range(mixed):
            taps[channel, 0, -1 - (channel // self.dim % s.n_tap if channel < s.n_inner else 0)] = 1
        self.conv, self.conv_bias = nn.Parameter(taps), nn.Parameter(torch.zeros(mixed))
        self.a_log = nn.Parameter(torch.linspace(0.5, 2.0, s.n_step))
        self.dt_bias = nn.Parameter(torch.full((s.n_step,), 0.5))
        self.through = nn.Parameter(torch.ones(s.n_step))
        self.norm = Norm(s.n_inner, s.epsilon)
        self.out = matrix(s.n_inner, s.n_embd, 0.5)

    def forward(self, x):
        s = self.s
        gate, mixed, step = F.linear(x, self.into).split([s.n_inner, s.n_inner + 2 * s.state, s.n_step], -1)
        mixed = F.pad(mixed.transpose(1, 2), (s.n_tap - 1, 0))
        mixed = F.silu(F.conv1d(mixed, self.conv, self.conv_bias, groups=self.conv.shape[0])).transpose(1, 2)
        values, b, c = mixed.split([s.n_inner, s.state, s.state], -1)
        values = values.unflatten(-1, (s.n_step, self.dim)).transpose(1, 2)
        step = F.softplus(step + self.dt_bias).transpose(1, 2)
        y = state_scan(step[..., None] * values, b[:, None], c[:, None], -self.a_log.exp()[:, None] * step)
        y = (y + self.through[:, None, None] * values).transpose(1, 2).flatten(2)
        return F.linear(self.norm(F.silu(gate) * y), self.out)


class FeedForward(nn.Module):
    def __init__(self, s):
        super().__init__()
        self.gate, self.up = matrix(s.n_embd, s.n_ff), matrix(s.n_embd, s.n_ff)
        self.down = matrix(s.n_ff, s.n_embd, 0.5)

    def forward(self, x): return F.linear(F.silu(F.linear(x, self.gate)) * F.linear(x, self.up), self.down)


MIXERS = {"r": DeltaAttention, "g": LatentAttention, "s": StateSpace, "k": KeyAttention}


class Layer(nn.Module):
    def __init__(self, s, kind):
        super().__init__()
        self.attn_norm, self.ffn_norm = Norm(s.n_embd, s.epsilon), Norm(s.n_embd, s.epsilon)
        self.mixer = MIXERS[kind](s)
        self.ffn = FeedForward(s)

    def forward(self, x):
        x = x + self.mixer(self.attn_norm(x))
        return x + self.ffn(self.ffn_norm(x))


class Model(nn.Module):
    def __init__(self, s):
        super().__init__()
        self.s = s
        self.embed = nn.Parameter(torch.randn(s.n_vocab, s.n_embd))
        self.layers = nn.ModuleList(Layer(s, kind) for kind in s.kinds)
        self.norm = Norm(s.n_embd, s.epsilon)
        self.head = matrix(s.n_embd, s.n_vocab)

    def forward(self, tokens):
        """Hidden states (batch, token, n_embd) after the last norm; logits are hidden head^T."""
        x = self.embed[tokens]
        for layer in self.layers: x = layer(x)
        return self.norm(x)
