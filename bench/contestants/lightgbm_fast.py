"""LightGBM by its C API: rows by the fast single-row function, blocks by the usual one."""

from __future__ import annotations

import ctypes
from typing import Any

import numpy as np

from bench.contestant import Contestant, Model, number_block, number_row
from bench.workload import Pipeline, Saved

_FLOAT64, _ROW_MAJOR, _NORMAL = 1, 1, 0


class LightGbmFast(Contestant):
    """The model file, read by the library that trained it, without its Python code."""

    name = "lightgbm_fast"
    title = "LightGBM (C API, fast rows)"
    packages = ("lightgbm", "numpy")
    workloads = ("gbt",)
    settings = "PredictForMatSingleRowFast, PredictForMat, num_threads, called by ctypes"

    def load(self, pipeline: Pipeline, saved: Saved) -> Model:
        """Read the model, and have a row's settings read once."""
        from lightgbm import basic

        library = vars(basic)["_LIB"]  # it is offered nowhere else
        booster, count = ctypes.c_void_p(), ctypes.c_int()

        def check(status: int) -> None:
            if status:
                raise RuntimeError(library.LGBM_GetLastError().decode())

        path = str(pipeline.file("lightgbm.txt")).encode()
        create = library.LGBM_BoosterCreateFromModelfile
        check(create(path, ctypes.byref(count), ctypes.byref(booster)))
        asked = _NORMAL, 0, -1
        settings = f"num_threads={self.threads}".encode()
        made, fast, length = np.empty(1), ctypes.c_void_p(), ctypes.c_int64()
        width = int(saved.facts["width"])
        check(
            library.LGBM_BoosterPredictForMatSingleRowFastInit(
                booster, *asked, _FLOAT64, width, settings, ctypes.byref(fast)
            )
        )
        arguments = ctypes.byref(length), ctypes.c_void_p(made.ctypes.data)
        ask = library.LGBM_BoosterPredictForMatSingleRowFast

        def one(row: ctypes.c_void_p) -> Any:
            check(ask(fast, row, *arguments))
            return made

        def batch(rows: Any) -> Any:
            found = np.empty(len(rows))
            check(
                library.LGBM_BoosterPredictForMat(
                    booster,
                    ctypes.c_void_p(rows.ctypes.data),
                    _FLOAT64,
                    *rows.shape,
                    _ROW_MAJOR,
                    *asked,
                    settings,
                    ctypes.byref(length),
                    ctypes.c_void_p(found.ctypes.data),
                )
            )
            return found

        return Model(one, batch, _addressed, number_block, np.asarray, lambda raw: float(raw[0]))


class _Row(ctypes.c_void_p):
    """The address of a row, which it keeps."""

    row: Any


def _addressed(inputs: Any, index: int) -> _Row:
    row = number_row(inputs, index)
    address = _Row(row.ctypes.data)
    address.row = row
    return address


CONTESTANT = LightGbmFast
