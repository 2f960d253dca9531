"""Train small models with the installed scikit-learn, an old one, and keep its own answers."""

from __future__ import annotations

import bz2
import gzip
import json
import lzma
import pickle
import sys
import warnings
from pathlib import Path
from typing import Any

import numpy as np

FOLDER = Path(__file__).parent
_RNG = np.random.RandomState(0)
X = np.round(_RNG.normal(size=(60, 3)), 2)
ROWS = X[:12]
THREE = np.digitize(X @ [1.0, -1.0, 0.5] + _RNG.normal(0, 0.5, 60), [-0.6, 0.6])
TWO = (THREE > 0).astype(int)
TARGET = X @ [1.0, 10.0, 0.1]
WORDS = ["red green", "green blue", "blue", "red red blue"] * 3


def models() -> dict[str, tuple[Any, Any, Any]]:
    """By name: an estimator, its data and its target."""
    from sklearn.calibration import CalibratedClassifierCV
    from sklearn.cross_decomposition import PLSRegression
    from sklearn.ensemble import (
        AdaBoostClassifier,
        BaggingClassifier,
        GradientBoostingClassifier,
        RandomForestClassifier,
        VotingClassifier,
    )
    from sklearn.feature_extraction.text import TfidfVectorizer
    from sklearn.impute import SimpleImputer
    from sklearn.linear_model import LogisticRegression, LogisticRegressionCV
    from sklearn.multiclass import OneVsRestClassifier
    from sklearn.naive_bayes import GaussianNB
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler
    from sklearn.tree import DecisionTreeClassifier, DecisionTreeRegressor

    def old(kind: Any, **how: Any) -> Any:
        """A parameter that later versions do not have."""
        made = kind()
        for name, value in how.items():
            setattr(made, name, value)
        return made

    tree = DecisionTreeClassifier(max_depth=2, random_state=0)
    members = [("bayes", GaussianNB()), ("tree", tree)]
    columns = make_pipeline(StandardScaler(), LogisticRegression())
    ovr = old(LogisticRegression, multi_class="ovr")
    return {
        "right.joblib": (columns, X, THREE),
        "imputer.pkl": (SimpleImputer(), X, None),
        "numbers.joblib": (DecisionTreeRegressor(max_depth=2), X, TARGET),
        "ovr.pkl": (make_pipeline(StandardScaler(), ovr), X, THREE),
        "liblinear.pkl": (LogisticRegression(solver="liblinear"), X, THREE),
        "multinomial2.pkl": (old(LogisticRegression, multi_class="multinomial"), X, TWO),
        "ovr_cv.pkl": (old(LogisticRegressionCV, multi_class="ovr", Cs=2, cv=2), X, THREE),
        "ovr2.pkl": (old(LogisticRegression, multi_class="ovr"), X, TWO),
        "calibrated.pkl": (CalibratedClassifierCV(ovr, cv=2), X, THREE),
        "tree.pkl": (tree, X, THREE),
        "forest.joblib": (RandomForestClassifier(2, max_depth=2, random_state=0), X, THREE),
        "bagged.joblib": (BaggingClassifier(tree, n_estimators=2, random_state=0), X, THREE),
        "vote.joblib": (VotingClassifier(members, voting="soft"), X, THREE),
        "samme_r.pkl": (AdaBoostClassifier(GaussianNB(), n_estimators=2), X, THREE),
        "pls.pkl": (PLSRegression(1), X, TARGET),
        "ties.joblib": (OneVsRestClassifier(tree), X, THREE),
        "boosted.joblib": (GradientBoostingClassifier(n_estimators=1, max_depth=1), X, TWO),
        "words.pkl": (TfidfVectorizer(), WORDS, None),
        **renamed(),
    }


