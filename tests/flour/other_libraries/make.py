"""Fit small models with feature_engine, imbalanced-learn and statsmodels; keep their answers.

    python -m tests.flour.other_libraries.make     where the libraries are installed

Writes models.tar.xz: a pickle of each model, and answers.json: what the library answers for
the rows of each kind, or that it refuses them.
"""

from __future__ import annotations

import json
import pickle
import tempfile
import warnings
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

FOLDER = Path(__file__).parent
METHODS = ("predict", "predict_proba", "decision_function", "transform")
_COUNT = 90
_TOWNS = ["Łódź", "Paris", "東京", "São Paulo", "x"]


def frame() -> Any:
    """The training data: numbers above zero, with gaps, from 0 to 1; strings, with gaps."""
    import pandas as pd

    random = np.random.RandomState(0)
    data = pd.DataFrame(
        {
            "plus": np.round(random.lognormal(size=_COUNT), 3) + 0.01,
            "town": np.array(_TOWNS, object)[
                random.choice(5, _COUNT, p=[0.4, 0.3, 0.2, 0.07, 0.03])
            ],
            "gap": np.where(
                random.rand(_COUNT) < 0.2, np.nan, np.round(random.normal(size=_COUNT), 2)
            ),
            "unit": np.round(random.rand(_COUNT), 3),
            "kind": np.array(["a", "b", "c"], object)[random.randint(0, 3, _COUNT)],
            "lost": np.array(["u", "v", None], object)[random.randint(0, 3, _COUNT)],
        }
    )
    return data.astype({"town": object, "kind": object, "lost": object})


def target(data: Any) -> Any:
    """Two classes."""
    return ((data["plus"] + (data["town"] == "Paris") + data["unit"]) > 2).astype(int)


def rows(data: Any) -> dict[str, Any]:
    """Rows of each kind: known ones, with gaps, and with what was not seen in training."""
    gaps, new = data[10:16].copy(), data[20:26].copy()
    gaps.iloc[0, 0], gaps.iloc[1, 1], gaps.iloc[2, 3] = np.nan, None, np.nan
    gaps.iloc[3, 4], gaps.iloc[4, 5] = np.nan, np.nan
    new.iloc[0, 0], new.iloc[1, 1], new.iloc[2, 3] = 1e6, "Ωmega", 0.999
    new.iloc[3, 4], new.iloc[4, 0], new.iloc[5, 2] = "", 1e-3, -50.0
    found = {"known": data[:8], "gaps": gaps, "new": new}
    # One by one, as one row that is refused has the library refuse them all.
    for j in range(6):
        found[f"gap {j}"], found[f"new {j}"] = gaps[j : j + 1], new[j : j + 1]
    far = data[:2].copy()
    far.iloc[1, 0] = -1.0
    return {**found, "below": far, "infinite": far.assign(plus=np.inf)}


Made = Callable[[Any, Any], Any]


def models() -> dict[str, Made]:
    """By name: a function that fits the model to the data and the target."""
    return {**_of_feature_engine(), **_of_imbalanced_learn(), **_of_statsmodels()}


def _fitted(estimator: Any, columns: list[str] | None = None) -> Made:
    return lambda data, y: estimator.fit(data if columns is None else data[columns], y)


