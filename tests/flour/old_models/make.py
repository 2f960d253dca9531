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
#: Columns of a frame, whose names files to 0.24 do not have.
TOWNS = {"town": ["Oslo", "Graz", "Bern", "Oslo"] * 3, "age": [31.0, np.nan, 52.5, 8.0] * 3}
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
        **told_otherwise(),
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
        "towns.pkl": (towns(), TOWNS, TWO[:12]),
    }


def towns() -> Any:
    """A pipeline on strings and numbers with holes."""
    from sklearn.compose import make_column_transformer
    from sklearn.impute import SimpleImputer
    from sklearn.linear_model import LogisticRegression
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import OneHotEncoder

    coded = make_pipeline(SimpleImputer(strategy="most_frequent"), OneHotEncoder())
    columns = make_column_transformer((coded, ["town"]), (SimpleImputer(), ["age"]))
    return make_pipeline(columns, LogisticRegression())


def told_otherwise() -> dict[str, tuple[Any, Any, Any]]:
    """Models that keep in other places, or do not keep, what later versions do."""
    import sklearn.experimental.enable_hist_gradient_boosting
    import sklearn.experimental.enable_iterative_imputer  # noqa: F401
    from sklearn.calibration import CalibratedClassifierCV
    from sklearn.cross_decomposition import CCA, PLSSVD
    from sklearn.ensemble import HistGradientBoostingClassifier
    from sklearn.impute import IterativeImputer
    from sklearn.manifold import Isomap
    from sklearn.naive_bayes import GaussianNB
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import (
        FunctionTransformer,
        KBinsDiscretizer,
        OneHotEncoder,
        OrdinalEncoder,
    )
    from sklearn.svm import NuSVC

    hist = HistGradientBoostingClassifier(max_iter=3, max_leaf_nodes=4, min_samples_leaf=3)
    grouped = HistGradientBoostingClassifier(max_iter=3, max_leaf_nodes=4, min_samples_leaf=3)
    grouped.categorical_features = [0, 2]
    bins = KBinsDiscretizer(5, encode="ordinal")
    curved = CalibratedClassifierCV(GaussianNB().fit(X, THREE), cv="prefit", method="isotonic")
    both = np.c_[TARGET, X[:, 0]]
    return {
        "hist.pkl": (hist, X, THREE),
        "curved.pkl": (curved, X, THREE),
        "in_turn.pkl": (IterativeImputer(missing_values=X[0, 0], max_iter=2), X, None),
        "few.pkl": (NuSVC(probability=True), X[:20], THREE[:20]),
        "cca.pkl": (CCA(1), X, both),
        "svd.pkl": (PLSSVD(1), X, both),
        "near.pkl": (Isomap(n_neighbors=3), ROWS, None),
        "grouped.pkl": (make_pipeline(bins, grouped), X, THREE),
        "fractions.pkl": (grouped, np.abs(3 * X), THREE),
        "coded_nan.pkl": (make_pipeline(FunctionTransformer(np.sqrt), OneHotEncoder()), X, None),
        "coded_nan2.pkl": (make_pipeline(FunctionTransformer(np.sqrt), OrdinalEncoder()), X, None),
        "self.pkl": (self_training(), X, np.where(X[:, 2] > 0.5, -1, TWO)),
    }


def self_training() -> Any:
    """A classifier that versions before 0.24 have not."""
    try:
        from sklearn.semi_supervised import SelfTrainingClassifier
    except ImportError:
        return None
    from sklearn.naive_bayes import GaussianNB

    return SelfTrainingClassifier(GaussianNB())


def spline() -> Any:
    """A transformer that versions before 1.0 have not."""
    try:
        from sklearn.preprocessing import SplineTransformer
    except ImportError:
        return None
    return SplineTransformer(4, degree=2)


#: Which models are kept of each version.
MODELS = {
    "0.22.2": "towns.pkl hist.pkl curved.pkl in_turn.pkl few.pkl cca.pkl svd.pkl near.pkl",
    "0.24.2": "right.joblib tree.pkl ovr.pkl renamed.joblib coded.pkl chain.pkl stack.joblib "
    "grouped.pkl coded_nan.pkl fractions.pkl",
    "1.0.2": "right.joblib ovr.pkl renamed.joblib coded.pkl chain.pkl stack.joblib spline.joblib "
    "coded_nan2.pkl cca.pkl",
    "1.2.2": "right.joblib imputer.pkl samme_r.pkl forest.joblib renamed.joblib coded.pkl "
    "spline.joblib grouped.pkl self.pkl fractions.pkl",
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
        if data is TOWNS:
            import pandas as pd

            data = pd.DataFrame(TOWNS)
        estimator.fit(data, target)
        file = FOLDER / f"{version}-{name}"
        if name.endswith(".joblib"):  # joblib writes bz2, gzip and xz as well
            joblib.dump(estimator, file, compress=("zlib", 9))
        else:
            written = pickle.dumps(estimator, protocol=[4, 2, 0][place % 3])
            file.write_bytes(packed[place % 4](written))
        rows = data if name in ("words.pkl", "towns.pkl") else ROWS
        told = {}
        for method in ("predict", "predict_proba", "transform"):
            if hasattr(estimator, method):
                answer = getattr(estimator, method)(rows)
                answer = answer.toarray() if hasattr(answer, "toarray") else np.asarray(answer)
                told[method] = answer.tolist()
        answers[file.name] = told
    path.write_text(json.dumps(dict(sorted(answers.items())), indent=None).replace("}, ", "},\n"))


if __name__ == "__main__":
    main()
