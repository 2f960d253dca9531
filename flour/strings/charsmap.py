"""Maps of characters as SentencePiece has them, applied as the package tokenizers does.

A map has a replacement for each of its keys, which are one character or a few. The package looks at
clusters of characters (a letter with its marks, a syllable, a sequence of emoji): one of fewer than
six bytes that begins with a key becomes what its shortest such key does, as a whole, so that what
is behind the key is lost. Any other cluster changes character by character.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache
from itertools import accumulate

import numpy as np

from flour.core.errors import ParameterError
from flour.strings.unicode import CHARACTERS, Kinds, kinds

#: Clusters of at least so many bytes change character by character, so no key is as long.
LONG = 6
#: A key that is one character, and a character that longer keys begin with.
WHOLE, BEGUN = 1, 2
_SYLLABLE = (
    r"\p{~leads}*(?:\p{~vowels}+|\p{~open}\p{~vowels}*|\p{~closed})\p{~tails}*"
    r"|\p{~leads}+|\p{~tails}+"
)
_EMOJI = "\\p{~pictures}(?:\\p{~extend}*\u200d\\p{~pictures})+"
_CONJUNCT = r"\p{~consonants}(?:\p{~linked}*\p{~linkers}[\p{~linked}\p{~linkers}]*\p{~consonants})+"
#: The extended clusters of Unicode. Pairs of flags are left out, as they are long either way.
CLUSTERS = (
    r"\r\n|[\p{~control}\r\n]"
    rf"|\p{{~prepend}}*(?:{_SYLLABLE}|{_EMOJI}|{_CONJUNCT}|[^\p{{~control}}\r\n])\p{{~joined}}*"
)


@cache
def entries(written: str) -> dict[str, str]:
    """The keys of a map and what they become, which follow each other, a NUL behind each."""
    parts = written.split("\0")
    found = dict(zip(parts[::2], parts[1::2], strict=False))
    good = 2 * len(found) + 1 == len(parts) and not parts[-1] and "" not in found
    if not good or any(len(key.encode()) >= LONG for key in found):
        raise ParameterError("this is no map of characters", found=repr(written)[:40])
    return found


def mapped(clusters: Iterable[str], written: str) -> str:
    """The text that a map makes of clusters."""
    found, made = entries(written), list[str]()
    for cluster in clusters:
        short = len(cluster.encode()) < LONG
        keys = [key for key in accumulate(cluster) if key in found] if short else []
        made += [found[keys[0]]] if keys else [found.get(letter, letter) for letter in cluster]
    return "".join(made)


@cache
def begun(written: str) -> Kinds:
    """The sum of WHOLE and BEGUN that each character is."""
    numbers = np.zeros(CHARACTERS, np.uint8)
    for key in entries(written):
        numbers[ord(key[0])] |= WHOLE if len(key) == 1 else BEGUN
    return kinds(numbers)


@cache
def growth(written: str) -> int:
    """No text grows to more than so many times its bytes."""
    found = entries(written).items()
    return max([1, *(-(-len(made.encode()) // len(key.encode())) for key, made in found)])
