"""Models that cut words into pieces: what they have in common, in Python and in native code."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from flour.core.emission import Emitter, Room, TokensValue, Value
from flour.core.errors import ParameterError, UnsupportedSetting
from flour.core.op import Arity, Columns, Table
from flour.ops.text import SLACK, ToWords, document, looked_up, numbered, searched
from flour.strings import charsmap
from flour.strings import subword_characters as characters
from flour.strings.patterns import Automaton, automaton
from flour.strings.splitting import CHANGES, NORMALISED, between, split, translated
from objectstore import Blob

#: Room ahead of a text, for the prefix of its first piece but one.
PREFIX = 32


class TextPart(NamedTuple):
    """A part of a document in native code, with its room; `first` is true at a document's start."""

    where: str
    size: str
    room: Room
    first: str = "1"

    def grown(self, e: Emitter, room: Room) -> tuple[str, Room]:
        """Memory for what a step makes of it."""
        room = _times(self.room, room)
        made = e.room(Room(room.each, room.fixed + SLACK + 2 * PREFIX))
        return e.let(f"{made} + {PREFIX}", "int64").expr, room

    def slices(self, e: Emitter) -> str:
        """Memory for as many slices as it has bytes."""
        return e.room(Room(self.room.each, self.room.fixed + 4).times(8))


def _times(room: Room, more: Room) -> Room:
    return Room(room.each * more.each, room.fixed * more.each + more.fixed)


