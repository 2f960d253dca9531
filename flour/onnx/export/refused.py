"""Why operators have no ONNX form, where that is worth knowing; an operator needs no entry here."""

from __future__ import annotations

_UNICODE = "its characters are Unicode's, those of ONNX's text operators ASCII's or one by one"
_WORDS = "what ONNX calls words is a tensor as wide as the longest document"
_SETTLES = "it goes on until it settles, row by row"
_PYTHON = "it is a Python function"
_RECORD = "ONNX has no records; pick the columns"

#: Operator -> why it has no form.
WITHOUT = {
    "Barycentre": "it solves a system of equations a row",
    "Bundle": _RECORD,
    "CharNgrams": "white space counts once, which no ONNX operator does",
    "CouplePairs": _SETTLES,
    "CutWords": _WORDS,
    "DropWords": "ONNX drops whole rows, not words",
    "HashedValues": "its input is names with numbers, which are no tensor",
    "Hashing": "what fills short documents up would be hashed too",
    "ImputeInTurn": "it computes with only those columns that a row lacks, in turn",
    "ImputeNearest": "a row's distances are over only those columns it has",
    "JoinTexts": "ONNX joins strings only from operator set 20 on",
    "Lower": _UNICODE,
    "MatchesWhole": "ONNX has patterns only from operator set 20 on, and only those of RE2",
    "MatchingPursuit": _SETTLES,
    "NamedValues": "its input is names with numbers, which are no tensor",
    "Narrow": _RECORD,
    "Opaque": "it is a part of an ONNX model already; serve that model",
    "ParseCsv": "no ONNX operator reads CSV",
    "Phrases": _WORDS,
    "PythonColumns": _PYTHON,
    "PythonText": _PYTHON,
    "PythonWords": _PYTHON,
    "Runs": _WORDS,
    "Splines": "its polynomials change from knot to knot, and what is beyond has rules of its own",
    "Split": "empty words are lost in ONNX",
    "StripAccents": _UNICODE,
    "TopicWeights": _SETTLES,
}


def reason(name: str) -> str:
    """Why an operator has no form, as far as it was looked into."""
    return WITHOUT.get(name, "not exportable: no form is written for it")
