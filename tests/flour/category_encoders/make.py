"""Fit encoders of category_encoders, and keep their pickles with the library's own answers.

    python tests/flour/category_encoders/make.py     in an environment that has a version of it

Writes VERSION.tar.xz: a pickle of each encoder, and answers.json: its answers, row by row, None
where the library refuses the row. It runs on every Python that the versions run on.
"""

from __future__ import annotations

import inspect
import io
import json
import pickle
import sys
import tarfile
import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Iterator

FOLDER = Path(__file__).parent
_COUNT = 60
ENCODERS = [
    *("BackwardDifference", "BaseN", "Binary", "CatBoost", "Count", "GLMM", "Gray", "Helmert"),
    *("JamesStein", "LeaveOneOut", "MEstimate", "OneHot", "Ordinal", "Polynomial", "Quantile"),
    *("RankHot", "Sum", "Target", "WOE"),
]
NANS = {"handle_unknown": "return_nan", "handle_missing": "return_nan"}
STRICT = [{"handle_unknown": "error"}, {"handle_unknown": "error", "handle_missing": "error"}]
OTHERS: dict[str, Any] = {
    "BaseN": [{"base": 3}],
    "CatBoost": [{"a": 3}],
    "Count": [
        {"normalize": True},
        {"min_group_size": 15},
        {"handle_unknown": 7},
        {"handle_missing": "return_nan", "handle_unknown": "value"},
    ],
    "OneHot": [
        {"drop_invariant": True},
        {"use_cat_names": True},
        {"handle_unknown": "indicator", "handle_missing": "indicator"},
        {"handle_missing": "ignore"},
    ],
    "Ordinal": [{"handle_unknown": 77, "handle_missing": 99}],
    "RankHot": [{"use_cat_names": True}],
    "Sum": [{"handle_unknown": "indicator", "handle_missing": "indicator"}],
    "Target": [
        {"drop_invariant": True},
        {"min_group_size": 13},
        {"smoothing": 20, "min_samples_leaf": 5},
    ],
}


def frame(gaps: bool) -> Any:  # noqa: FBT001 (the two kinds of data)
    """Strings, whole numbers and decimals; with `gaps` some are missing."""
    import pandas as pd

    random = np.random.RandomState(1)
    towns = np.array(["Łódź", "東京", "x", "once", ""], object)
    data = pd.DataFrame(
        {
            "town": pd.Series(towns[random.choice(3, _COUNT, p=[0.6, 0.3, 0.1])], dtype=object),
            "number": np.round(random.normal(size=_COUNT), 2),
            "kind": np.array(["a", "b", "c"])[random.randint(0, 3, _COUNT)],
            "code": random.randint(1, 5, _COUNT) * 10,
        }
    )
    data.loc[7, "town"] = "once"
    if gaps:
        data = data.astype({"code": float})
        data.loc[[3, 4, 5], "town"] = np.nan
        data.loc[[9, 11], "kind"] = None
        data.loc[[13, 12], "code"] = np.nan
    return data


def target() -> Any:
    """Two classes, which the decimals decide in part."""
    return ((frame(False)["number"] + np.random.RandomState(2).normal(size=_COUNT)) > 0).astype(int)


def rows(gaps: bool) -> Any:  # noqa: FBT001 (as the data)
    """Rows of each kind, None and NaN among them."""
    import pandas as pd

    data = frame(gaps).astype({"town": object, "kind": object, "code": float})[:8]
    new = data.copy()
    new.iloc[1, 0], new.iloc[2, 2], new.iloc[3, 3] = "Ωmega", "new", 11.0
    new.iloc[4, 0], new.iloc[5, 2], new.iloc[6, 3] = np.nan, np.nan, np.nan
    new.iloc[7, 0] = ""
    for place, column in ((0, 0), (1, 2)):
        new.iloc[place, column] = None
    return pd.concat([data, new], ignore_index=True)


def encoders() -> Iterator[tuple[str, Any, bool]]:
    """By name: an encoder that is not fitted, and whether its data have gaps."""
    import category_encoders

    for name in ENCODERS:
        try:
            kind = getattr(category_encoders, name + "Encoder")
        except (AttributeError, ImportError):  # the version lacks it, or what it needs
            continue
        known = inspect.signature(kind.__init__).parameters
        ways = [{}, NANS, *STRICT, *OTHERS.get(name, ())]
        for number, how in enumerate(ways):
            if set(how) <= set(known) or name in ("Binary", "Gray"):
                for gaps in (False, True):
                    yield (
                        "{}_{}{}".format(name, number, "_gaps" * gaps),
                        kind(cols=["town", "kind", "code"], **how),
                        gaps,
                    )


def answers(encoder: Any, some: Any) -> Any:
    """The library's answer for each row; None where it refuses one (beside a known one)."""
    try:
        made = np.asarray(encoder.transform(some.copy()))
    except Exception:  # noqa: BLE001 (of whatever class: it refuses)
        if len(some) <= 2:
            return [None]
        return [answers(encoder, some.iloc[[0, place]])[-1] for place in range(len(some))]
    return [[None if np.isnan(v) else float(v) for v in row] for row in made.tolist()]


def main() -> None:
    """Write the archive."""
    import category_encoders
    import pandas as pd

    warnings.simplefilter("ignore")
    files: dict[str, bytes] = {}
    kept: dict[str, Any] = {}
    for name, encoder, gaps in encoders():
        try:
            encoder.fit(frame(gaps), target())
        except Exception:  # noqa: BLE001 (a version may not take the setting)
            continue
        files[name + ".pkl"] = pickle.dumps(encoder, 4)
        kept[name] = answers(encoder, rows(gaps))
    version = category_encoders.__version__
    kept["versions"] = {"category_encoders": version, "pandas": pd.__version__}
    files["answers.json"] = json.dumps(kept).encode()
    path = Path(sys.argv[1] if len(sys.argv) > 1 else str(FOLDER))
    with tarfile.open(str(path / (version + ".tar.xz")), "w:xz") as archive:
        for name in sorted(files):
            about = tarfile.TarInfo(name)
            about.size = len(files[name])
            archive.addfile(about, io.BytesIO(files[name]))


if __name__ == "__main__":
    main()
