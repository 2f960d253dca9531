"""A compiled model with its original's methods: same results, shapes, dtypes and errors."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, SupportsIndex

import numpy as np

import oven
from flour.core.errors import FlourError, ImportRefused, NotRectangular, TypeMismatch
from flour.core.types import Record, Vector
from flour.data.batch import Batch, row_count
from flour.data.frames import frame_columns, has_integers
from flour.language.flow import Flow, outputs
from flour.ops.reduce import ArgMax
from flour.ops.require import OnMissing, refuses, without_checks
from flour.pickles.standins import StandIn
from oven import Plan
from oven.entry.array_call import FixedLabels, open_array_call
from oven.entry.array_entry import Call
from oven.plans.saved import derived
from pretzel.original import Original, opened
from runtime.errors import NotOffered

if TYPE_CHECKING:
    from numpy.typing import ArrayLike

    from oven.export import Exported, Form
    from oven.plans.attribution import Attribution
    from oven.plans.counterfactual import Counterfactual
    from runtime.shortcut import Shortcut

METHODS = ("predict", "predict_proba", "predict_log_proba", "decision_function", "transform")
_FACTS = ("classes_", "feature_names_in_", "n_features_in_", "n_outputs_", "outputs_2d_")


def compile(  # noqa: A001 (the name people expect: pretzel.compile)
    source: object,
    sample: object = None,
    verify: object = None,
    *,
    exact: bool = False,
    allow_python: bool = False,
    trust_pickle: bool = False,
    on_missing: OnMissing = "refuse",
) -> Model:
    """Compile a model to native code.

    >>> model = pretzel.compile(pipeline, verify=X[:100])
    >>> model.predict(X)

    `source` is a fitted estimator, a booster, an ONNX model, a program, a plan, or the path of a
    file of one of these. A pickle is read as data: nothing of it is run. `sample` (a few rows)
    settles the input's columns and dtypes. With `verify`, these rows are replayed on the original,
    and a mismatch is refused; they are the sample if one is needed and not given, and columns of
    integers stay whole in `counterfactual`. With
    `allow_python`, steps without native code are called as Python. Of a pickle, both need
    `trust_pickle`, with which it is unpickled: this runs code of its author. Rows with NaN or
    infinity are refused as the original does; with `on_missing="answer"` they are computed. With
    `exact`, sums keep their order.
    """

    def read(sample: object) -> tuple[Original, Plan]:
        found = opened(source, sample, allow_python=allow_python, trust_pickle=trust_pickle)
        plan = found.plan
        if plan is None or (exact and not plan.exact) or not refuses(on_missing):
            flow = found.read(on_missing=on_missing)
            flow = flow if refuses(on_missing) else without_checks(flow)
            plan = oven.bake(flow, exact=exact or (plan is not None and plan.exact))
        return found, plan

    try:
        original, plan = read(sample)
    except (ImportRefused, TypeMismatch) as problem:
        if sample is not None or verify is None:
            raise
        try:  # the estimator does not say what its columns are; these rows do
            original, plan = read(verify)
        except FlourError:
            raise problem from None
    model = Model(
        plan,
        original.estimator,
        # Only once they are asked for; until then this keeps the estimator.
        lambda: _logarithms(original.read(on_missing=on_missing, log_probabilities=True)),
        original.library,
    )
    if verify is not None:
        original.verify(model.plan, verify)
        if original.estimator is not None and hasattr(model, "predict_log_proba"):
            original.verify(model.parts["predict_log_proba"], verify)
        _note_whole(model.plan, verify)
    return model


def _note_whole(plan: Plan, rows: object) -> None:
    """Note the columns of integers of a frame, which minimal changes keep whole."""
    columns = (frame_columns(rows) or {}).items()
    whole = [name for name, each in columns if has_integers(each)]
    if whole and not plan.training():
        plan.training = lambda: {"columns": {name: {"whole": True} for name in whole}}


def load(path: str | Path, *, allow_python: bool = False) -> Model:
    """Open a model that `Model.save`, or `pretzel import`, has written; no code of it is run.

    >>> model = pretzel.load("churn.pretzel")

    Large equal arrays of files are in memory once, and a method's code is made ready when it is
    first used. Labels that are texts come as objects: the file has no array type of the estimator.
    A model with Python steps wants `allow_python`: their modules are imported, which runs code.
    A file of more than 64 MiB stays mapped: rename another one over it, never write into it.
    """
    return Model(oven.load(path, allow_python=allow_python, mapped=False))


def _logarithms(flow: Flow) -> Flow:
    """The logarithms of probabilities that a program has, or else those of what it has."""
    logs = {name: flow[name] for name in flow.outputs if name.startswith("log_")}
    shares = [name for name in flow.outputs if name.startswith("probabilities")]
    return outputs(**(logs or {f"log_{name}": flow[name].log() for name in shares}))


class Offered:
    """A method that exists only where the program has one of these outputs, as in scikit-learn.

    Where it exists, the model has it as an attribute of its own, which comes first: from the
    beginning, or (`late`) once it has been asked for.
    """

    def __init__(self, *names: str, doc: str, late: bool = False) -> None:
        self.names, self.__doc__, self.late = names, doc, late

    def __set_name__(self, kind: type, name: str) -> None:
        self.method = name

    def __get__(self, owner: Model | None, kind: type) -> Any:
        if owner is None:
            return self
        if self.method in owner.missing:
            raise NotOffered(f"the estimator has no {self.method}")
        if owner.offer(self):
            return vars(owner)[self.method]
        raise NotOffered(
            f"this program has no {' or '.join(self.names)}", found=", ".join(owner.outputs)
        )


class Model:
    """A compiled model: it answers in its original's words, and explains its answers.

    >>> model = pretzel.compile(pipeline)
    >>> model.predict_proba(X)
    >>> print(model.attribute(X[:1]))

    Which of `predict`, `predict_proba`, `predict_log_proba`, `decision_function` and `transform`
    exist is the original's choice.
    """

    def __init__(
        self,
        plan: Plan,
        estimator: object = None,
        logarithms: Callable[[], Flow] | None = None,
        library: str = "",
    ) -> None:
        self.plan, self._library = plan, library
        self.outputs = tuple(plan.outputs)
        self._facts = {
            name: getattr(estimator, name) for name in _FACTS if hasattr(estimator, name)
        }
        #: Methods that could be but that the estimator has not.
        self.missing: frozenset[str] = frozenset()
        if estimator is not None:
            # Of an estimator that was read as data, the outputs tell of `predict` and `transform`.
            sure = METHODS if not isinstance(estimator, StandIn) else METHODS[1:-1]
            self.missing = frozenset(name for name in sure if not hasattr(estimator, name))
        #: From a row or a block to all outputs, once it was asked for.
        self._entry: Call | None = None
        #: The plans of methods, or of the outputs that they have in common.
        self.parts: dict[str, Plan] = {}
        #: The program of predict_log_proba.
        self.logarithms = logarithms or (lambda: _logarithms(plan.flow))
        kinds = list(plan.inputs.values())
        # Training libraries want at least one row of numbers, XGBoost does not; texts may be none.
        numbers = isinstance(kinds[0], Vector | Record)
        self._wants_rows = estimator is not None and library != "xgboost" and numbers
        # Of a file whose code is there, each method is made when it is first asked for.
        if plan.source is None or not plan.ready:
            self._offer_all()

    @property
    def flow(self) -> Flow:
        """The program as it was written."""
        return self.plan.flow

    def _offer_all(self) -> None:
        for name, method in vars(Model).items():
            here = name in vars(self) or name in self.missing
            if isinstance(method, Offered) and not here and not method.late:
                self.offer(method)

    def offer(self, method: Offered) -> bool:
        """Have this method, if there is an output for it; whether there is."""
        name = next((each for each in method.names if each in self.outputs), None)
        if name is None:
            return False
        classes = self._facts.get("classes_")
        dtype = classes.dtype if name == "label" and isinstance(classes, np.ndarray) else None
        labels = None if dtype is None else FixedLabels.of_labels(self.flow[name].node, dtype)
        key = method.method if method.late else name
        if key not in self.parts:
            alone = name == "probabilities_0" or len(self.outputs) == 1
            plan, logarithms = self.plan, self.logarithms if method.late else None

            def part() -> Flow:
                whole = plan.flow[name] if logarithms is None else logarithms()
                return whole if labels is None else whole.input(0)

            bakes = labels is not None or method.late or not alone
            self.parts[key] = derived(plan, key, part) if bakes else plan
        answer = EstimatorMethod(self.parts[key], wants_rows=self._wants_rows)
        # CatBoost's labels are a column where the loss is one of several classes.
        answer.column = self._library == "catboost" and name == "label"
        if answer.column:
            below = self.flow[name].node.inputs
            answer.column = any(isinstance(node.op, ArgMax) for node in below)
        if labels is not None:
            answer.converted = labels
        else:
            answer.dtype = dtype
        answer.keep = partial(vars(self).__setitem__, method.method)
        answer.keep(answer.opened())
        return True

    def wait(self) -> Model:
        """This model, as soon as the machine code of all methods is there."""
        self._offer_all()
        for plan in (self.plan, *self.parts.values()):
            plan.wait()
            match [*plan.inputs.values()]:  # numbers of Python and numpy are wider than XGBoost's
                case [Vector(width=width, dtype="float32", sparse=False)]:
                    (plan.variants.of(np.zeros((1, width))) or plan).wait()
        return self

    def run(self, rows: object) -> dict[str, Any]:
        """Every output of the program for a row or a block, by name."""
        if self._entry is None:
            self._entry = self.plan.entry()
        return dict(zip(self.outputs, self._entry(rows), strict=True))

    def run_arrow(self, data: object) -> Any:
        """Every output for a batch or a table of Arrow, as a batch of Arrow."""
        return self.plan.run_arrow(data)

    def attribute(
        self,
        rows: object,
        *,
        output: str | None = None,
        background: object = None,
        samples: int = 64,
    ) -> Attribution:
        """Contributions of each column to each row's score, as shapley values where they are exact.

        Without an `output`, the first of scores, value and probabilities is explained. Shares are
        against the mean of the `background` (some rows), or else of the training data.
        """
        from oven.explain import attribute

        return attribute(self.plan, rows, output=output, background=background, samples=samples)

    def counterfactual(
        self,
        row: object,
        *,
        want: object,
        free: Sequence[str] | None = None,
        within: Mapping[str, Any] | None = None,
        most: int = 3,
        seconds: float = math.inf,
    ) -> Counterfactual:
        """The smallest change of a row after which the model answers `want`.

        `want` is a label, or a pair (low, high) for a number. Only `free` columns change (all,
        unless they are named), `within` bounds: a pair for numbers, a list for categories and for
        the words that may replace a document's. At most `most` columns change, or words. The search
        ends after `seconds`.
        """
        from oven.explain import counterfactual

        return counterfactual(
            self.plan, row, want=want, free=free, within=within, most=most, seconds=seconds
        )

    def conformal(self, rows: object, truth: ArrayLike, *, coverage: float = 0.9) -> Model:
        """A model that also says how far the truth may be: split-conformal prediction.

        >>> careful = model.conformal(X_held_out, y_held_out, coverage=0.95)
        >>> careful.run(X)["upper"]

        Regressors answer `lower` and `upper`, classifiers a `set`: for each class if it is in it.
        Of new rows like these, which were not trained on, at least `coverage` have their truth
        inside, on average.
        """
        from pretzel.conformal import conformal_flow

        flow = conformal_flow(self.plan, rows, truth, coverage)
        return Model(oven.bake(flow, exact=self.plan.exact))

    def shortcut(self, rows: object, *, loss: float = 0.001, confidence: float = 0.95) -> Shortcut:
        """A cascade: a cheap part of the model answers where it is sure, the model all other rows.

        >>> shortcut = model.shortcut(X)
        >>> runtime.register("churn", shortcut.graph)

        With this confidence, labels differ from the model's on at most a share of `loss` of rows
        like these, which should not be those that it was trained on. Where no part is sure of
        enough rows, the error says what was tried.
        """
        from runtime.shortcut import shortcut

        return shortcut(self.plan, rows, loss=loss, confidence=confidence)

    def explain(self, stage: str = "stages", form: str = "text", data: object = None) -> str:
        """The program at a stage of its way to machine code, as text or a page of HTML.

        Stages are logical, optimised, stages, source, llvm, asm, and timed, which runs `data`.
        """
        from oven.explain import explain

        return explain(self.plan, stage, form, data)

    def save(self, path: str | Path, *, training: object = None) -> None:
        """Write the model as data, never code; `pretzel.load` and `pretzel serve` read it.

        Ranges and counts of the `training` rows go with it, which drift is measured against.
        """
        facts = None
        if training is not None:
            from runtime.watch import training_of

            facts = training_of(self.plan, training)
        self.plan.save(path, training=facts)

    def export(
        self,
        folder: str | Path,
        *,
        to: Form = "so",
        name: str = "model",
        outputs: Sequence[str] = (),
        rows: object = None,
        blocks: bool = False,
        float32: bool = False,
    ) -> Exported:
        """Write the model for programs without Python: c, so, wasm, wasi or npm.

        >>> model.export("out", to="npm", name="churn", rows=X[:100])

        The artefact has these `outputs`, and is written once it has answered the `rows` (or made-up
        ones) with the right bits. `from oven.export import export` is for other processors, too.
        """
        from oven.export import export

        return export(
            self.plan,
            folder,
            to=to,
            name=name,
            outputs=outputs,
            rows=rows,
            blocks=blocks,
            float32=float32,
        )

    def __getattr__(self, name: str) -> Any:
        facts = self.__dict__.get("_facts", {})
        if name in facts:
            return facts[name]
        # Python comes here as well where a method is there but not offered.
        method = type(self).__dict__.get(name)
        if isinstance(method, Offered):
            return method.__get__(self, type(self))  # which raises
        raise AttributeError(f"{type(self).__name__} has no attribute {name!r}")

    def __repr__(self) -> str:
        return f"Model({self.plan!r})"

    def __copy__(self) -> Model:
        return self  # nothing about it changes

    def __deepcopy__(self, _: object) -> Model:
        return self

    def __reduce_ex__(self, protocol: SupportsIndex) -> Any:
        raise TypeError(
            "a compiled model cannot be pickled: pickle the estimator and compile it again, "
            "or save the model with model.save(path), for pretzel.load(path)"
        )

    # --- the original's methods --------------------------------------------------------------

    predict = Offered("value", "label", doc="Class labels, values or cluster numbers.")
    predict_proba = Offered(
        *("probabilities", "probabilities_0"),
        doc="Class probabilities; a list of them where there are several targets.",
    )
    predict_log_proba = Offered(
        *("log_probabilities", "probabilities", "probabilities_0"),
        doc="Logarithms of the class probabilities.",
        late=True,
    )
    decision_function = Offered("scores", doc="The scores the decision is made by.")
    transform = Offered("features", "distances", doc="The transformed rows.")


class EstimatorMethod:
    """One of an estimator's methods: what a plan answers for rows, as the estimator would."""

    def __init__(self, plan: oven.Plan, *, wants_rows: bool) -> None:
        self.plan, self._wants_rows = plan, wants_rows
        #: None while native code is being compiled.
        self._entry = plan.entry() if plan.ready else None
        #: What answers: this one's own way until it is opened.
        self._call: Callable[[Any], Any] = self._answer
        #: Puts what is to be called into this one's place.
        self.keep: Callable[[Callable[[Any], Any]], None] = lambda _: None
        #: Which outputs make up the answer, as a list; None if it is the one that there is.
        self._several = [
            place for place, name in enumerate(plan.outputs) if "probabilities_" in name
        ]
        #: What becomes of the output, and the dtype to answer in, if it is not the output's own.
        self.converted: FixedLabels | None = None
        self.dtype: np.dtype[Any] | None = None
        #: Answers are a matrix of one column.
        self.column = False

    def opened(self) -> Callable[[Any], Any]:
        """This, in machine code if that can be and a dtype is not left to be changed."""
        changes = self.dtype is not None and self.dtype != _dtype(self.plan)
        changes = changes or self.column
        if self._entry is not None and not self._several and not changes:
            native = open_array_call(self._entry, self._answer, converted=self.converted)
            if native is not None:
                self._call = native
                return native
        return self

    def __call__(self, X: object) -> Any:
        """The answers for these rows."""
        return self._call(X)

    def _answer(self, X: object) -> Any:
        batch = self.plan.reader.read(X)
        if self._wants_rows:
            _refuse_no_rows(X, batch)
        plan = self.plan
        if self._entry is None and plan.ready:
            self._entry = plan.entry()
            self.keep(self.opened())
        entry = self._entry if batch.is_block else None
        values = entry(batch.data) if entry is not None else [*plan.run(X).values()]
        if self._several:
            return [self._finished(values[place]) for place in self._several]
        return self._finished(values[0])

    def _finished(self, value: Any) -> Any:
        value = value[:, np.newaxis] if self.column else value
        if self.converted is not None:
            return self.converted(value)
        if self.dtype is not None and value.dtype != self.dtype:
            return value.astype(self.dtype)
        return value


def _dtype(plan: oven.Plan) -> np.dtype[Any]:
    """The dtype of a plan's first output."""
    name = getattr(next(iter(plan.outputs.values())), "dtype", "")
    return np.dtype(object if name in {"string", ""} else name)


def _refuse_no_rows(X: object, batch: Batch) -> None:
    if batch.rows == 0 and row_count(X) == 0 and hasattr(X, "__len__"):
        raise NotRectangular(
            "there are no rows, and the estimator asks for one at least",
            where="$",
            found=f"{type(X).__name__} of length 0",
            hint="answer an empty request without asking",
        )