def _of_feature_engine() -> dict[str, Made]:
    from feature_engine import (
        creation,
        discretisation,
        encoding,
        imputation,
        outliers,
        selection,
        transformation,
        wrappers,
    )
    from feature_engine.pipeline import Pipeline
    from sklearn.linear_model import LogisticRegression
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import OneHotEncoder, PolynomialFeatures, StandardScaler

    words, numbers = ["town", "kind"], ["plus", "unit"]
    tree = {"param_grid": {"max_depth": [2]}, "cv": 2, "random_state": 0}
    found: dict[str, Any] = {
        "mean": imputation.MeanMedianImputer("mean"),
        "median": imputation.MeanMedianImputer("median", variables=["gap", "plus"]),
        "number": imputation.ArbitraryNumberImputer(-1),
        "numbers": imputation.ArbitraryNumberImputer(imputer_dict={"gap": 5, "unit": -2.5}),
        "tail": imputation.EndTailImputer(),
        "missing": imputation.CategoricalImputer(),
        "frequent": imputation.CategoricalImputer("frequent", variables=["town", "lost"]),
        "indicators": imputation.AddMissingIndicator(),
        "indicators of all": imputation.AddMissingIndicator(missing_only=False),
        "one_hot": encoding.OneHotEncoder(variables=words),
        "one_hot_top": encoding.OneHotEncoder(top_categories=2, variables=["kind", "town"]),
        "one_hot_last": encoding.OneHotEncoder(drop_last=True, variables=["town"]),
        "ordered": encoding.OrdinalEncoder(variables=words),
        "arbitrary": encoding.OrdinalEncoder("arbitrary", missing_values="ignore", unseen="encode"),
        "ordinal_strict": encoding.OrdinalEncoder("arbitrary", unseen="raise", variables=words),
        "ordinal_gaps": encoding.OrdinalEncoder("arbitrary", missing_values="ignore"),
        "count": encoding.CountFrequencyEncoder(variables=words),
        "frequency": encoding.CountFrequencyEncoder("frequency", variables=words, unseen="encode"),
        "target": encoding.MeanEncoder(variables=words),
        "target_smooth": encoding.MeanEncoder(variables=words, smoothing="auto", unseen="encode"),
        "woe": encoding.WoEEncoder(variables=["kind"]),
        "woe_strict": encoding.WoEEncoder(variables=["kind"], unseen="raise"),
        "tree_codes": encoding.DecisionTreeEncoder(variables=words, regression=False, **tree),
        "rare": encoding.RareLabelEncoder(tol=0.1, n_categories=2, variables=words),
        "winsor": outliers.Winsorizer(variables=numbers),
        "winsor_both": outliers.Winsorizer("quantiles", tail="both", variables=numbers),
        "winsor_flags": outliers.Winsorizer("iqr", "both", add_indicators=True, variables=numbers),
        "winsor_left": outliers.Winsorizer(
            "quantiles", "left", add_indicators=True, variables=["gap"], missing_values="ignore"
        ),
        "caps": outliers.ArbitraryOutlierCapper({"plus": 2}, {"unit": 0.25, "plus": 0.5}),
        "log": transformation.LogTransformer(variables=numbers),
        "log10": transformation.LogTransformer(base="10", variables=["plus"]),
        "log_cp": transformation.LogCpTransformer(variables=numbers),
        "log_c": transformation.LogCpTransformer(variables=numbers, C=1.5),
        "root": transformation.PowerTransformer(variables=numbers),
        "cubes": transformation.PowerTransformer(variables=["plus"], exp=3),
        "reciprocal": transformation.ReciprocalTransformer(variables=numbers),
        "arcsin": transformation.ArcsinTransformer(variables=["unit"]),
        "arcsinh": transformation.ArcSinhTransformer(variables=["plus"], loc=1, scale=2),
        "box_cox": transformation.BoxCoxTransformer(variables=numbers),
        "yeo_johnson": transformation.YeoJohnsonTransformer(variables=numbers),
        "width": discretisation.EqualWidthDiscretiser(variables=numbers, bins=4),
        "quantiles": discretisation.EqualFrequencyDiscretiser(variables=numbers, q=4),
        "geometric": discretisation.GeometricWidthDiscretiser(variables=["plus"], bins=4),
        "own_bins": discretisation.ArbitraryDiscretiser(
            {"unit": [0, 0.25, 0.5, 1], "plus": [0.1, 1.0, 3.0]}
        ),
        "own_bins_strict": discretisation.ArbitraryDiscretiser(
            {"plus": [0, 1, 1000]}, errors="raise"
        ),
        "tree_bins": discretisation.DecisionTreeDiscretiser(
            variables=numbers, regression=False, precision=3, **tree
        ),
        "tree_numbers": discretisation.DecisionTreeDiscretiser(
            variables=numbers, regression=False, bin_output="bin_number", **tree
        ),
        "cycles": creation.CyclicalFeatures(variables=["plus", "unit"], drop_original=True),
        "dropped": selection.DropFeatures(["town", "gap"]),
        "constant": selection.DropConstantFeatures(tol=0.5, missing_values="ignore"),
        "scaled": wrappers.SklearnTransformerWrapper(StandardScaler(), variables=numbers),
        "wrapped_hot": wrappers.SklearnTransformerWrapper(
            OneHotEncoder(sparse_output=False, handle_unknown="ignore"), variables=["kind", "town"]
        ),
        "products": wrappers.SklearnTransformerWrapper(PolynomialFeatures(2), variables=numbers),
    }
    steps = [
        ("numbers", imputation.MeanMedianImputer()),
        ("words", imputation.CategoricalImputer()),
        ("flags", imputation.AddMissingIndicator(missing_only=False, variables=["unit"])),
        ("rare", encoding.RareLabelEncoder(tol=0.1, n_categories=2)),
        ("target", encoding.MeanEncoder(variables=["town"])),
        ("hot", encoding.OneHotEncoder()),
        ("caps", outliers.Winsorizer("quantiles", "both", variables=["plus", "gap"])),
        ("bins", discretisation.EqualFrequencyDiscretiser(variables=["unit"], return_object=True)),
        ("counts", encoding.CountFrequencyEncoder(variables=["unit"], unseen="encode")),
        ("constant", selection.DropConstantFeatures()),
    ]
    found["pipeline"] = Pipeline([*steps, ("last", LogisticRegression())])
    found["pipeline_of_sklearn"] = make_pipeline(
        *(step for _, step in steps), StandardScaler(), LogisticRegression()
    )
    return {name: _fitted(estimator) for name, estimator in found.items()}