class PieceModel(ToWords, abstract=True, arity=Arity.ONE_TO_MANY, method=""):
    """The common part of all models of pieces.

    The texts of `added` are pieces wherever a document has them, before anything else; `options`
    has a sum for each: 1 for whole words only, 2 and 4 for those that take white space to their
    left and right with them, 8 for those that are looked up in changed text. `changes` are the
    steps on the text between them, `splits` how that becomes words. The model knows the first `own`
    pieces, all if that is 0: those behind are added texts alone.
    """

    vocabulary: Table
    added: Table = ()  # type: ignore[assignment]  # made a table by its annotation
    options: tuple[int, ...] = ()
    changes: tuple[tuple[str, ...], ...] = ()
    splits: tuple[tuple[str | int, ...], ...] = ()
    unknown: str = ""
    own: int = 0

    def check(self) -> None:
        known = numbered(self.vocabulary)
        for piece in (*([self.unknown] if self.unknown else []), *self.added.to_list()):
            if piece not in known:
                raise ParameterError("the vocabulary has not got this piece", found=repr(piece))
        if len(self.options) not in (0, len(self.added)):
            raise ParameterError("every added text has its options", found=str(self.options))
        _ = [self._added(kind) for kind in (0, NORMALISED)]
        for step in self.changes:
            if not step or step[0] not in (*characters.SIMPLE, *CHANGES):
                raise ParameterError("characters are not changed so", found=str(step))
            _ = _automaton(step[1]) if step[0] == "replace" else None
            _ = charsmap.entries(step[1]) if step[0] == "charsmap" else None
        for cut in self.splits:
            if cut[:1] not in (("cut",), ("head",)):
                raise ParameterError("words are not cut so", found=str(cut))
            _ = _automaton(str(cut[2])) if cut[0] == "cut" else None

    @cached_property
    def known(self) -> dict[str, int]:
        """The numbers of the model's own pieces."""
        pieces = self.vocabulary.to_list()
        return {piece: number for number, piece in enumerate(pieces[: self.own or len(pieces)])}

    @property
    def number(self) -> int:
        """The number of `unknown`, or -1."""
        return numbered(self.vocabulary)[self.unknown] if self.unknown else -1

    def _added(self, kind: int) -> dict[str, tuple[int, int]]:
        """The number and the options of each added text, of those in changed text or the others."""
        found = dict[str, tuple[int, int]]()
        for name, options in zip(
            self.added.to_list(), self.options or [0] * len(self.added), strict=True
        ):
            if options & NORMALISED == kind:
                spelt = self.changed(name) if kind else name
                if not spelt or spelt in found:
                    raise ParameterError("added texts differ, and have letters", found=repr(name))
                found[spelt] = numbered(self.vocabulary)[name], options
        return found

    # --- in Python --------------------------------------------------------------------------------

    def reference(self, x: Columns) -> Columns:
        return [[*self._pieces_of(row)] for row in x]

    def changed(self, part: str) -> str:
        """A part of a document after all steps."""
        for step in self.changes:
            own = CHANGES.get(step[0])
            part = own(part, *step[1:]) if own else characters.stepped(step, part)
        return part

    def _pieces_of(self, row: str) -> Iterator[str]:
        for start, part, number in between(row, self._added(0)):
            if number is not None:
                yield self.vocabulary[number]
                continue
            changed = self.changed(part)
            for place, inner, piece in between(changed, self._added(NORMALISED)):
                if piece is not None:
                    yield self.vocabulary[piece]
                    continue
                words = [inner] if inner else []
                for step in self.splits:
                    words = [*split(words, step, first=start + place == 0)]
                for word in words:
                    yield from self.word(word)

    def word(self, word: str) -> Iterable[str]:
        """The pieces of a word."""
        raise NotImplementedError(f"{self.name}.word")

    # --- in native code ---------------------------------------------------------------------------

    def emit(self, e: Emitter, x: Value) -> TokensValue:
        source = document(e, x)
        most = part = Room(source.growth, 0)
        for step in (*self.changes, *self.splits):
            part = _times(part, _grown(step))
        # Parts are fewer than bytes, and than added texts and one more.
        most = Room(part.each + part.fixed * bool(len(self.added)), part.fixed + 1)
        slices, count = e.room(most.times(8)), e.var("0", "k")
        whole = TextPart(source.where, source.size, Room(source.growth, 0))
        with self._parts(e, whole, 0, slices, count) as raw:
            changed = self._changed(e, raw)
            with self._parts(e, changed, NORMALISED, slices, count) as inner:
                base, words, many = self._words(e, inner)
                call = self.model(e, base, f"{words}, {many}, {slices}, {count}")
                e.line(f"{count} = {call}")
        data = e.address(self.vocabulary.blobs()[1])
        widest = int(np.diff(self.vocabulary.offsets).max(initial=1))
        return TokensValue(data, slices, count, most, most.times(widest + 1))

    def model(self, e: Emitter, base: TextPart, words: str) -> str:
        """The call that appends the pieces of words to a list."""
        raise NotImplementedError(f"{self.name}.model")

    @contextmanager
    def _parts(
        self, e: Emitter, part: TextPart, kind: int, slices: str, count: str
    ) -> Iterator[TextPart]:
        """A block for each part between added texts, whose pieces follow it."""
        added = self._added(kind)
        if not added:
            yield part
            return
        raw = [each.encode() for each in added]
        firsts, widths = np.zeros(256, np.uint8), sorted({*map(len, raw)}, reverse=True)
        firsts[[each[0] for each in raw]] = 1
        numbers, options = np.array([*added.values()]).T
        blobs = (options.astype(np.uint8), firsts, np.array([*widths, 0]))
        kinds = characters.classes_of_words()
        tables = map(e.address, (*kinds, *map(Blob.of, blobs)))
        known = packed(e, *tables, e.size(len(widths)), looked_up(e, Table.of([*added])))
        place, last, found = e.var("0", "k"), e.var("0", "k"), e.var("0", "k")
        start, end = e.fresh("k"), e.fresh("k")
        ids = e.address(Blob.of(numbers.astype(np.int32)))
        offsets = e.address(self.vocabulary.blobs()[0])
        with e.block(f"while {found} >= 0:"):
            text = f"{part.where}, {part.size}, {place}, {last}"
            e.line(f"{found}, {start}, {end}, {place} = text_added({text}, {known})")
            with e.block(f"if {start} > {last}:"):
                inner = e.let(f"{part.where} + {last}", "int64").expr
                size = e.let(f"{start} - {last}", "int64").expr
                first = e.let(f"min({part.first}, int64({last} == 0))", "int64").expr
                yield TextPart(inner, size, part.room, first)
            with e.block(f"if {found} >= 0:"):
                entry = f"text_entry({offsets}, int64(ldc_int32({ids}, {found})))"
                e.store(slices, count, entry, "int64")
                e.line(f"{count} += 1")
                e.line(f"{last} = {end}")

    def _changed(self, e: Emitter, part: TextPart) -> TextPart:
        """A part after all steps."""
        for step in self.changes:
            if step[0] == "strip":
                spaces = ", ".join(map(e.address, characters.classes_of_words()))
                place, size = e.fresh("k"), e.fresh("k")
                tail = f"{e.size(int(step[1]))}, {spaces}"
                e.line(f"{place}, {size} = text_trimmed({part.where}, {part.size}, {tail})")
                where = e.let(f"{part.where} + {place}", "int64").expr
                part = part._replace(where=where, size=size)
                continue
            made, room = part.grown(e, _grown(step))
            if step[0] in characters.SIMPLE:
                made, size = self._simple(e, step, part, made, room)
            elif step[0] == "charsmap":
                size = _mapped(e, part, made, step[1])
            else:
                found, many = part.slices(e), f"min({part.size}, 1)"
                if step[0] == "prepend":  # a slice without characters
                    e.store(found, "0", "0", "int64")
                else:
                    text = f"{part.where}, {part.size}, {found}, {_tables(e, step[1])}"
                    many = e.let(f"text_tokens({text})", "int64").expr
                text = f"{part.where}, {part.size}, {found}, {many}, {spelt(e, step[-1])}"
                size = e.let(f"text_swap({text}, {made})", "int64").expr
            part = part._replace(where=made, size=size, room=room)
        return part

    def _simple(
        self, e: Emitter, step: tuple[str, ...], part: TextPart, made: str, room: Room
    ) -> tuple[str, str]:
        """Where a part is after a step on its characters, and its size."""
        table, classes = characters.step_table(step)
        spare = e.room(Room(room.each, room.fixed + SLACK))
        kinds = ", ".join(map(e.address, classes))
        tables = ", ".join(map(e.address, (table.places, table.blocks, table.pieces)))
        call = f"text_replace({part.where}, {part.size}, {made}, {spare}, {tables}, {kinds})"
        size = e.let(call, "int64").expr
        if step[0] not in ("nfc", "nfkc"):
            return made, size
        again, _ = part.grown(e, _grown(step))
        whole = characters.composites()
        wholes, data = map(e.address, Table.of([*whole.values()]).blobs())
        keys = np.array([[*map(ord, pair)] for pair in whole], np.int32)
        how = packed(e, kinds, wholes, data, pairs(e, keys))
        return again, e.let(f"text_compose({made}, {size}, {again}, {how})", "int64").expr

    def _words(self, e: Emitter, part: TextPart) -> tuple[TextPart, str, str]:
        """The words of a part: where they are, a list of their slices, and how many there are."""
        words, many = part.slices(e), e.let(f"min({part.size}, 1)", "int64").expr
        e.store(words, "0", part.size, "int64")
        for step, *rest in self.splits:
            if step == "cut":
                how, pattern = rest
                spare, made = part.slices(e), part.slices(e)
                how = packed(e, _tables(e, str(pattern)), e.size(int(how)))
                call = f"text_cut({part.where}, {words}, {many}, {made}, {spare}, {how})"
                many = e.let(call, "int64").expr
                words = made
                continue
            text, swaps, scheme = rest
            made, room = part.grown(e, _grown((step, *rest)))
            counts = {"always": many, "never": "0", "first": f"min({many}, {part.first})"}
            text = f"{spelt(e, str(text))}, {e.size(int(swaps))}, {counts[str(scheme)]}"
            e.line(f"text_headed({part.where}, {words}, {many}, {made}, {text})")
            part = part._replace(where=made, room=room)
        return part, words, many


