"""onnxruntime as it comes: a pool of threads for each session."""

from __future__ import annotations

from typing import Any

from bench.contestants.onnxruntime import OnnxRuntime


class Default(OnnxRuntime):
    """The same models with no setting changed."""

    name = "onnxruntime_default"
    title = "onnxruntime (defaults)"
    settings = "defaults; float32 inputs"

    def session_options(self) -> Any:
        """Nothing set but silence."""
        from onnxruntime import SessionOptions

        options = SessionOptions()
        options.log_severity_level = 4
        return options


CONTESTANT = Default
