"""A server of ours with one classifier, run as a script with a port by test_bench_http.py."""

from __future__ import annotations

import sys

import numpy as np
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import flour
from runtime import Runtime
from runtime.http import Server, ServerSettings

WIDTH = 20

if __name__ == "__main__":
    rows = np.random.default_rng(0).normal(size=(2000, WIDTH))
    labels = np.array(["a", "b", "c"])[np.digitize(rows[:, 0], [-0.5, 0.5])]
    model = make_pipeline(StandardScaler(), LogisticRegression()).fit(rows, labels)
    with Runtime() as runtime:
        runtime.register("m", flour.from_sklearn(model))
        Server(runtime, ServerSettings(port=int(sys.argv[1]))).serve_forever()
