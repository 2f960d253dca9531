"""Every error this package raises, as one tree.

    FlourError
    ├── TypeMismatch           an operator cannot take the inputs it was given
    ├── ParameterError         an operator's own parameter is wrong
    ├── ImportRefused          an estimator or model cannot be imported faithfully
    │   ├── UnknownEstimator       nothing here knows this class
    │   ├── UnfittedEstimator      it was never fitted
    │   ├── UnsupportedSetting     known class, but this setting has no exact translation
    │   └── OtherVersion           another version of its library gave its state another meaning
    ├── InputError             the data handed to a program is wrong (also a ValueError)
    │   ├── WidthMismatch          wrong number of columns
    │   ├── MissingColumn          a named column is absent
    │   ├── WrongDtype             a column holds another kind of value
    │   ├── NotRectangular         ragged rows, or the wrong number of dimensions
    │   ├── NotNumeric             an object array with something that is no number
    │   └── NotDecodable           bytes that are no text in the encoding of the input
    ├── OpaqueFailed           onnxruntime cannot load or run a part of a model
    ├── FunctionFailed         a Python function of the user's, part of a program, failed
    │   └── WrongAnswer            a coroutine of a graph did not answer as was promised
    ├── PythonRefused          Python code that may not be run, or cannot be saved
    └── DamagedProgram         a saved program does not describe a valid graph

Every message has four parts, always in this order: what went wrong, where in the user's
world, what was there, and a hint.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from math import inf
from numbers import Integral, Real
from typing import TYPE_CHECKING

from flour.core.provenance import here
from objectstore import Explained

if TYPE_CHECKING:
    from typing_extensions import Self  # Python 3.11 has it


class FlourError(Explained):
    """Something is wrong with a program, or with what it was given."""

    @classmethod
    def here(cls, what: str, *, found: str | None = None, hint: str | None = None) -> Self:
        """The error, at the line of the caller's program that is running."""
        return cls(what, where=str(here()), found=found, hint=hint)


class TypeMismatch(FlourError):
    """An operator cannot take the inputs it was given."""


class ParameterError(FlourError):
    """An operator's own parameter is wrong."""


class ImportRefused(FlourError):
    """An estimator or model cannot be imported faithfully."""


class UnknownEstimator(ImportRefused):
    """No adapter is registered for this class."""


class UnfittedEstimator(ImportRefused):
    """The estimator was never fitted, so there is nothing to import."""


class UnsupportedSetting(ImportRefused):
    """The class is known, but this setting has no exact translation."""


class OtherVersion(ImportRefused):
    """Another version of its library fitted the estimator, and its state meant something else."""


class OtherVersionWarning(UserWarning):
    """Another version of scikit-learn than the installed one made the estimator."""


class BoosterWarning(UserWarning):
    """A booster answers, but wants or answers something else than the wrapper around it."""


class InputError(FlourError, ValueError):
    """The data handed to a program is wrong."""


class WidthMismatch(InputError):
    """The input has another number of columns than the program was built for."""


class MissingColumn(InputError):
    """A named column is absent from the input."""


class WrongDtype(InputError):
    """A column holds another kind of value than the program expects."""


class NotRectangular(InputError):
    """The input is ragged or has the wrong number of dimensions."""


class NotNumeric(InputError):
    """An object array holds something that is not a number."""


class NotDecodable(InputError):
    """A document came as bytes that are no text in the encoding of the input."""


class OpaqueFailed(FlourError):
    """onnxruntime cannot load or run a part of a model; `code` is its own class of error."""

    code: str = ""


class CoroutineEnded(Exception):
    """A coroutine has ended by what would end its event loop, or as if it had been cancelled."""


class FunctionFailed(FlourError):
    """A Python function of the user's own, which is part of a program, failed."""


class WrongAnswer(FunctionFailed):
    """A coroutine's answer is not what was promised; `found` says how, and quotes nothing of it."""


class PythonRefused(FlourError):
    """A plan names Python code that may not be run here, or has some that cannot be saved."""


class DamagedProgram(FlourError):
    """A saved program does not describe a valid graph."""


def nearest(name: object, names: Iterable[object], alike: float = 0.6) -> str | None:
    """A hint at the name that was probably meant, if one is near."""
    from difflib import get_close_matches  # only where something is wrong

    known = {str(each).lower(): str(each) for each in names}
    found = get_close_matches(str(name).lower(), known, n=1, cutoff=alike)
    return f"did you mean {known[found[0]]!r}?" if found else None


def check_names(call: str, function: object, options: Iterable[str]) -> None:
    """Raise for an option that a function, or a class of settings, does not have."""
    from dataclasses import is_dataclass  # as above
    from inspect import Parameter, signature

    parameters = signature(function).parameters.values()  # type: ignore[arg-type]  # a class, too
    every = is_dataclass(function)
    known = [each.name for each in parameters if every or each.kind is Parameter.KEYWORD_ONLY]
    for name in options:
        if name not in known:
            raise ParameterError(
                f"there is no option {name!r}",
                where=call,
                found="options are " + ", ".join(known),
                hint=nearest(name, known),
            )


def is_time(value: object) -> bool:
    """True if this is a number of seconds, which may be infinite."""
    return is_number(value) or (isinstance(value, float) and value == inf)


def is_number(value: object) -> bool:
    """True if this is a finite number, 0 or more, and no truth value."""
    if isinstance(value, bool) or not isinstance(value, Real):
        return False
    try:
        return 0 <= float(value) < inf
    except OverflowError:  # of an integer that no float holds
        return False


def is_count(value: object, least: int = 0) -> bool:
    """True if this is an integer of `least` or more, and no truth value."""
    return isinstance(value, Integral) and is_number(value) and int(value) >= least


def are_texts(value: object) -> bool:
    """True if these are texts, several or none."""
    return isinstance(value, Collection) and all(isinstance(each, str) for each in value)


def check_values(
    options: Iterable[tuple[str, object, object, str]],
    what: str,
    where: str | None,
    error: type[FlourError] = ParameterError,
) -> None:
    """Raise for the first of these options that does not fit: name, value, fits, meaning."""
    for name, value, fits, meaning in options:
        if not fits:
            found = f"{name}={value!r}"[:100]
            raise error(what, where=where, found=found, hint=f"{name}: {meaning}")
