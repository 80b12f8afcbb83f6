#!/usr/bin/env python3
"""Joins the articles of a SQuAD file into longer contexts, to ask many questions of one long text.

Usage: join_squad.py IN.json OUT.json ARTICLES QUESTIONS
Every ARTICLES articles become one context with QUESTIONS of their questions, evenly taken.
"""
import json
import sys


def main():
    source, target, per_context, n_questions = sys.argv[1:]
    with open(source, encoding="utf-8") as file:
        articles = json.load(file)["data"]
    size = int(per_context)
    joined = []
    for first in range(0, len(articles) - size + 1, size):
        paragraphs = [p for article in articles[first:first + size] for p in article["paragraphs"]]
        questions = [q for p in paragraphs for q in p["qas"]]
        step = max(1, len(questions) // int(n_questions))
        joined.append({
            "title": f"articles {first} to {first + size - 1}",
            "paragraphs": [{
                "context": "\n\n".join(p["context"] for p in paragraphs),
                "qas": questions[::step][:int(n_questions)],
            }],
        })
    with open(target, "w", encoding="utf-8") as file:
        json.dump({"version": "joined", "data": joined}, file, ensure_ascii=False)


if __name__ == "__main__":
    main()
