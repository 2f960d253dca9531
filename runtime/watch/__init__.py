"""Watching plans in service: drift against reference rows, segments, detectors, taps.

runtime.watch("fraud", reference=frame, segments=("country", "age // 10"))
runtime.tap("fraud", "columntransformer.standardscaler", sample=0.01)
"""

from __future__ import annotations

from runtime.watch.causes import Cause, causes_of
from runtime.watch.context import context_test, two_sample_test
from runtime.watch.detectors import Adwin, PageHinkley
from runtime.watch.outliers import Outliers, Stranger, mahalanobis, out_of_range, pca_residual
from runtime.watch.segments import Segments
from runtime.watch.sketch import NumbersSketch, Reference, WordsSketch
from runtime.watch.statistics import Drift, drift
from runtime.watch.taps import Tap
from runtime.watch.training import training_of
from runtime.watch.watching import Alarm, Watch

__all__ = [
    "Adwin",
    "Alarm",
    "Cause",
    "Drift",
    "NumbersSketch",
    "Outliers",
    "PageHinkley",
    "Reference",
    "Segments",
    "Stranger",
    "Tap",
    "Watch",
    "WordsSketch",
    "causes_of",
    "context_test",
    "drift",
    "mahalanobis",
    "out_of_range",
    "pca_residual",
    "training_of",
    "two_sample_test",
]
