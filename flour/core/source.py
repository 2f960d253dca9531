"""The inputs of a program: the one operator that every layer knows by name."""

from __future__ import annotations

from flour.core.errors import ParameterError
from flour.core.op import Op
from flour.core.types import Type


class Source(Op):
    """A named input of the program."""

    label: str
    kind: object  # a Type; the field is static and part of the program's identity

    def check(self) -> None:
        label: object = self.label  # from a file it may be anything
        if not isinstance(label, str) or not isinstance(self.kind, Type):
            raise ParameterError("an input has a name and a type", found=repr(self.kind))

    def infer(self) -> Type:
        return self.kind  # type: ignore[return-value]  # Op keeps static fields untyped
