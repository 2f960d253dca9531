"""Write an XGBoost model in the library's old binary format, from what its JSON says."""

from __future__ import annotations

import struct
from typing import Any

import numpy as np


def binary(model: Any, *, version: int = 1) -> bytes:
    """The bytes of the model as versions before 2.1 wrote it (`version` 0 keeps margins)."""
    learner = model["learner"]
    facts, booster = learner["learner_model_param"], learner["gradient_booster"]
    base = float(str(facts["base_score"]).strip("[]").split(",")[0])
    numbers = (base, int(facts["num_feature"]), int(facts["num_class"]), 0, 0, version, 0, 1)
    head = struct.pack("<fIiiiIII", *numbers).ljust(136, b"\0")
    body = {"gblinear": _linear, "gbtree": _forest, "dart": _dart}[booster["name"]](booster)
    return head + text(learner["objective"]["name"]) + text(booster["name"]) + body


def text(value: str) -> bytes:
    """A string behind its length."""
    return struct.pack("<Q", len(value)) + value.encode()


def _floats(values: Any) -> bytes:
    return struct.pack("<Q", len(values)) + np.asarray(values, "<f4").tobytes()


def _linear(booster: Any) -> bytes:
    return bytes(136) + _floats(booster["model"]["weights"])


def _dart(booster: Any) -> bytes:
    return _forest(booster["gbtree"]) + _floats(booster["weight_drop"])


def _forest(booster: Any) -> bytes:
    model = booster["model"]
    count, parallel = len(model["trees"]), int(model["gbtree_model_param"]["num_parallel_tree"])
    head = struct.pack("<ii", count, parallel).ljust(160, b"\0")
    info = np.asarray(model["tree_info"], "<i4").tobytes()
    return head + b"".join(_tree(tree) for tree in model["trees"]) + info


def _tree(tree: Any) -> bytes:
    count = len(tree["left_children"])
    head = struct.pack("<iiiiII", 1, count, 0, 0, 0, 0).ljust(148, b"\0")
    nodes = b"".join(
        struct.pack("<iiiIf", 0, left, right, split | (default << 31), value)
        for left, right, split, default, value in zip(
            tree["left_children"],
            tree["right_children"],
            tree["split_indices"],
            tree["default_left"],
            tree["split_conditions"],
            strict=True,
        )
    )
    return head + nodes + bytes(16 * count)