def renamed() -> dict[str, tuple[Any, Any, Any]]:
    """Models with attributes that have another name now, or came later."""
    from sklearn.calibration import CalibratedClassifierCV
    from sklearn.decomposition import KernelPCA
    from sklearn.ensemble import StackingClassifier
    from sklearn.impute import KNNImputer, SimpleImputer
    from sklearn.linear_model import LogisticRegression, RidgeClassifier
    from sklearn.multioutput import ClassifierChain
    from sklearn.naive_bayes import GaussianNB
    from sklearn.pipeline import make_pipeline, make_union
    from sklearn.preprocessing import MaxAbsScaler, OneHotEncoder

    scaled = make_union(MaxAbsScaler(), KernelPCA(2, kernel="rbf"))
    stack = StackingClassifier([("b", GaussianNB())], LogisticRegression(), cv=2)
    calibrated = CalibratedClassifierCV(GaussianNB(), cv=2)
    return {
        "renamed.joblib": (make_pipeline(SimpleImputer(), scaled, calibrated), X, THREE),
        "coded.pkl": (make_pipeline(OneHotEncoder(drop="first"), RidgeClassifier()), X, THREE),
        "chain.pkl": (ClassifierChain(GaussianNB()), X, np.c_[TWO, THREE > 1].astype(int)),
        "stack.joblib": (make_pipeline(KNNImputer(), stack), X, THREE),
        "spline.joblib": (spline(), X, None),
    }


def spline() -> Any:
    """A transformer that versions before 1.0 have not."""
    try:
        from sklearn.preprocessing import SplineTransformer
    except ImportError:
        return None
    return SplineTransformer(4, degree=2)


#: Which models are kept of each version.
MODELS = {
    "0.24.2": "right.joblib tree.pkl ovr.pkl renamed.joblib coded.pkl chain.pkl stack.joblib",
    "1.0.2": "right.joblib ovr.pkl renamed.joblib coded.pkl chain.pkl stack.joblib spline.joblib",
    "1.2.2": "right.joblib imputer.pkl samme_r.pkl forest.joblib renamed.joblib coded.pkl "
    "spline.joblib",
    "1.3.2": "right.joblib numbers.joblib tree.pkl forest.joblib bagged.joblib vote.joblib "
    "samme_r.pkl pls.pkl words.pkl boosted.joblib",
    "1.5.2": "right.joblib samme_r.pkl",
    "1.6.1": "right.joblib ovr.pkl renamed.joblib coded.pkl chain.pkl spline.joblib",
    "1.7.2": "right.joblib ovr.pkl liblinear.pkl multinomial2.pkl ovr_cv.pkl ovr2.pkl "
    "calibrated.pkl ties.joblib boosted.joblib",
    "1.8.0": "right.joblib ties.joblib boosted.joblib",
}


def main() -> None:
    """Write the models of the installed version, or those that the arguments name."""
    import joblib
    import sklearn

    warnings.simplefilter("ignore")
    version = sklearn.__version__
    path = FOLDER / "answers.json"
    answers = json.loads(path.read_text()) if path.exists() else {}
    packed: list[Any] = [bytes, bz2.compress, gzip.compress, lzma.compress]
    for place, name in enumerate(sys.argv[1:] or MODELS[version].split()):
        estimator, data, target = models()[name]
        estimator.fit(data, target)
        file = FOLDER / f"{version}-{name}"
        if name.endswith(".joblib"):  # joblib writes bz2, gzip and xz as well
            joblib.dump(estimator, file, compress=("zlib", 9))
        else:
            written = pickle.dumps(estimator, protocol=[4, 2, 0][place % 3])
            file.write_bytes(packed[place % 4](written))
        rows = WORDS if data is WORDS else ROWS
        told = {}
        for method in ("predict", "predict_proba", "transform"):
            if hasattr(estimator, method):
                answer = getattr(estimator, method)(rows)
                told[method] = (answer.toarray() if data is WORDS else answer).tolist()
        answers[file.name] = told
    path.write_text(json.dumps(dict(sorted(answers.items())), indent=None).replace("}, ", "},\n"))


if __name__ == "__main__":
    main()
