"""What a request asks for besides its data: outputs and their form, how soon, how urgent."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from runtime.http.codec_json import Envelope, RequestOutput
from runtime.http.content import content_type
from runtime.http.messages import TIMEOUT_HEADER, Request
from runtime.http.problems import HttpError


@dataclass(frozen=True, slots=True)
class OutputOptions:
    """One output that was asked for."""

    name: str
    binary: bool = False
    classes: int = 0
    """With k, the k largest elements of each row as "value:index:label"."""


@dataclass(frozen=True, slots=True)
class ResponseOptions:
    """All of it; what is None was not said."""

    id: str | None = None
    outputs: tuple[OutputOptions, ...] | None = None
    binary: bool = False
    """For all outputs where none are named."""
    timeout: float | None = None
    priority: int | None = None
    content: bool = False
    """Whether the client knows content types."""


NOTHING = ResponseOptions()


def response_options(asked: Envelope, request: Request, default_priority: int) -> ResponseOptions:
    """What a decoded request asks for. Parameters that mean nothing here are ignored."""
    known = asked.parameters or {}
    binary = _flag(known, "binary_data_output", "$")
    inputs = (item.parameters or {} for item in asked.inputs)
    content = "content_type" in known or any("content_type" in each for each in inputs)
    if content:
        content_type(known, "$")
    return ResponseOptions(
        id=asked.id,
        outputs=_outputs(asked.outputs, binary=binary) if asked.outputs else None,
        binary=binary,
        timeout=timeout(known, request),
        priority=_priority(known, default_priority),
        content=content,
    )


def _outputs(wanted: Sequence[RequestOutput], *, binary: bool) -> tuple[OutputOptions, ...]:
    made = []
    for place, item in enumerate(wanted):
        known, where = item.parameters or {}, f"$.outputs[{place}]"
        raw = _flag(known, "binary_data", where, default=binary)
        made.append(OutputOptions(item.name, raw, _number(known, "classification", where) or 0))
    if len({item.name for item in made}) != len(made):
        names = ", ".join(item.name for item in made)
        raise HttpError("an output is asked for twice", where="$.outputs", found=names[:200])
    return tuple(made)


def _flag(known: Mapping[str, Any], name: str, where: str, *, default: bool = False) -> bool:
    found = known.get(name, default)
    if not isinstance(found, bool):
        raise HttpError(
            f"{name} is true or false", where=f"{where}.parameters.{name}", found=repr(found)[:40]
        )
    return found


def _number(known: Mapping[str, Any], name: str, where: str = "$") -> int | None:
    """A whole number that is not negative; as text too, as some clients send it."""
    found = known.get(name)
    if found is None:
        return None
    try:
        made = int(found) if isinstance(found, int | str) and not isinstance(found, bool) else -1
    except ValueError:
        made = -1
    if not 0 <= made < 1 << 63:
        raise HttpError(
            f"{name} is a whole number that is not negative",
            where=f"{where}.parameters.{name}",
            found=repr(found)[:40],
        )
    return made


def timeout(known: Mapping[str, Any], request: Request) -> float | None:
    """Seconds: from the parameter, in microseconds, or the header; 0 means none was set."""
    micros = _number(known, "timeout")
    said = [micros / 1e6] if micros else []
    header = request.header(TIMEOUT_HEADER)
    if header is not None:
        said.append(_milliseconds(header) / 1e3)
    return min(said, default=None)


def _milliseconds(text: str) -> float:
    try:
        made = float(text)
    except ValueError:
        made = -1.0
    if not 0 <= made < 1e12:
        raise HttpError(f"{TIMEOUT_HEADER} is a number of milliseconds", found=repr(text)[:40])
    return made


def _priority(known: Mapping[str, Any], default: int) -> int | None:
    """On the wire 1 is the most urgent; to the executors a larger number is."""
    level = _number(known, "priority")
    return default - min(level, 1 << 20) if level else None
