"""Random programs in the language of native code, in which nothing overflows."""

from __future__ import annotations

import random

_HEAD = """\
def rows(whole, floats, n, into):
    for i in range(n):
        i0 = ld_int64(whole, 3 * i) % 1009
        i1 = ld_int64(whole, 3 * i + 1) % 97
        i2 = ld_int64(whole, 3 * i + 2)
        f0 = ld_float64(floats, 2 * i)
        f1 = ld_float64(floats, 2 * i + 1)
        f2 = 0
"""
_TAIL = """\
        st_int64(into, 4 * i, i0)
        st_int64(into, 4 * i + 1, i1)
        st_float64(into, 4 * i + 2, f0)
        st_float64(into, 4 * i + 3, f1 + f2)
    return 0
"""
#: How deep expressions, and statements in statements, may be.
_DEEP, _NESTED = 3, 2


class Writer:
    """Writes one program, decided by a seed."""

    def __init__(self, seed: int) -> None:
        self.random, self.lines, self.loops = random.Random(seed), list[str](), 0

    def program(self) -> str:
        """The source of a function `rows`, which leaves four words for each row."""
        self.block(2, 0)
        return _HEAD + "".join(self.lines) + _TAIL

    def block(self, indent: int, nested: int) -> None:
        """Some statements."""
        for _ in range(self.random.randint(2, 5)):
            self.statement(indent, nested)

    def line(self, indent: int, text: str) -> None:
        """One line of the program."""
        self.lines.append(f"{'    ' * indent}{text}\n")

    def statement(self, indent: int, nested: int) -> None:
        """A statement of any kind."""
        simple = [self.whole_assigned, self.float_assigned, self.swapped, self.added]
        blocks = [self.chosen, self.counted, self.repeated] if nested < _NESTED else []
        place = self.random.randrange(len(simple) + len(blocks))
        if place < len(simple):
            simple[place](indent)
        else:
            blocks[place - len(simple)](indent, nested)

    def whole_assigned(self, indent: int) -> None:
        """Whole numbers stay small: products of three are far from the limit."""
        self.line(indent, f"{self.whole_name()} = ({self.whole(0)}) % 1009")

    def float_assigned(self, indent: int) -> None:
        """A float, or what becomes one."""
        name = self.random.choice(["f0", "f1", "f2"])
        self.line(indent, f"{name} = {self.number(0)}")

    def swapped(self, indent: int) -> None:
        """Two at once."""
        self.line(indent, f"i0, f0 = ({self.whole(1)}) % 1009, {self.number(1)}")

    def added(self, indent: int) -> None:
        """Something added to what was there."""
        if self.random.random() < 0.5:
            self.line(indent, f"f2 += {self.number(1)}")
            return
        self.line(indent, f"i1 = (i1 + {self.whole(1)}) % 1009")

    def chosen(self, indent: int, nested: int) -> None:
        """One block or the other."""
        self.line(indent, f"if {self.condition(0)}:")
        self.block(indent + 1, nested + 1)
        if self.random.random() < 0.6:
            self.line(indent, "else:")
            self.block(indent + 1, nested + 1)

    def counted(self, indent: int, nested: int) -> None:
        """A loop over a range, up or down."""
        bounds = ["i1 % 7", "2, 2 + i0 % 5", "i0 % 9, -1, -2", "3, -3, -1", "0, 10, 3", "5, i2 % 9"]
        self.loops += 1
        self.line(indent, f"for j{self.loops} in range({self.random.choice(bounds)}):")
        if self.random.random() < 0.5:
            self.line(indent + 1, f"if {self.condition(1)}:")
            self.line(indent + 2, self.random.choice(["break", "continue"]))
        self.line(indent + 1, f"i1 = (i1 * 3 + j{self.loops}) % 1009")
        self.block(indent + 1, nested + 1)

    def repeated(self, indent: int, nested: int) -> None:
        """A loop that ends by a counter, and perhaps before."""
        self.loops += 1
        left = f"w{self.loops}"
        self.line(indent, f"{left} = 4")
        self.line(indent, f"while {left} > 0 and {self.condition(1)}:")
        self.line(indent + 1, f"{left} -= 1")
        self.block(indent + 1, nested + 1)

    def whole_name(self) -> str:
        """A variable that holds a whole number."""
        return self.random.choice(["i0", "i1", "i2"])

    def whole(self, depth: int) -> str:
        """A whole number."""
        pick = self.random.choice
        if depth >= _DEEP or self.random.random() < 0.25:
            return pick([self.whole_name(), self.whole_name(), str(self.random.randint(-9, 9))])
        one, two = self.whole(depth + 2), self.whole(depth + 1)
        by = pick(["7", "-5", f"(1 + abs({one}))", f"(-1 - abs({one}))"])
        return pick(
            [
                *(f"({one} + {two})", f"({one} - {two})", f"({one} * {two})", f"(-{two})"),
                *(f"({two} // {by})", f"({two} % {by})", f"({two} >> 2)", f"(({two} & 63) << 3)"),
                *(f"min({one}, {two})", f"max({one}, {two})", f"abs({two})", f"({one} ^ {two})"),
                *(f"int64({self.condition(depth + 1)})", f"({one} | {two})", f"(~{two})"),
                f"({one} if {self.condition(depth + 1)} else {two})",
                f"int64(f0 if -1e6 < f0 < 1e6 else {self.random.randint(-9, 9)}.5)",
            ]
        )

    def number(self, depth: int) -> str:
        """A float."""
        pick = self.random.choice
        if depth >= _DEEP or self.random.random() < 0.25:
            return pick(["f0", "f1", f"float64({self.random.randint(-9, 9)}.25)"])
        one, two = self.number(depth + 1), self.number(depth + 1)
        return pick(
            [
                *(f"({one} + {two})", f"({one} - {two})", f"({one} * {two})", f"({one} / {two})"),
                *(f"(-{one})", f"abs({one})", f"min({one}, {two})", f"max({one}, {two})"),
                *(
                    f"({one} + {self.whole(2)})",
                    f"float64({self.whole(2)} / 4)",
                    f"({one} % {two})",
                ),
                *(f"maximum({one}, {two})", f"clip({one}, -2.0, 2.0)", f"floor({one})"),
                f"({one} if {self.condition(depth + 1)} else {two})",
                f"float64(float32({one}))",
            ]
        )

    def condition(self, depth: int) -> str:
        """A truth value."""
        pick, sign = self.random.choice, self.random.choice(["<", "<=", ">", ">=", "==", "!="])
        if depth < _DEEP and self.random.random() < 0.4:
            one, two = self.condition(depth + 2), self.condition(depth + 2)
            return pick([f"({one} and {two})", f"({one} or {two})", f"(not {one})"])
        left, right = self.whole(depth + 2), self.whole(depth + 2)
        chain = f"({left} <= {right} {sign} {self.whole_name()})"
        return pick([f"({left} {sign} {right})", chain, f"(f0 {sign} f1)", f"(f1 {sign} {right})"])
