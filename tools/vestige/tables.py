"""Markdown tables from the logs of experiments.sh.

    python tools/vestige/tables.py docs/results/vestige/*.jsonl.gz

One table a model and experiment: means over questions, for the first metric of 0 and 1 with its exact 95% interval
(Clopper and Pearson).
"""
import gzip, json, sys
from collections import defaultdict
from math import exp, lgamma, log, log1p


def chance_of_more(hits, n, p):
    logs = (lgamma(n + 1) - lgamma(k + 1) - lgamma(n - k + 1) + k * log(p) + (n - k) * log1p(-p)
            for k in range(hits, n + 1))
    return sum(map(exp, logs))


def proportion_with(hits, n, chance):
    low, high = 0.0, 1.0
    for _ in range(50):
        middle = (low + high) / 2
        if chance_of_more(hits, n, middle) < chance: low = middle
        else: high = middle
    return low


def interval(hits, n):
    hits = int(hits)
    low = proportion_with(hits, n, 0.025) if hits else 0
    high = proportion_with(hits + 1, n, 0.975) if hits < n else 1
    return f" [{low:.2f}, {high:.2f}]"


def provenance(records):
    """Of the needles that the full cache finds: those still found, those lost, and of each the ones of which some step
    did not attend to the value's row (vestige-stream)."""
    known = {(r["context"], r["question"]) for r in records if r["method"] == "full" and r["scores"]["found"] == 1}
    counts = defaultdict(lambda: [0, 0, 0, 0])
    for record in records:
        if (record["context"], record["question"]) not in known: continue
        lost, unseen = record["scores"]["found"] != 1, record["scores"]["attended"] != 1
        counts[record["method"], record["ratio"]][2 * lost] += 1
        counts[record["method"], record["ratio"]][2 * lost + 1] += unseen
    print("\n| method | ratio | still found | of these not attended | lost | of these not attended |\n" + "|---" * 6 + "|")
    for (method, ratio), row in counts.items(): print(f"| {method} | {ratio:g} | " + " | ".join(map(str, row)) + " |")


def main():
    for path in sys.argv[1:]:
        with gzip.open(path, "rt") if path.endswith(".gz") else open(path) as file:
            lines = [json.loads(line) for line in file]
        header, records = lines[0], lines[1:]
        metrics = header["metrics"]
        groups = defaultdict(list)
        layers = header["task"] in ("vestige-rows", "vestige-recall")
        for record in records:
            where = record["question"] if layers else "all"
            groups[record["method"], record["ratio"], where].append(record["scores"])
        print(f"\n{header['model']['name']}, {header['task']}, {header['data']['lengths'][0]} tokens, "
              f"{header['n_contexts']} texts\n")
        print(f"| method | ratio | {'layer | ' if layers else ''}n | " + " | ".join(metrics) + " |")
        print("|---" * (3 + len(metrics) + layers) + "|")
        for (method, ratio, where), scores in groups.items():
            values = [[score[metric] if isinstance(score, dict) else score[at] for score in scores]
                      for at, metric in enumerate(metrics)]
            cells = [f"{sum(v) / len(v):.3f}" for v in values]
            if all(v in (0, 1) for v in values[0]): cells[0] += interval(sum(values[0]), len(values[0]))
            print(f"| {method} | {ratio:g} | {where.removeprefix('layer ') + ' | ' if layers else ''}{len(scores)} | "
                  + " | ".join(cells) + " |")
        if header["task"] == "vestige-stream": provenance(records)


if __name__ == "__main__": main()