def _of_imbalanced_learn() -> dict[str, Made]:
    from imblearn import ensemble, over_sampling, pipeline, under_sampling
    from sklearn.linear_model import LogisticRegression
    from sklearn.preprocessing import StandardScaler

    scaler, last = StandardScaler(), LogisticRegression()
    found: dict[str, Any] = {
        "smote": pipeline.make_pipeline(scaler, over_sampling.SMOTE(random_state=0), last),
        "undersampled": pipeline.make_pipeline(
            under_sampling.RandomUnderSampler(random_state=0), scaler, last
        ),
        "balanced_forest": ensemble.BalancedRandomForestClassifier(
            5, max_depth=4, random_state=0, sampling_strategy="all", replacement=True
        ),
        "balanced_bags": ensemble.BalancedBaggingClassifier(last, n_estimators=3, random_state=0),
        "easy": ensemble.EasyEnsembleClassifier(3, random_state=0),
        "rus_boost": ensemble.RUSBoostClassifier(n_estimators=4, random_state=0),
    }
    return {name: _fitted(estimator, ["plus", "unit"]) for name, estimator in found.items()}


_FORMULAS = {
    "formula": "score ~ plus + unit",
    "formula_0": "score ~ plus - 1",
    "formula_of_words": "score ~ town",
}


def _of_formula(formula: str, data: Any, y: Any) -> Any:
    import statsmodels.formula.api as smf

    return smf.ols(formula, data.assign(score=y)).fit()