def _mapped(e: Emitter, part: TextPart, made: str, written: str) -> str:
    """Write a part as a map of characters changes it; the new size."""
    where, found, grown = part.where, part.slices(e), e.var("0", "k")
    call = f"text_tokens({where}, {part.size}, {found}, {_tables(e, charsmap.CLUSTERS)})"
    many, changes = e.let(call, "int64").expr, charsmap.entries(written)
    known = looked_up(e, Table.of([*changes]))
    offsets, data = map(e.address, Table.of([*changes.values()]).blobs())
    kinds = ", ".join(map(e.address, charsmap.begun(written)))
    with e.loop(many) as item:
        cluster = e.let(f"ld_int64({found}, {item})", "int64").expr
        place = e.var(f"{cluster} >> 32", "k")
        end = e.let(f"{place} + ({cluster} & 0xFFFFFFFF)", "int64").expr
        short = e.var(f"int64({end} - {place} < {charsmap.LONG})", "k")
        with e.block(f"while {place} < {end}:"):
            here = e.let(f"{where} + {place}", "int64").expr
            kind = e.let(f"text_kind_at({where}, {place}, {kinds})", "int64").expr
            width = e.let(f"text_width(ld_uint8({where}, {place}))", "int64").expr
            size, number = e.var(width, "k"), e.var("-1", "k")
            look = f"{number} = text_find({here}, {size}, {known})"
            with e.block(f"if {kind} & {charsmap.WHOLE} != 0:"):
                e.line(look)
            more = f"{number} < 0 and {kind} & {charsmap.BEGUN} != 0 and {short} > 0"
            with e.block(f"while {more} and {place} + {size} < {end}:"):
                e.line(f"{size} += text_width(ld_uint8({here}, {size}))")
                e.line(look)
            with e.block(f"if {number} < 0:"):
                e.line(f"poke_int64({made} + {grown}, 0, peek_int64({here}, 0))")
                e.line(f"{grown} += {width}")
                e.line(f"{place} += {width}")
            with e.block("else:"):
                start = e.let(f"ldc_int64({offsets}, {number})", "int64").expr
                new = e.let(f"ldc_int64({offsets}, {number} + 1) - {start}", "int64").expr
                with e.loop(new) as j:
                    e.line(f"st_uint8({made}, {grown} + {j}, ldc_uint8({data}, {start} + {j}))")
                e.line(f"{grown} += {new}")
                e.line(f"{place} = {end} if {short} > 0 else {place} + {width}")
            e.line(f"{short} = 0")
    return grown


