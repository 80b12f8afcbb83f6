"""Token sequences for the VestigeKV models: a Markov text with key-value needles, distractors and queries.

    SET k v1 v2    a needle                 NOTE k v1 v2   a distractor, never asked
    GET k v1 v2    a query and its answer, at the end of the sequence

Keys and values are drawn from the text's own vocabulary: each occurs unmarked throughout the text. Keys of needles
are drawn without replacement, half of the distractors repeat a needle's key with other values, and items lie at
uniform places, so also back to back and at both ends. src/eval has the same language in C++.
"""
import numpy as np

N_VOCAB = 256
SET, NOTE, GET = 1, 2, 3
FIRST_WORD = 4           # words are [FIRST_WORD, N_VOCAB); 0 is unused
ITEM = 4                 # tokens of a needle, distractor or query
SUCCESSORS = 8
NOISE = 0.1              # share of words that do not follow from the one before


def mixed(n):
    """splitmix64's output function."""
    mask = (1 << 64) - 1
    n = (n + 0x9E3779B97F4A7C15) & mask
    n = ((n ^ (n >> 30)) * 0xBF58476D1CE4E5B9) & mask
    n = ((n ^ (n >> 27)) * 0x94D049BB133111EB) & mask
    return n ^ (n >> 31)


def transitions():
    """(word, SUCCESSORS) successors and their cumulative weights, 1/rank for every word."""
    successors = np.array([[FIRST_WORD + mixed(word * SUCCESSORS + rank) % (N_VOCAB - FIRST_WORD)
                            for rank in range(SUCCESSORS)] for word in range(N_VOCAB)])
    weights = 1 / np.arange(1, SUCCESSORS + 1)
    return successors, np.cumsum(weights / weights.sum())


def filler(random, table, n_sequence, n_token):
    successors, cumulative = table
    out = np.empty((n_sequence, n_token), np.int64)
    word = random.integers(FIRST_WORD, N_VOCAB, n_sequence)
    for at in range(n_token):
        rank = np.minimum(np.searchsorted(cumulative, random.random(n_sequence)), SUCCESSORS - 1)
        word = successors[word, rank]
        noisy = random.random(n_sequence) < NOISE
        word = np.where(noisy, random.integers(FIRST_WORD, N_VOCAB, n_sequence), word)
        out[:, at] = word
    return out


def batch(random, table, n_sequence, n_token, n_needle, n_distractor, n_query):
    """tokens (n_sequence, n_token) and is_answer, true where a query's value stands."""
    n_item = n_needle + n_distractor
    n_text = n_token - ITEM * (n_item + n_query)
    text = filler(random, table, n_sequence, n_text)
    tokens = np.empty((n_sequence, n_token), np.int64)
    answer = np.zeros((n_sequence, n_token), bool)
    words = np.arange(FIRST_WORD, N_VOCAB)
    for row in range(n_sequence):
        keys = random.choice(words, n_item, replace=False)
        values = random.integers(FIRST_WORD, N_VOCAB, (n_item, 2))
        n_twin = min(n_distractor // 2, n_needle)
        keys[n_needle:n_needle + n_twin] = random.choice(keys[:n_needle], n_twin, replace=False)
        marks = np.where(np.arange(n_item) < n_needle, SET, NOTE)
        items = np.column_stack([marks, keys, values])
        order = random.permutation(n_item)
        places = np.sort(random.integers(0, n_text + 1, n_item))
        parts, last = [], 0
        for item, place in zip(order, places):
            parts += [text[row, last:place], items[item]]
            last = place
        parts.append(text[row, last:])
        for item in random.choice(n_needle, n_query, replace=False):
            parts.append(np.concatenate([[GET], items[item, 1:]]))
        tokens[row] = np.concatenate(parts)
        answer[row, n_token - ITEM * n_query:] = np.tile([False, False, True, True], n_query)
    return tokens, answer
