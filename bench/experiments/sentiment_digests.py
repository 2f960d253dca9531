"""The digests and bytes of the SA population: two dictionaries and own weights for each model."""

from __future__ import annotations

from bench.workloads.sa import CHAR_ENTRIES, WORD_ENTRIES, WORD_USERS, assignment

#: Bytes of an entry of a dictionary, and of a weight, as in the files of plans of `sa`: texts of 20
#: bytes, a hash table and three vectors; and a weight in the whole vector and in that of its part.
ENTRY, WEIGHT = 63, 16


def sentiment(models: int = 250, *, apart: bool = True) -> dict[str, dict[str, int]]:
    """So many models by their parameters; each 250 have dictionaries of their own, or all the same.

    The second population is one of many variants of few models, whose own weights are most of it.
    """
    chars = (*CHAR_ENTRIES, *[16] * len(WORD_USERS))
    pairs, found = assignment(0), {}
    for number in range(models):
        tenant = number // len(pairs) if apart else 0
        char, word = pairs[number % len(pairs)]
        found[f"sa{number}"] = {
            f"chars{char} of {tenant}": chars[char] * ENTRY,
            f"words{word} of {tenant}": WORD_ENTRIES * ENTRY,
            f"weights{number}": (WORD_ENTRIES + chars[char]) * WEIGHT,
        }
    return found