def _of_statsmodels() -> dict[str, Made]:
    import statsmodels.api as sm
    from statsmodels.genmod import families
    from statsmodels.genmod.families import links

    columns = ["unit", "plus"]

    def of(kind: Any, wanted: Any = None, *, array: bool = False, **how: Any) -> Made:
        """A model of two columns; `wanted` makes another target of both."""

        def fit(data: Any, y: Any) -> Any:
            x = data[columns]
            target = y if wanted is None else wanted(data, y)
            return kind(*map(np.asarray, (target, x)) if array else (target, x), **how).fit()

        return fit

    def number(data: Any, y: Any) -> Any:
        return data["plus"] * 2 + y + data["unit"]

    def power(exponent: float) -> Any:
        return lambda data, y: (data["plus"] + data["unit"] + y / 9) ** exponent

    found = {
        "ols": of(sm.OLS, number),
        "ols_array": of(sm.OLS, number, array=True),
        "wls": of(sm.WLS, number, weights=np.linspace(1, 2, _COUNT)),
        "gls": of(sm.GLS, number),
        "rlm": of(sm.RLM, number),
        "quantile": of(sm.QuantReg, number),
        "logit": of(sm.Logit),
        "probit": of(sm.Probit),
        "poisson": of(sm.Poisson),
        "multinomial": of(sm.MNLogit, lambda data, y: y + (data["unit"] > 0.5)),
        "glm_offset": of(sm.GLM, family=families.Poisson(), offset=np.linspace(0, 1, _COUNT)),
    }
    for link in ("Logit", "Probit", "CLogLog", "LogLog", "Log"):
        found[f"glm_{link}"] = of(sm.GLM, family=families.Binomial(getattr(links, link)()))
    found["glm_Identity"] = of(sm.GLM, number, family=families.Gaussian())
    found["glm_Sqrt"] = of(sm.GLM, number, family=families.Poisson(links.Sqrt()))
    found["glm_InversePower"] = of(sm.GLM, power(-1.0), family=families.Gamma())
    found["glm_InverseSquared"] = of(sm.GLM, power(-0.5), family=families.InverseGaussian())
    found["glm_Power"] = of(sm.GLM, power(2.0), family=families.Tweedie(links.Power(0.5)))
    for name, formula in _FORMULAS.items():
        found[name] = partial(_of_formula, formula)
    return found


def answers(fitted: Any, some: Any) -> dict[str, Any] | None:
    """The library's own answers, by method; None where it refuses the rows."""
    found = {}
    names = getattr(fitted, "feature_names_in_", None)
    if hasattr(fitted, "params"):
        names = None if hasattr(fitted.model, "formula") else ["unit", "plus"]
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        try:
            for method in METHODS:
                if hasattr(fitted, method):
                    made = getattr(fitted, method)(some if names is None else some[[*names]].copy())
                    found[method] = columns(made)
        except Exception:  # noqa: BLE001 (whatever class: it refuses)
            return None
    return found


def columns(made: Any) -> list[list[Any]]:
    """A frame, an array or a dict of columns as lists, None for what is missing."""
    if hasattr(made, "items") and not hasattr(made, "dtype"):
        every = [np.asarray(values, object) for _, values in made.items()]
    else:
        table = np.asarray(made)
        every = [*table.reshape(len(table), -1).T]
    return [[_plain(value) for value in column.tolist()] for column in every]


def _plain(value: Any) -> Any:
    missing = value is None or value != value  # noqa: PLR0124 (the definition of NaN)
    return None if missing else value if isinstance(value, str) else float(value)


def main() -> None:
    """Write the archive."""
    from tests.flour.versions.compare import packed

    data = frame()
    kept: dict[str, Any] = {}
    with tempfile.TemporaryDirectory() as folder, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for name, make in models().items():
            fitted = make(data, target(data))
            (Path(folder) / f"{name}.pkl").write_bytes(pickle.dumps(fitted))
            kept[name] = {kind: answers(fitted, some) for kind, some in rows(data).items()}
        (Path(folder) / "answers.json").write_text(json.dumps(kept))
        (FOLDER / "models.tar.xz").write_bytes(packed(Path(folder)))


if __name__ == "__main__":
    main()
