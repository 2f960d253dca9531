"""Options of a request besides its data: outputs and their form, timeout, priority."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from runtime.http.codec.codec_json import AnyInput, Envelope, RequestOutput
from runtime.http.codec.content import common_type, content_type
from runtime.http.wire.messages import HEADER_LENGTH, TIMEOUT_HEADER, Request
from runtime.http.wire.problems import HttpError


@dataclass(frozen=True, slots=True)
class OutputOptions:
    """One requested output."""

    name: str
    binary: bool = False
    classes: int = 0
    """With k, the k largest elements of each row as "value:index:label"."""
    content: str | None = None
    """The content type of this output, where it is not that of the request."""


@dataclass(frozen=True, slots=True)
class ResponseOptions:
    """The options of one request; None means not given."""

    id: str | None = None
    outputs: tuple[OutputOptions, ...] | None = None
    binary: bool = False
    """True if outputs are binary when the request names none."""
    timeout: float | None = None
    priority: int | None = None
    content: str | None = None
    """The content type of the request, of clients that use them."""
    explain: str | None = None
    """The output whose scores are attributed to columns; empty for the usual one."""
    attribution: Mapping[str, Any] | None = None
    """The attribution that a request's `explain` asks for."""

    @classmethod
    def of(cls, asked: Envelope, request: Request) -> ResponseOptions:
        """The options of a decoded request. Unknown parameters are ignored."""
        parameters = asked.parameters or {}
        binary = _flag(parameters, "binary_data_output", "$")
        items: Sequence[AnyInput] = asked.inputs
        inputs = [content_type(each.parameters, f"$.inputs[{at}]") for at, each in enumerate(items)]
        return cls(
            id=asked.id,
            outputs=_outputs(asked.outputs, binary=binary) if asked.outputs else None,
            binary=binary,
            timeout=timeout(parameters, request),
            priority=_priority(parameters),
            content=common_type([content_type(parameters, "$"), *inputs]),
            explain=_explain(parameters),
        )


NOTHING = ResponseOptions()
#: The priority of requests that have none.
_USUAL = 8
_LENGTH, _TIMEOUT = HEADER_LENGTH.encode(), TIMEOUT_HEADER.encode()


def _explain(parameters: Mapping[str, Any]) -> str | None:
    """The output to explain, empty for the usual one, where the answer is to be explained."""
    value = parameters.get("explain", False)
    if isinstance(value, bool):
        return "" if value else None
    if isinstance(value, str) and value:
        return value
    raise HttpError(
        "explain is true, false or the name of an output",
        where="$.parameters.explain",
        found=repr(value)[:40],
    )


def _outputs(wanted: Sequence[RequestOutput], *, binary: bool) -> tuple[OutputOptions, ...]:
    outputs = []
    for index, item in enumerate(wanted):
        parameters, where = item.parameters or {}, f"$.outputs[{index}]"
        raw = _flag(parameters, "binary_data", where, default=binary)
        classes = _number(parameters, "classification", where) or 0
        outputs.append(OutputOptions(item.name, raw, classes, content_type(parameters, where)))
    if len({item.name for item in outputs}) != len(outputs):
        names = ", ".join(item.name for item in outputs)
        raise HttpError("an output is asked for twice", where="$.outputs", found=names[:200])
    return tuple(outputs)


def _flag(parameters: Mapping[str, Any], name: str, where: str, *, default: bool = False) -> bool:
    value = parameters.get(name, default)
    if not isinstance(value, bool):
        raise HttpError(
            f"{name} is true or false", where=f"{where}.parameters.{name}", found=repr(value)[:40]
        )
    return value


def _number(parameters: Mapping[str, Any], name: str, where: str = "$") -> int | None:
    """A whole number that is not negative, or its text: some clients send text."""
    value = parameters.get(name)
    if value is None:
        return None
    try:
        number = int(value) if isinstance(value, int | str) and not isinstance(value, bool) else -1
    except ValueError:
        number = -1
    if not 0 <= number < 1 << 63:
        raise HttpError(
            f"{name} is a whole number that is not negative",
            where=f"{where}.parameters.{name}",
            found=repr(value)[:40],
        )
    return number


def timeout(known: Mapping[str, Any], request: Request) -> float | None:
    """Seconds: from the parameter, in microseconds, of which 0 means none; or from the header."""
    micros = _number(known, "timeout")
    limits = [micros / 1e6] if micros else []
    header = request.header(TIMEOUT_HEADER)
    if header is not None:
        limits.append(_milliseconds(header) / 1e3)
    return min(limits, default=None)


def tells(request: Request) -> bool:
    """True if a header says how the body is to be read, or how soon it has to be answered."""
    return _LENGTH in request.headers or _TIMEOUT in request.headers


def _milliseconds(text: str) -> float:
    try:
        milliseconds = float(text)
    except ValueError:
        milliseconds = -1.0
    if not 0 <= milliseconds < 1e12:
        raise HttpError(f"{TIMEOUT_HEADER} is a number of milliseconds", found=repr(text)[:40])
    return milliseconds


def _priority(parameters: Mapping[str, Any]) -> int | None:
    """On the wire 1 is the most urgent; to the executors a larger number is."""
    level = _number(parameters, "priority")
    return _USUAL - min(level, 1 << 20) if level else None