def spelt(e: Emitter, text: str) -> str:
    """The arguments that are a text, with room to read behind it, and its size."""
    raw = text.encode()
    return f"{e.address(Blob.of(np.frombuffer(raw + bytes(SLACK), np.uint8)))}, {e.size(len(raw))}"


def _grown(step: Sequence[str | int]) -> Room:
    """How a text grows by a step, at most."""
    kind, *rest = map(str, step)
    if kind in characters.SIMPLE:
        return Room(characters.step_table((kind, *rest))[0].growth, 0)
    if kind == "head":
        return Room(1 + len(rest[0].encode()), 0)
    if kind == "charsmap":
        return Room(charsmap.growth(rest[0]), 0)
    if kind == "replace":
        return Room(max(1, -(-len(rest[1].encode()) // _automaton(rest[0]).shortest)), 0)
    return Room(1, len(rest[0].encode()) if kind == "prepend" else 0)


def _automaton(pattern: str) -> Automaton:
    found = automaton(translated(pattern))
    if found is None:
        raise UnsupportedSetting("this pattern has no automaton", where=repr(pattern)[:120])
    return found


def _tables(e: Emitter, pattern: str) -> str:
    """The arguments that are a pattern's automaton."""
    return searched(e, _automaton(pattern))


def packed(e: Emitter, *parts: str) -> str:
    """The address of an array of what these arguments say."""
    words = ", ".join(parts).split(", ")
    made = e.scratch("int64", len(words))
    for place, word in enumerate(words):
        e.store(made, str(place), word, "int64")
    return made


def pairs(e: Emitter, keys: NDArray[Any]) -> str:
    """The arguments that are a dictionary of pairs of numbers."""
    return looked_up(e, raw_table([each.tobytes() for each in keys]))


def raw_table(keys: Sequence[bytes]) -> Table:
    """A table of bytes that need not be text, for look-ups alone."""
    offsets = np.cumsum([0, *map(len, keys)])
    data = np.frombuffer(b"".join(keys) or b"\0", np.uint8)[: offsets[-1]]
    return Table.from_blobs(Blob.of(offsets), Blob.of(data), "keys", trusted=True)
