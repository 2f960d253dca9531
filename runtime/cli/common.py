"""Arguments that several commands share."""

from __future__ import annotations

import argparse
import re
from collections.abc import Callable
from contextlib import suppress

_SIZE = re.compile(r"(\d+(?:\.\d+)?)\s*([kmgt]?)(?:i?b)?", re.IGNORECASE)
_POWERS = {"": 0, "k": 10, "m": 20, "g": 30, "t": 40}


def model(parser: argparse.ArgumentParser) -> None:
    """The model that a command is about."""
    parser.add_argument("model", metavar="MODEL", help="a model's file, or DIR/NAME[@VERSION]")
    trust(parser)
    allow_python(parser)


def trust(parser: argparse.ArgumentParser) -> None:
    """True if pickles may run the code that they name."""
    parser.add_argument(
        "--trust-pickle",
        action="store_true",
        help="unpickle a model whose answers are compared, or that is refused when it is read as "
        "data; this runs code of its author",
    )


def trust_code(parser: argparse.ArgumentParser) -> None:
    """True if machine code in plans may be run."""
    parser.add_argument(
        "--trust-code",
        action="store_true",
        help="run machine code that plans carry; it can do whatever their author wants",
    )


def allow_python(parser: argparse.ArgumentParser) -> None:
    """Modules that graphs may have coroutines from."""
    parser.add_argument(
        "--allow-python",
        metavar="MODULE",
        action="append",
        default=[],
        help="import this module for graphs of the folder whose `fetch` names it; may be repeated",
    )


def tls(add: Callable[..., object]) -> None:
    """Add the files of TLS, by the method of a group."""
    add("--tls-cert", metavar="FILE", help="the certificate of the server, as PEM")
    add("--tls-key", metavar="FILE", help="its key, where it is in another file")
    add("--tls-client-ca", metavar="FILE", help="authorities: clients need a certificate of theirs")


def cpu(parser: argparse.ArgumentParser, usual: str, text: str) -> None:
    """Levels of processors to compile for."""
    parser.add_argument("--cpu", metavar="LEVELS", default=usual, help=text)


def tolerance(parser: argparse.ArgumentParser) -> None:
    """The tolerance of comparisons."""
    parser.add_argument(
        "--tolerance",
        type=amount,
        help="for numbers, relative to the largest (1e-9; 1e-5 for float32)",
    )


def rows(parser: argparse.ArgumentParser) -> None:
    """Options for reading a file of rows."""
    parser.add_argument(
        "--format",
        choices=("csv", "tsv", "jsonl", "parquet", "arrow"),
        help="of the rows; by default that of the file's ending",
    )
    parser.add_argument(
        "--separator", metavar="C", type=_character, help="between the cells of a CSV file"
    )
    parser.add_argument(
        "--header",
        action=argparse.BooleanOptionalAction,
        help="whether a CSV file begins with a line of names; by default it is detected",
    )


def _character(text: str) -> str:
    if len(text) != 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not one character; for tabs: --format tsv")
    return text


def size(text: str) -> int:
    """A number of bytes: 300M, 2GiB, 4096."""
    match = _SIZE.fullmatch(text.strip())
    if match is None:
        raise argparse.ArgumentTypeError(f"{text!r} is not a size; write it like 500M or 2G")
    if not match[2] and not float(match[1]).is_integer():
        raise argparse.ArgumentTypeError(f"{text!r} is a fraction of a byte; write it like 1.5G")
    return int(float(match[1]) * (1 << _POWERS[match[2].lower()]))


def amount(text: str) -> float:
    """A finite number, 0 or more."""
    with suppress(ValueError):
        if 0 <= (value := float(text)) <= 1e9:
            return value
    raise argparse.ArgumentTypeError(f"{text!r} is not a number from 0 to 1e9")


def positive(text: str) -> int:
    """A whole number above zero."""
    try:
        value = int(text)
    except ValueError:
        value = 0
    if value < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number above zero")
    return value
