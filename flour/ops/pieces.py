"""Documents cut into pieces of words, as models of language read them.

The pieces are those that the package tokenizers makes, characters as it knows them included
(flour.strings.subword_characters). They are words like any others: counted, dropped, joined, or
looked up in a table of vectors.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import cache, cached_property
from heapq import heappop, heappush
from typing import Any

import numpy as np
from numpy.typing import NDArray

from flour.core.emission import Emitter, Room
from flour.core.errors import ParameterError
from flour.core.op import Array, Table
from flour.ops.piece_model import PREFIX, PieceModel, TextPart, packed, pairs, raw_table, spelt
from flour.ops.text import looked_up
from flour.strings import unicode
from objectstore import Blob

#: Steps of BERT on characters, in this order.
BERT = ("clean", "chinese", "strip", "lower")
#: The words of BERT.
BERT_WORDS = ("cut", 2, r"[^\p{~spaces}\p{~alone}]+|\p{~alone}")
#: The score of a character without a piece is so much below the least.
_PENALTY = 10.0


class WordPieces(PieceModel):
    """The pieces of WordPiece, as models of BERT's family read a document.

    A word becomes the longest pieces of the vocabulary from left to right, all but the first with
    the prefix; one with other characters, or more than `longest`, is `unknown`.
    """

    unknown: str = "[UNK]"
    changes: tuple[tuple[str, ...], ...] = (("bert", *BERT),)
    splits: tuple[tuple[str | int, ...], ...] = (BERT_WORDS,)
    prefix: str = "##"
    longest: int = 100

    def check(self) -> None:
        super().check()
        if len(self.prefix.encode()) > PREFIX:
            raise ParameterError(f"a prefix has at most {PREFIX} bytes", found=repr(self.prefix))

    def word(self, word: str) -> Iterable[str]:
        known, pieces, start = self.known, list[str](), 0
        while start < len(word) <= self.longest:
            ahead = self.prefix if start else ""
            ends = range(len(word), start, -1)
            end = next((end for end in ends if ahead + word[start:end] in known), None)
            if end is None:
                return [self.unknown]
            pieces.append(ahead + word[start:end])
            start = end
        return pieces or [self.unknown]

    def model(self, e: Emitter, base: TextPart, words: str) -> str:
        where = base.where
        if not self.changes and not any(each[0] == "head" for each in self.splits):
            where, _ = base.grown(e, Room(1, 0))  # prefixes are written into it
            e.line(f"text_copy({base.where}, {base.size}, {where})")
        widest = int(np.diff(self.vocabulary.offsets).max(initial=1))
        sizes = ", ".join(map(e.size, (self.longest, widest, self.number)))
        known = looked_up(e, Table.of([*self.known]) if self.own else self.vocabulary)
        return f"text_word_pieces({where}, {words}, {spelt(e, self.prefix)}, {sizes}, {known})"


class BytePairs(PieceModel):
    """The pieces of byte-pair encoding: the first of `merges` that fits is made until none fits.

    A merge is the numbers of two pieces, and that of what they become. Words begin as characters,
    or as bytes if `bytewise`, whose pieces are spelt with a letter for each byte. `prefix` is that
    of pieces that begin no word, `suffix` that of those that end one. With `stays`, a word that is
    a piece stays one. Characters without a piece are their bytes, if `fallback`, or `unknown`, one
    for several if `fuse`.
    """

    merges: Array = ()  # type: ignore[assignment]  # made an array by its annotation
    bytewise: bool = False
    prefix: str = ""
    suffix: str = ""
    stays: bool = False
    fallback: bool = False
    fuse: bool = False

    def check(self) -> None:
        super().check()
        merges, count = self.merges.array, len(self.vocabulary)
        good = merges.ndim == 2 and merges.shape[1] == 3 and merges.dtype == np.int32
        if merges.size and not (good and merges.min() >= 0 and merges.max() < count):
            raise ParameterError("a merge is three pieces", found=f"{merges.dtype} {merges.shape}")

    @cached_property
    def _rows(self) -> dict[str, list[int]]:
        """The pieces of a character in the middle, at the end, in front, alone; -1 for none."""
        known, rows = self.known, dict[str, list[int]]()
        a, z = self.prefix, self.suffix
        ways = (a, ""), (a, z), ("", ""), ("", z)
        for piece in known:
            bare = piece.removeprefix(a)
            for letter in {piece, bare, piece.removesuffix(z), bare.removesuffix(z)}:
                if len(letter) == 1:
                    rows[letter] = [known.get(one + letter + other, -1) for one, other in ways]
        if self.bytewise:
            letters = letters_of_bytes()
            return {chr(b): rows[letters[b]] for b in range(256) if letters[b] in rows}
        return rows

    @cached_property
    def _bytes(self) -> list[int]:
        """The piece of each byte, where it has one."""
        return bytes_of(self.known, fallback=self.fallback)

    @cached_property
    def _ranks(self) -> dict[tuple[int, int], tuple[int, int]]:
        merges = self.merges.array.reshape(-1, 3).tolist()
        return {(left, right): (rank, made) for rank, (left, right, made) in enumerate(merges)}

    def word(self, word: str) -> Iterable[str]:
        name = word
        if self.bytewise:
            name = "".join(letters_of_bytes()[byte] for byte in word.encode())
            word = word.encode().decode("latin-1")
        if self.stays and name in self.known:
            return [name]
        return [self.vocabulary[number] for number in self._merged(self._letters(word))]

    def _letters(self, word: str) -> list[int]:
        ids, waiting = list[int](), False
        for place, letter in enumerate(word):
            last = place == len(word) - 1
            row = self._rows.get(letter, [-1] * 4)
            number = row[2 * (place == 0) + last]
            spelt = [self._bytes[byte] for byte in letter.encode()]
            if number >= 0:
                ids += [self.number] * waiting + [number]
                waiting = False
            elif min(spelt) >= 0:
                ids += spelt
            elif self.number >= 0:
                ids += [self.number] * (waiting and not self.fuse)
                waiting = True
        return ids + [self.number] * waiting

    def _merged(self, ids: list[int]) -> list[int]:
        after, before = [*range(1, len(ids) + 1)], [*range(-1, len(ids) - 1)]
        heap = list[tuple[int, int, int]]()

        def push(left: int, right: int) -> None:
            inside = left >= 0 and right < len(ids)
            if found := self._ranks.get((ids[left], ids[right])) if inside else None:
                heappush(heap, (found[0], left, found[1]))

        for place in range(len(ids) - 1):
            push(place, place + 1)
        while heap:
            _, here, made = heappop(heap)
            then = after[here]
            pair = (ids[here], ids[then]) if then < len(ids) else (-1, -1)
            if self._ranks.get(pair, (0, -1))[1] != made:
                continue
            ids[here], ids[then], after[here] = made, -1, after[then]
            if after[here] < len(ids):
                before[after[here]] = here
            push(before[here], here)
            push(here, after[here])
        return [each for each in ids if each >= 0]

    def model(self, e: Emitter, base: TextPart, words: str) -> str:
        rows, entries = [[-1] * 4, *self._rows.values()], np.zeros(unicode.CHARACTERS, np.int32)
        entries[[*map(ord, self._rows)]] = np.arange(1, len(rows))
        merges = self.merges.array.reshape(-1, 3)
        codes = {letter: bytes([byte]) for byte, letter in enumerate(letters_of_bytes())}
        names = {
            b"".join(map(codes.__getitem__, piece)) if self.bytewise else piece.encode(): number
            for piece, number in (self.known if self.stays else {}).items()
            if not self.bytewise or codes.keys() >= {*piece}
        }
        room = Room(base.room.each, base.room.fixed + 4)
        rows_and_pages = (*unicode.paged(entries), Blob.of(np.array(rows, np.int32).reshape(-1)))
        whole = Blob.of(np.array([*names.values(), 0], np.int32))
        news = Blob.of(np.append(merges[:, 2], 0).astype(np.int32))
        how = packed(
            e,
            *(e.room(room.times(size)) for size in (4, 8, 16)),
            *map(e.address, (self.vocabulary.blobs()[0], news)),
            pairs(e, merges[:, :2]),
            e.address(whole),
            looked_up(e, raw_table([*names])),
            *map(e.address, rows_and_pages),
            e.size(int(self.bytewise)),
            e.address(Blob.of(np.array(self._bytes, np.int32))),
            *map(e.size, (self.number, int(self.fuse))),
        )
        return f"text_byte_pairs({base.where}, {words}, {how})"


class Unigrams(PieceModel):
    """The pieces of a unigram model: those with the largest sum of `scores`, as in SentencePiece.

    A score belongs to each piece of the model's own. Characters without a piece are their bytes, if
    `fallback`, or `unknown`, once for several.
    """

    scores: Array = ()  # type: ignore[assignment]  # made an array by its annotation
    fallback: bool = False

    def check(self) -> None:
        super().check()
        scores = self.scores.array
        good = scores.ndim == 1 and scores.dtype == np.float64 and np.isfinite(scores).all()
        if not good or not 0 <= self.number < len(scores) == len(self.known):
            raise ParameterError("every piece has a finite score", found=str(scores.shape))

    @cached_property
    def _scores(self) -> NDArray[np.float64]:
        """The scores, and that of a character without a piece."""
        return np.append(self.scores.array, self.scores.array.min(initial=0) - _PENALTY)

    @cached_property
    def _bytes(self) -> list[int]:
        return bytes_of(self.known, fallback=self.fallback)

    def word(self, word: str) -> Iterable[str]:
        known, scores, unknown = self.known, self._scores, self.number
        widest = max(map(len, known))
        sums, steps = [0.0] * (len(word) + 1), [(-1, -1)] * (len(word) + 1)
        for place in range(len(word)):
            ends = range(place + 1, min(len(word), place + widest) + 1)
            found = ((end, known.get(word[place:end], -1)) for end in ends)
            ways = [(end, number, scores[number]) for end, number in found if number >= 0]
            if not ways or ways[0][0] > place + 1:
                ways.append((place + 1, unknown, scores[-1]))
            for end, number, score in ways:
                total = float(score + sums[place])
                if steps[end][0] < 0 or total > sums[end]:
                    sums[end], steps[end] = total, (place, number)
        spans, end = list[tuple[int, int]](), len(word)
        while end > 0:
            start, number = steps[end]
            while number == unknown and start > 0 and steps[start][1] == unknown:
                start = steps[start][0]
            spans.append((start, end))
            end = start
        for start, end in reversed(spans):
            spelt = [self._bytes[byte] for byte in word[start:end].encode()]
            if word[start:end] in known:
                yield word[start:end]
            else:
                numbers = spelt if min(spelt) >= 0 else [unknown]
                yield from (self.vocabulary[number] for number in numbers)

    def model(self, e: Emitter, base: TextPart, words: str) -> str:
        room = Room(base.room.each, base.room.fixed + 4).times(8)
        blobs = (*text_tree([*self.known]), self._scores)
        how = packed(
            e,
            *(e.room(room) for _ in range(2)),
            *map(e.address, map(Blob.of, blobs)),
            *map(e.size, (self.number, len(self.known))),
            e.address(Blob.of(np.array(self._bytes, np.int32))),
            looked_up(e, self.vocabulary),
        )
        return f"text_unigrams({base.where}, {words}, {how})"


@cache
def letters_of_bytes() -> list[str]:
    """The letter that spells each byte: itself where it can be seen, others from 256 on."""
    seen = [*range(33, 127), *range(161, 173), *range(174, 256)]
    rest = iter(range(256, 512))
    return [chr(byte if byte in seen else next(rest)) for byte in range(256)]


def bytes_of(known: dict[str, int], *, fallback: bool) -> list[int]:
    """The number of the piece for each byte; -1 where there is none, or no `fallback`."""
    known = known if fallback else {}
    return [known.get(f"<0x{byte:02X}>", -1) for byte in range(256)]


def text_tree(texts: Sequence[str]) -> tuple[NDArray[Any], ...]:
    """A tree of texts by their bytes: first children, bytes, and numbers (-1) of its nodes.

    Nodes are in the order of their depth, and of their bytes; of equal texts the last counts.
    """
    raw = [each.encode() for each in texts]
    sizes = np.array([*map(len, raw)])
    data, starts = np.frombuffer(b"".join(raw), np.uint8), np.cumsum(sizes) - sizes
    node, rows = np.zeros(len(raw), np.int64), np.arange(len(raw))
    parents, labels, numbers = [np.full(1, -1)], [np.zeros(1, np.uint8)], [np.full(1, -1, np.int32)]
    count = 1
    for depth in range(sizes.max(initial=0)):
        rows = rows[sizes[rows] > depth]
        codes = node[rows] * 256 + data[starts[rows] + depth]
        keys, places = np.unique(codes, return_inverse=True)
        node[rows] = count + places
        parents.append(keys >> 8)
        labels.append((keys & 255).astype(np.uint8))
        ends = np.full(len(keys), -1, np.int32)
        (here,) = np.nonzero(sizes[rows] == depth + 1)
        ends[places[here]] = rows[here]
        numbers.append(ends)
        count += len(keys)
    firsts = np.searchsorted(np.concatenate(parents), np.arange(count + 1))
    return firsts.astype(np.int32), np.concatenate(labels), np.concatenate(numbers)
