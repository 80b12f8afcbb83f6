"""Muon for matrices inside the model, AdamW for everything else."""
import torch


def orthogonalised(g):
    """The nearest semi-orthogonal matrices, roughly: five Newton-Schulz steps (Jordan et al. 2024)."""
    tall = g.shape[-2] > g.shape[-1]
    x = g.transpose(-1, -2) if tall else g
    x = x / (x.norm(dim=(-2, -1), keepdim=True) + 1e-7)
    for _ in range(5):
        a = x @ x.transpose(-1, -2)
        x = 3.4445 * x + (-4.7750 * a + 2.0315 * a @ a) @ x
    return x.transpose(-1, -2) if tall else x


class Muon(torch.optim.Optimizer):
    def __init__(self, parameters, lr, momentum=0.95, weight_decay=0.02):
        super().__init__(parameters, {"lr": lr, "momentum": momentum, "weight_decay": weight_decay})

    @torch.no_grad()
    def step(self):
        for group in self.param_groups:
            for p in group["params"]:
                velocity = self.state[p].setdefault("velocity", torch.zeros_like(p))
                velocity.lerp_(p.grad, 1 - group["momentum"])
                update = orthogonalised(p.grad.lerp(velocity, group["momentum"]))
                p.mul_(1 - group["lr"] * group["weight_decay"])
                p.add_(update, alpha=-group["lr"] * max(1, p.shape[-2] / p.shape[-1]) ** 0.5)


def optimisers(model, rate):
    """Rates are relative: Muon's is `rate`, AdamW's a fifth of it."""
    outside = {id(model.embed), id(model.head)}
    inside = lambda name, p: p.dim() >= 2 and id(p) not in outside and "conv" not in name
    matrices = [p for name, p in model.named_parameters() if inside(name, p)]
    rest = [p for name, p in model.named_parameters() if not inside(name, p)]
    return [(Muon(matrices, rate), rate),
            (torch.optim.AdamW(rest, rate / 5, betas=(0.9, 0.98), weight_decay=0.01, fused=True), rate / 5)]
