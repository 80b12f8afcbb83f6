"""Trains one of the VestigeKV models on the CPU.

    python tools/vestige/train.py a --seed 1 --out FOLDER

a: [delta, latent] x 2, branch not rotated (kimi-linear); b: the same with a rotated branch (kimi-linear-rope);
c: three latent layers, rotated (deepseek2); d: [state space, attention to unrotated keys] x 2 (granitehybrid), e: d with
rotated keys. Data depend on the seed and the stages alone: a and b of one seed see the same text, and so do d and e.
Writes FOLDER/NAME-sSEED.pt after every stage, from which a training that was stopped goes on, and at the end .json
(loss curve, needles found). A model needs half an hour of one core. Needs torch and numpy.
"""
import argparse, json, os, time
import numpy as np, torch, torch.nn.functional as F
import language
from model import Model, Shape
from optimiser import optimisers

SHAPES = {"a": Shape(), "b": Shape(rotary=True), "c": Shape(kinds="ggg", rotary=True), "d": Shape(kinds="sksk"),
          "e": Shape(kinds="sksk", rotary=True)}
# (steps, sequences, tokens, most needles, queries)
STAGES = [(500, 32, 64, 4, 4), (400, 16, 128, 8, 8), (500, 8, 384, 12, 8), (200, 4, 1024, 16, 12),
          (100, 1, 4096, 24, 16)]
# Where only rotation tells how far away a token is, layers learn it from the shortest texts, or not in time.
BEFORE = {"c": [(2500, 64, 32, 2, 2)], "d": [(1500, 64, 32, 2, 2)], "e": [(1500, 64, 32, 2, 2)]}
ANSWER_WEIGHT = 4.0


def losses(model, tokens, answer):
    hidden = model(tokens[:, :-1])
    loss = F.cross_entropy(F.linear(hidden, model.head).flatten(0, 1), tokens[:, 1:].flatten(), reduction="none")
    answered = answer[:, 1:].flatten()
    return loss.mean(), loss[answered].mean()


@torch.no_grad()
def found(model, table, n_token, n_sequence=16, n_needle=8, seed=99):
    """Share of needles whose two value tokens are the likeliest, full cache."""
    random = np.random.default_rng(seed)
    right = []
    for _ in range(n_sequence):
        tokens, answer = language.batch(random, table, 1, n_token, n_needle, n_needle, n_needle)
        tokens = torch.from_numpy(tokens)
        place = torch.from_numpy(answer)[0].nonzero()[:, 0]
        best = F.linear(model(tokens)[0, place - 1], model.head).argmax(-1)
        right += (best == tokens[0, place]).view(-1, 2).all(-1).tolist()
    return sum(right) / len(right)


def keep(path, model, pair, random, log, step, seconds):
    torch.save({"shape": model.s, "state": model.state_dict(), "optimisers": [o.state_dict() for o, _ in pair],
                "random": random.bit_generator.state, "log": log, "step": step, "seconds": seconds}, path + ".new")
    os.replace(path + ".new", path)


def resumed(path, model, pair, random):
    """log, steps done and seconds spent of a training that was stopped behind a stage."""
    kept = torch.load(path, weights_only=False)
    model.load_state_dict(kept["state"])
    for (optimiser, _), state in zip(pair, kept["optimisers"]): optimiser.load_state_dict(state)
    random.bit_generator.state = kept["random"]
    return kept["log"], kept["step"], kept["seconds"]


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("name", choices=SHAPES)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--out", default=".")
    parser.add_argument("--rate", type=float, default=0.02)
    parser.add_argument("--stages", type=int, default=len(STAGES), help="stop after so many, the rate as if all came")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(arguments.seed)
    random, table = np.random.default_rng(arguments.seed), language.transitions()
    model = Model(SHAPES[arguments.name])
    n_weights = sum(p.numel() for p in model.parameters())
    pair = optimisers(model, arguments.rate)
    stages = BEFORE.get(arguments.name, []) + STAGES
    total, step, start = sum(stage[0] for stage in stages), 0, time.time()
    path = os.path.join(arguments.out, f"{arguments.name}-s{arguments.seed}")
    log = {"model": arguments.name, "seed": arguments.seed, "parameters": n_weights, "rate": arguments.rate,
           "stages": stages, "curve": []}
    if os.path.exists(path + ".pt"):
        log, step, spent = resumed(path + ".pt", model, pair, random)
        start -= spent
        print("goes on behind step", step, flush=True)
    sums, before = np.zeros(3), 0
    for n_step, n_sequence, n_token, most, n_query in stages[:arguments.stages]:
        before += n_step
        if step >= before: continue
        for _ in range(n_step):
            share = min(1, (step + 1) / 50, 1.02 - step / total)
            for optimiser, rate in pair:
                for group in optimiser.param_groups: group["lr"] = rate * share
            n_needle = int(random.integers(n_query, most + 1))
            n_distractor = int(random.integers(0, most + 1))
            tokens, answer = language.batch(random, table, n_sequence, n_token, n_needle, n_distractor, n_query)
            text, answers = losses(model, torch.from_numpy(tokens), torch.from_numpy(answer))
            model.zero_grad()
            (text + ANSWER_WEIGHT * answers).backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            for optimiser, _ in pair: optimiser.step()
            step += 1
            sums += [text.item(), answers.item(), 1]
            if step % 50 == 0:
                entry = {"step": step, "tokens": n_token, "loss": round(sums[0] / sums[2], 4),
                         "answer_loss": round(sums[1] / sums[2], 4), "seconds": round(time.time() - start)}
                log["curve"].append(entry)
                sums[:] = 0
                print(json.dumps(entry), flush=True)
        print({n: found(model, table, n) for n in (128, 384, 2048)}, flush=True)
        keep(path + ".pt", model, pair, random, log, step, time.time() - start)
    log["found"] = {n: found(model, table, n) for n in (384, 2048, 8192)}
    log["seconds"] = round(time.time() - start)
    print(log["found"], log["seconds"], "seconds", flush=True)
    with open(path + ".json", "w") as file: json.dump(log, file)


if __name__ == "__main__": main()
