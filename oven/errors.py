"""Errors on the way between a program and its native code.

FlourError (flour.core.errors)
├── CompileError     our emitted code did not compile: a bug here, the source is attached
│   └── NoCompiler   there is no compiler for it: a library is not installed
├── NotExportable    a program, or a tool on this machine, cannot make this artefact
├── RewriteError     a rule broke an invariant, or the rules never came to rest
├── DamagedPlan      a saved plan is not what a plan can be
└── OtherUnicode     a warning: a plan was saved where Python knew other characters
"""

from __future__ import annotations

from flour.core.errors import FlourError


class CompileError(FlourError):
    """Emitted code did not compile; the source is attached."""

    source: str = ""

    @classmethod
    def of(cls, name: str, source: str, message: str) -> CompileError:
        """The error for this stage, with its source."""
        made = cls(
            f"stage {name} did not compile",
            found=message.strip().splitlines()[0][:200] if message.strip() else None,
            hint="this is a bug in the emitter; PRETZEL_DEBUG=4 prints the source",
        )
        made.source = source
        return made


class NoCompiler(CompileError):
    """A library that compiles is not installed: operators' definitions answer instead."""

    @classmethod
    def without(cls, library: str, why: str = "") -> NoCompiler:
        """The error for code that this library would compile."""
        return cls(
            f"code is not compiled, as {library} cannot be imported",
            found=why or None,
            hint=f"definitions in numpy answer, more slowly; pip install {library}",
        )


class NotExportable(FlourError):
    """A program, or a tool on this machine, cannot make the artefact that is asked for."""


class RewriteError(FlourError):
    """A rule broke an invariant, or the rules never came to rest."""


class DamagedPlan(FlourError):
    """A saved plan is not what a plan can be."""


class OtherUnicode(FlourError, UserWarning):
    """A plan was saved where Python knew other characters than here: a warning, not a refusal."""
