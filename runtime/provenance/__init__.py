"""The origin of an answer: kept answers, each of which can be computed once more.

keeper = runtime.keep("fraud", "answers/")
answer = runtime.predict("fraud", row)
runtime.why(answer.id).recomputed()     # bit for bit, after a restart and after switches, too
"""

from __future__ import annotations

from runtime.provenance.keeping import AnswerKeeper, Kept
from runtime.provenance.log import AnswerLog
from runtime.provenance.why import Why

__all__ = ["AnswerKeeper", "AnswerLog", "Kept", "Why"]
