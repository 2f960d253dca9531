"""One row per operator: how to make it, what it eats, how exact its native code must be.

Every test that must hold for all operators runs over this table: the reference answers with the
type that was inferred, native code answers as the reference does (one row, many rows, no rows, odd
values), the operator survives being written as data. An operator without a row fails the house
rules.

`tolerance` is relative to the magnitude of the answer (0 means bit-equal) and applies to float64;
float32 gets the same in float32 epsilons. A tolerance above zero says why.
"""

from __future__ import annotations

from textwrap import dedent
from typing import Any

import numpy as np

from flour.core.callables import function
from flour.core.source import Source
from flour.core.types import (
    LARGEST,
    LARGEST_SINGLE,
    Category,
    Pairs,
    Record,
    Scalar,
    Text,
    Tokens,
    Vector,
)
from flour.ops import (
    bayes,
    binary,
    categorise,
    city_hash,
    cluster,
    csv,
    discretise,
    distance,
    elementwise,
    encode,
    graph,
    impute,
    impute_models,
    interpolate,
    kernel,
    linear,
    link,
    manifold,
    mixture,
    nearest,
    ngrams,
    onnx_text,
    opaque,
    pairs,
    pieces,
    projection,
    pursuit,
    python,
    reduce,
    require,
    scale,
    source,
    spline,
    structure,
    subwords,
    svm,
    target,
    text,
    topics,
    tree_search,
    unary,
    vote,
)
from tests import cases_tensors, ensembles
from tests.case import (
    LIBM,
    REASSOCIATES,
    WIDTHS,
    Case,
    amounts,
    category_codes,
    chances,
    codes,
    counts,
    gappy,
    gram,
    holes,
    indices,
    missing,
    narrow,
    normal,
    positive,
    rows,
    scalars,
    search_tree,
    shares,
    sometimes_missing,
    sparse,
    zeros,
)
from tests.case_tables import COMBINATIONS
from tests.columns import WORDS
from tests.onnx_parts import absolute, text_encoder

RECORD = Record((("age", Scalar("float64")), ("fare", Scalar("float64")), ("city", Category())))
DOT: dict[str, Any] = {"tolerance": 1e-13, "why": REASSOCIATES, "odd": False}
SETTLED = {"tolerance": 1e-11, "why": REASSOCIATES, "odd": False}
WAVE = {"tolerance": 1e-12, "why": LIBM}
FUNCTION: dict[str, Any] = {"tolerance": 4e-15, "why": LIBM}

# Two columns: "a" "" and "日本" among the first one's texts, "a" alone among the second's.
TEXTS = (["a", "", "日本", "a"], [0, 1, 7, 3], [0, 3, 4], [8, -1], [9, -2], [-3, 4])

EDGES = [0.0, 0.25, 0.5, 1.0]
ENCODER = opaque.Encoder(
    text_encoder(9), ("input_ids", "attention_mask"), "last_hidden_state", 4, "mean", (1,)
)
BYTES = np.array([[1, -2], [3, 120]], np.int8)
PIECES = ["[UNK]", "[SEP]", "a", "caf", "##e", "##é", "日", "本", "long", "\x00", "un", "##ico"]
MERGES = np.array([[2, 2, 3], [3, 2, 8], [6, 7, 10]], np.int32)

KNOTS = [[-1.0, -0.75, -0.5, 0.0, 0.75, 1.0, 1.5]]


async def pair(number: float, whole: int) -> list[float]:
    """Answer as a store of features does."""
    return [number, float(whole)]


TEST = Scalar("bool")
CHOICES = [
    Case(graph.Choose(), (TEST, Scalar(), Scalar())),
    Case(graph.Choose(), (TEST, TEST, Scalar("float32"), Scalar(), Scalar("int64")), label="mixed"),
    Case(graph.Choose(), (TEST, TEST, Vector(3), Vector(3), Vector(3)), label="vectors"),
]

CASES: list[Case] = [
    # --- flour/core/source.py
    Case(Source("x", Vector(3)), ()),
    # --- flour/ops/source.py
    Case(source.Field("age"), (RECORD,)),
    Case(source.Pick(("fare", "age")), (RECORD,)),
    *rows(source.Fill([1.0, 2.0]), 3),
    # --- flour/ops/structure.py
    Case(structure.Narrow(("city", "age")), (RECORD,), native=False),
    Case(structure.Bundle(("a", "b", "c")), (Scalar("int64"), Vector(2)), native=False),
    # --- flour/ops/structure.py
    *rows(structure.ToDense(), 4),
    *sparse(structure.ToDense(), 4),
    *rows(structure.ToSparse(), 4),
    *sparse(structure.ToSparse(), 4),
    # --- flour/ops/vote.py
    Case(vote.Tally(positive(4), normal(4), 3), (Vector(4, "int64"),), draw=indices(3), odd=False),
    *rows(vote.Share(), 5, **DOT),
    *rows(vote.WeightedMedian(positive(7)), 7),
    Case(vote.Duels(4), (Vector(6, "int64"), Vector(6)), odd=False),
    # --- flour/ops/require.py
    *rows(require.RequireFinite([True] * 4, [LARGEST] * 4), 4, odd=False),
    *sparse(require.RequireFinite([True], [LARGEST]), 4, odd=False),
    *scalars(require.RequireFinite([False], [LARGEST]), odd=False),
    *rows(require.RequireFinite([True] * 4, [LARGEST_SINGLE] * 4), 4, label="-single", odd=False),
    *rows(require.RequireFinite([False, True], [np.inf, 9.0]), 2, label="-mixed", odd=False),
    *rows(require.RequireFinite([False], [np.inf], least=-99.0), 4, label="-least", odd=False),
    *rows(
        require.RequireFinite([True], [LARGEST], steps=("A", "B", "C")), 4, label="-by", odd=False
    ),
    *sparse(
        require.RequireFinite([False], [np.inf], least=-99.0, strict=True),
        4,
        label="-least",
        odd=False,
    ),
    *rows(require.RequireAny(), 4, odd=False),
    Case(require.RequirePresent(), (Vector(3, "string"),), native=False),
    Case(require.RequirePresent(none=True), (Scalar("string"),), native=False),
    # --- flour/ops/text.py, flour/ops/csv.py
    Case(text.Lower(), (Text(),), native=False),
    Case(text.Upper(), (Text(),), native=False),
    Case(text.Join(", "), (Tokens(),), native=False),
    Case(text.Length(), (Text(),)),
    Case(text.Length(), (Tokens(),)),
    Case(
        csv.CsvField(("a", "b"), (Scalar(), Text()), column="b"),
        (Text(),),
        draw=lambda rng, _, n: np.array([f'1,"{k} ""x"""' for k in rng.integers(0, 9, n)], object),
        native=False,
    ),
    Case(text.StripAccents(), (Text(),), native=False),
    Case(text.StripAccents(ascii=True), (Text(),), native=False),
    Case(text.Tokenize(), (Text(),), native=False),
    Case(text.Split(" "), (Text(),), native=False),
    Case(text.DropWords(["a", ""]), (Tokens(),), native=False),
    # --- flour/ops/subwords.py
    Case(subwords.FirstCharacters(3), (Text(),), native=False),
    Case(subwords.FirstWords(2), (Tokens(),), native=False),
    # --- flour/ops/pieces.py
    Case(pieces.WordPieces(PIECES, ["[SEP]"], [7]), (Text(),), native=False),
    Case(pieces.WordPieces(PIECES, changes=()), (Text(),), native=False, label="bare"),
    Case(pieces.BytePairs(PIECES, merges=MERGES), (Text(),), native=False),
    Case(pieces.Unigrams(PIECES, unknown="[UNK]", scores=normal(12)), (Text(),), native=False),
    Case(subwords.WordNumbers(WORDS[:5], 3), (Tokens(),)),
    Case(ENCODER, (Vector(3, "int64"),), native=False, draw=codes(9)),
    Case(subwords.TokenMean(WORDS, normal(len(WORDS), 3)), (Tokens(),)),
    Case(subwords.TokenMean(WORDS[:4], BYTES, [1, 0, 0, 1], normal(4)), (Tokens(),), label="few"),
    Case(ngrams.Phrases(1, 2), (Tokens(),), native=False),
    Case(ngrams.Runs(1, 3), (Text(),), native=False),
    Case(ngrams.WordNgrams(["a", "a café", "日本"], 1, 2), (Tokens(),)),
    Case(ngrams.CharNgrams(["a", "日本", "n", "İ"], 1, 2), (Text(),)),
    Case(ngrams.CharNgrams([" a", "g "], 2, 2, within_words=True), (Text(),)),
    Case(ngrams.Hashing(16), (Tokens(),)),
    # --- flour/ops/pairs.py
    Case(pairs.NamedValues(["a", "日本", "", "İ"]), (Pairs(),)),
    Case(pairs.NamedValues(["a", "café"], "float32"), (Pairs(lenient=True),)),
    Case(pairs.HashedValues(5), (Pairs(),)),
    Case(pairs.HashedValues(3, signed=False, dtype="float32"), (Pairs(),)),
    *rows(ngrams.Damp(), 4, **FUNCTION),
    *sparse(ngrams.Damp(), 4, **FUNCTION),
    Case(csv.ParseCsv(("t",), (Category(),), ";"), (Text(),), native=False, odd=False),
    # --- flour/ops/target.py
    *rows(target.UndoYeoJohnson([0.0, 2.0, 0.5, -1.5]), 4, **FUNCTION),
    *rows(target.UndoBoxCox([0.0, 2.0, 0.5, -1.5]), 4, **FUNCTION),
    # --- flour/ops/elementwise.py
    *rows(elementwise.Subtract(normal(8)), 8),
    *scalars(elementwise.Subtract(normal(1))),
    *rows(elementwise.Add(normal(1)), 8),
    *rows(elementwise.Multiply(normal(8)), 8),
    *sparse(elementwise.Multiply(normal(8)), 8),
    *rows(elementwise.Divide(positive(8)), 8),
    *sparse(elementwise.Divide(positive(1)), 8),
    *rows(elementwise.Multiply(normal(8), wide=True), 8, label="-wide"),
    *sparse(elementwise.Multiply(normal(8), wide=True), 8, label="-wide"),
    *rows(elementwise.Clip([-0.5], [0.5]), 4),
    *rows(elementwise.OneMinus(), 4),
    *rows(elementwise.Greater([0.1]), 4),
    *rows(elementwise.Cast("float64"), 4),
    Case(elementwise.Cast("float64"), (Vector(4, "bool"),), odd=False),
    Case(elementwise.AsFloat(), (Vector(4, "int64"),)),
    *(Case(elementwise.NumpyFloat(), (Vector(4, kind),)) for kind in ("int16", "int32", "uint64")),
    # --- flour/ops/structure.py
    *rows(structure.Concat(), 3, 2),
    Case(structure.Concat(), (Vector(3, sparse=True), Vector(2))),
    Case(structure.Concat(), (Scalar("float32"), Vector(2, "float64"), Scalar("int64"))),
    *scalars(structure.AsVector()),
    *rows(structure.Select([2, 0, 2]), 4),
    *sparse(structure.Select([2, 0, 2]), 4),
    *rows(structure.Element(1), 3),
    Case(structure.Take(normal(5)), (Scalar("int64"),), draw=indices(5)),
    Case(structure.TakeText(list("abcde")), (Scalar("int64"),), draw=indices(5)),
    # --- flour/ops/linear.py
    *rows(linear.Linear(normal(1, 20), normal(1)), 20, **DOT),
    *rows(linear.Linear(normal(3, 20), normal(3)), 20, **DOT),
    *rows(linear.Linear(normal(3, 20), []), 20, **DOT),
    *sparse(linear.Linear(normal(3, 20), normal(3)), 20, **DOT),
    *sparse(linear.Linear(normal(1, 20), normal(1)), 20, **DOT),
    # --- flour/ops/reduce.py
    *rows(reduce.Sum(), 9, **DOT),
    *sparse(reduce.Sum(), 9, **DOT),
    *rows(reduce.Max(), 5),
    *rows(reduce.Min(), 5),
    *rows(reduce.ArgMax(), 5),
    *rows(reduce.ArgMin(), 5),
    *rows(reduce.Norm("l1"), 5, **DOT),
    *rows(reduce.Norm("l2"), 5, **DOT),
    *rows(reduce.Norm("max"), 5),
    # --- flour/ops/city_hash.py, flour/ops/onnx_text.py
    Case(city_hash.Murmur(7, positive=False), (Vector(3, "string"),)),
    Case(city_hash.Murmur(), (Vector(2, "float32"),)),
    Case(city_hash.Murmur(3, positive=False), (Scalar("int64"),)),
    Case(onnx_text.LowerLetters(), (Text(),), native=False),
    Case(onnx_text.LetterNgrams(["a", "日本", " ", "ba"], 1, 2), (Text(),)),
    Case(opaque.Opaque(**absolute(3)), (Vector(3, "float32"),), native=False),
    Case(onnx_text.UpperLetters(), (Text(),), native=False),
    # --- flour/ops/python.py
    *CHOICES,
    Case(graph.ChooseText(), (Scalar("bool"), Scalar("string"), Scalar("string")), native=False),
    Case(
        graph.Fetch("load", function(pair), Vector(2)),
        (Scalar(), Scalar("int64")),
        native=False,
        odd=False,
    ),
    Case(python.PythonText(function(dedent)), (Text(),), native=False),
    Case(python.PythonWords(function(sorted)), (Text(),), native=False),
    Case(python.PythonColumns(function(np.fliplr), 3), (Vector(3),), native=False),
    Case(
        python.PythonColumns(
            function(np.fliplr), 2, "object", gives=(("x0", "string"), ("x1", "float64"))
        ),
        (Scalar("float64"), Scalar("string")),
        native=False,
    ),
    # --- flour/ops/link.py
    *rows(link.Logistic(), 5, **FUNCTION),
    *rows(link.Logistic(), 9, **FUNCTION),
    *scalars(link.Logistic(), **FUNCTION),
    *rows(link.FirstLargest(), 5),
    # --- flour/ops/bayes.py
    *rows(bayes.SpreadDistances(normal(3, 7), positive(3, 7)), 7, **DOT),
    *rows(bayes.SpreadDistances(normal(1, 2).astype("f4"), positive(1, 2)), 2, **DOT),
    Case(bayes.SumOfEntries(normal(9, 3), [0, 4, 6]), (Vector(3, "int64"),), draw=indices(7)),
    # --- flour/ops/projection.py
    *rows(projection.ChiWave(0, 0.5, sine=False), 4, draw=amounts),
    *sparse(projection.ChiWave(2, 0.5, sine=False), 9, draw=amounts, **WAVE),
    *rows(projection.ChiWave(1, 0.3, sine=True), 4, draw=amounts, **WAVE),
    *rows(projection.CircularConvolve(), 5, 5, **DOT),
    *rows(projection.CircularConvolve(), 1, 1, **DOT),
    # --- flour/ops/pursuit.py
    *rows(pursuit.MatchingPursuit(gram(6, 4), 3), 6, tolerance=1e-11, why=REASSOCIATES, odd=False),
    *rows(pursuit.MatchingPursuit(gram(3, 3), 1), 3, **DOT),
    *rows(pursuit.MatchingPursuit(gram(6, 2), 5), 6, draw=zeros),
    # --- flour/ops/topics.py
    *rows(topics.TopicWeights(positive(3, 8), 0.3, 1e-3, 50), 8, draw=amounts, **SETTLED)[:1],
    *sparse(topics.TopicWeights(positive(3, 8), 0.3, 1e-3, 50), 8, draw=amounts, **SETTLED)[:1],
    *rows(
        topics.TopicWeights(positive(2, 5).astype("f4"), 0.5, 1e-3, 9), 5, **SETTLED, draw=amounts
    )[1:],
    # --- flour/ops/binary.py
    *rows(binary.Plus(), 4, 4),
    *rows(binary.Minus(), 4, 4),
    *rows(binary.Times(), 4, 4),
    *rows(binary.Over(), 4, 4),
    Case(binary.Plus(), (Scalar("float32"), Scalar("float32"))),
    Case(binary.Minus(), (Scalar(), Vector(4, "float32"))),
    Case(binary.Minus(), (Vector(4, "float32"), Scalar("int64"))),
    Case(binary.Plus(), (Vector(4, "int32"), Vector(4, "int32"))),
    Case(binary.Over(), (Vector(4, "int64"), Scalar("int64")), draw=counts),
    Case(binary.Times(), (Vector(9, sparse=True), Scalar()), odd=False),
    Case(binary.Times(), (Scalar("float32"), Vector(9, sparse=True)), odd=False),
    Case(binary.Times(), (Vector(9, sparse=True), Vector(9))),
    Case(binary.Over(), (Vector(9, sparse=True), Scalar()), odd=False),
    Case(binary.Over(), (Scalar(), Vector(9, sparse=True))),
    Case(binary.Plus(), (Vector(9, "float32", sparse=True), Vector(9, sparse=True))),
    *rows(binary.Quotient(normal(4)), 4),
    *(Case(binary.CastLike(), (Vector(4, a), Vector(2, b))) for a, b in (WIDTHS, WIDTHS[::-1])),
    Case(binary.CastLike(), (Scalar(), Scalar("float32"))),
    # --- flour/ops/link.py
    *rows(link.Proportions(), 5, **FUNCTION),
    *rows(link.Proportions(), 5, draw=zeros, label="-zero"),
    *rows(link.LogSumExp(), 5, **FUNCTION),
    *rows(link.LogSumExp(), 3, draw=zeros, label="-equal", **FUNCTION),
    # --- flour/ops/link.py
    *rows(link.Sigmoid(), 4, **FUNCTION),
    *scalars(link.Sigmoid(), **FUNCTION),
    *rows(link.Softmax(), 5, **FUNCTION),
    # --- flour/ops/scale.py
    *(Case(scale.Binarize(0.3), (Vector(4, d),)) for d in (*WIDTHS, "int64", "bool")),
    *sparse(scale.Binarize(0.3), 9),
    *scalars(scale.OneIfTiny(10.0)),
    *rows(scale.YeoJohnson([0.0, 1.3, 2.0, -0.7, 0.5]), 5, **FUNCTION),
    *rows(scale.YeoJohnson(narrow(0.0, 1.3, 2.0)), 3, label="-narrow", **FUNCTION),
    *rows(scale.BoxCox([0.0, 1.3, 2.0, -0.7, 0.5]), 5, **FUNCTION),
    # --- flour/ops/unary.py
    *(
        case
        for op in (
            *(unary.Exp(), unary.Expm1(), unary.Log(), unary.Log1p(), unary.Log2()),
            *(unary.Log10(), unary.Sqrt(), unary.Sinh(), unary.Cosh(), unary.Tanh(), unary.Erf()),
            unary.Reciprocal(),
        )
        for case in rows(op, 4, **FUNCTION)
    ),
    *(
        case
        for op in (unary.Sin(), unary.Cos(), unary.Tan())
        for case in rows(op, 4, tolerance=1e-14, why=LIBM, odd=False)
    ),
    *(
        case
        for op in (unary.Abs(), unary.Negate(), unary.Square(), unary.Sign(), unary.Relu())
        for case in (*rows(op, 4), Case(op, (Vector(4, "int64"),)), Case(op, (Vector(4, "int8"),)))
    ),
    *(
        case
        for op in (unary.Floor(), unary.Ceil(), unary.Trunc(), unary.Rint(), unary.IsNan())
        for case in (*rows(op, 4), Case(op, (Vector(4, "int64"),)))
    ),
    *(
        case
        for op in (unary.Log1p(), unary.Square(), unary.Floor(), unary.IsNan())
        for case in sparse(op, 9, **FUNCTION)
    ),
    # --- flour/ops/distance.py
    *rows(distance.SquaredDistances(normal(7, 5)), 5, **DOT),
    *rows(distance.SquaredDistances(normal(1, 5)), 5, **DOT),
    *rows(distance.SquaredDistances(normal(7, 5).astype("float32")), 5, **DOT),
    *sparse(distance.SquaredDistances(normal(3, 5)), 5, **DOT),
    *(
        case
        for metric in distance.METRICS
        for case in rows(distance.Distances(normal(7, 5), metric), 5, **FUNCTION)
    ),
    *sparse(distance.Distances(normal(3, 5), "canberra"), 5, **FUNCTION),
    *rows(distance.Distances(normal(7, 5), "minkowski", 3.0, positive(5)), 5, **FUNCTION),
    # --- flour/ops/nearest.py
    *rows(nearest.Nearest(3), 9),
    *rows(nearest.Nearest(9), 9),
    Case(nearest.Nearest(4), (Vector(9, "int64"),)),
    *rows(nearest.Nearest(3, heap=True), 9, odd=False),
    *(
        case
        for metric in tree_search.REDUCED
        for ball in ((True,) if metric in tree_search.BALLS_ONLY else (False, True))
        for case in rows(search_tree(metric, ball=ball), 3, **FUNCTION, odd=False)
    ),
    Case(nearest.Gather(), (Vector(5), Vector(3, "int64")), draw=codes(9)),
    Case(nearest.WeightedRows(normal(6, 2)), (Vector(3, "int64"),), draw=codes(9)),
    Case(nearest.WeightedRows(normal(6, 2)), (Vector(3, "int64"), Vector(3)), draw=codes(9)),
    Case(nearest.Votes(4), (Vector(7, "int64"),), draw=codes(5)),
    Case(nearest.Votes(4), (Vector(7, "int64"), Vector(7)), draw=codes(5)),
    *rows(nearest.Closeness(), 4),
    *rows(nearest.Closeness(), 4, 4),
    Case(nearest.Scatter(9), (Vector(1, "int64"), Vector(1)), draw=codes(9)),
    *rows(nearest.Maximum(), 4, 4),
    # --- flour/ops/trees/trees.py
    *rows(ensembles.sums(1), 6),
    *rows(ensembles.sums(2, outputs=3, strict=True, narrow=True), 6),
    *rows(ensembles.sums(3, outputs=3, span=3, divisor=5, narrow=True), 6),
    *rows(ensembles.sums(6, zeros=True, sets=True), 6),
    *rows(ensembles.sums(8, signed=False, sets=True), 6),
    *rows(ensembles.sums(7, dtype="float32", strict=True, narrow=True), 6),
    *rows(ensembles.sums(4, sets=True, trees=9), 6),
    *rows(ensembles.leaves(5, sets=True), 6),
    *rows(ensembles.sums(13, depth=9, trees=3, outputs=2), 6),  # more leaves than a mask has bits
    *rows(ensembles.sums(14, depth=9, trees=9, outputs=4, span=2, zeros=True), 6),
    *rows(ensembles.sums(15, depth=5, trees=1), 6),  # too few trees to walk side by side
    *sparse(ensembles.sums(9, absent=True, strict=True, narrow=True), 6),
    *sparse(ensembles.sums(11, absent=True, sets=True), 6),
    # --- flour/ops/trees/linear_trees.py
    *rows(ensembles.linear(10, outputs=2), 6),
    *rows(ensembles.linear(12, depth=0), 6),
    # --- flour/ops/trees/oblivious.py
    *rows(ensembles.oblivious(16), 6),
    *rows(ensembles.oblivious(17, outputs=3), 6),
    *rows(ensembles.oblivious(18, trees=2, depth=0), 6),
    # --- flour/ops/city_hash.py, flour/ops/combinations.py
    Case(city_hash.CityHash(), (Vector(2, "string"),)),
    Case(city_hash.CityHash(), (Category(digits=True),)),
    Case(COMBINATIONS, (Vector(3),), draw=category_codes, odd=False),
    # --- flour/ops/cluster.py
    *rows(cluster.Descend([1, -1, -3], [2, -2, -4]), 3),
    # --- flour/ops/mixture.py
    *rows(mixture.SumRuns(3), 9, **DOT),
    # --- flour/ops/categorise.py
    Case(categorise.CategoriseText(*TEXTS), (Vector(2, "string"),), draw=gappy),
    Case(
        categorise.CategoriseText(["", "日本"], [5, 6], [0, 2], [7], [8], [9]),
        (Category(),),
        draw=gappy,
    ),
    *rows(categorise.Categorise([0.0, 1.0, 0.5], [2, 1, 0], [0, 2, 3], [7, -1], [-1, 9]), 2),
    Case(categorise.Categorise([3, 7], [0, 1], [0, 2], [-1], [-1]), (Scalar("int64"),)),
    Case(categorise.Categorise([3, 7], [0, 1], [0, 2], [-1], [-1]), (Scalar("float32"),)),
    # --- flour/ops/encode.py
    Case(encode.OneHot([0, 2, 5]), (Vector(2, "int64"),), draw=category_codes),
    Case(encode.OneHot([0, 3], "int32"), (Vector(1, "int8"),), draw=category_codes),
    Case(encode.OneHot([0, 3], "bool"), (Vector(1, "int64"),), draw=category_codes),
    Case(
        encode.LookUp(normal(5), [0, 2, 5], [9.0, np.nan]),
        (Vector(2, "int64"),),
        draw=category_codes,
    ),
    # --- flour/ops/discretise.py
    *rows(discretise.Bins([-0.5, 0.0, 0.5, 0.0], [0, 3, 4, 4]), 3),
    Case(discretise.Bins([3.0, 7.0], [0, 2]), (Vector(1, "int64"),)),
    # --- flour/ops/spline.py
    *rows(spline.Products([0, 1, 2, 2], [0, 0, 0, 1]), 2),
    *rows(spline.Products([0, 1, 2, 2], [0, 0, 0, 1], skip=3, bias=True), 2, label="-high"),
    *sparse(spline.Products([0, 1, 1], [0, 0, 1], bias=True), 2),
    # --- flour/ops/kernel.py
    *rows(kernel.Power(2.5), 4, tolerance=1e-14, why=LIBM),
    *rows(kernel.Power(3.0), 4, tolerance=1e-14, why=LIBM),
    # --- flour/ops/svm.py
    Case(svm.CouplePairs(2), (Vector(1),), 1e-12, "rows stop at once", draw=chances, odd=False),
    Case(svm.CouplePairs(4), (Vector(6),), 1e-12, REASSOCIATES, draw=chances, odd=False),
    # --- flour/ops/elementwise.py
    *(
        case
        for op in (elementwise.GreaterEqual, elementwise.Less, elementwise.LessEqual)
        for case in (*rows(op([0.1]), 4), Case(op([3, 4]), (Vector(2, "int64"),)))
    ),
    *rows(elementwise.Equal([0.0, 1.0]), 2),
    *rows(elementwise.NotEqual(narrow(0.0, 1.0)), 2),
    *(Case(elementwise.Where(), (Vector(3, "bool"), Vector(3, d), Scalar())) for d in WIDTHS),
    Case(elementwise.Where(), (Scalar("bool"), Vector(3), Vector(3, "int64"))),
    Case(elementwise.Where(), (Scalar("bool"), Scalar("float32"), Scalar("int8"))),
    # --- flour/ops/interpolate.py
    *rows(interpolate.Ranks([[-1.0, 0.0, 0.0, 0.5], [0.0, 0.1, 0.2, 1.0]], EDGES), 2),
    *rows(interpolate.Ranks([[-1.0, 0.0, 0.0, 0.5]], EDGES, margin=1e-7), 1, label="-margin"),
    *rows(interpolate.Ranks([[0.3]], [0.0]), 1, label="-one"),
    *sparse(interpolate.Ranks([[0.0, 0.0, 0.5, 2.0]], EDGES, sparse=True), 1),
    *rows(interpolate.NormalQuantile(), 4, draw=shares, **FUNCTION),
    *rows(interpolate.NormalQuantile(), 4, label="-odd", tolerance=2e-14, why=LIBM),
    # --- flour/ops/impute.py
    *rows(impute.Impute(np.nan, [3.0, 4.0]), 2),
    *sparse(impute.Impute(np.nan, [3.0]), 9),
    *rows(impute.Impute(1.0, [3.0, 4.0]), 2, label="-ones"),
    Case(impute.Impute(7, [3, 4]), (Vector(2, "int64"),)),
    *rows(impute.IsMissing(np.nan), 2),
    *rows(impute.IsMissing(0.0), 2, label="-zeros"),
    *(
        Case(impute.IsMissingText(kind, text), (Vector(2, "string"),), draw=gappy, label=kind)
        for kind, text in (("nan", []), ("none", []), ("either", []), ("text", ["日本"]))
    ),
    *(
        Case(
            impute.ImputeText(kind, [], ["x", "日"]),
            (Vector(2, "string"),),
            draw=gappy,
            native=False,
            label=kind,
        )
        for kind in ("nan", "either")
    ),
    Case(impute.ImputeText("text", [""], ["x", "日"]), (Vector(2, "string"),), native=False),
    # --- flour/ops/interpolate.py
    *rows(interpolate.Interpolate([-1.5, -0.5, 0.0, 1.0], [0.0, 2.0, -1.0, 3.0]), 9, **FUNCTION),
    *scalars(interpolate.Interpolate([-1.0, 1.0], [0.5, 2.0]), **FUNCTION),
    # --- flour/ops/kernel.py
    Case(kernel.SolveLower(np.tril(positive(5, 5))), (Vector(5),), **DOT),
    # --- flour/ops/spline.py
    *(
        case
        for beyond, ends, kept in (
            ("constant", 4, 4),
            ("linear", 4, 3),
            ("continue", 4, 4),
            ("periodic", 2, 2),
        )
        for case in rows(
            spline.Splines(KNOTS, [[-0.5, 0.75]], positive(1, 4, ends), 2, beyond, kept),
            1,
            label=f"-{beyond}",
            odd=beyond in ("constant", "linear"),
        )
    ),
    Case(
        spline.Splines(KNOTS, [[-9.0, 9.0]], positive(1, 4, 4), 2, "error", 4),
        (Vector(1),),
        odd=False,
    ),
    # --- flour/ops/manifold.py
    Case(manifold.ShortestWay(positive(6, 4)), (Vector(3, "int64"), Vector(3)), draw=codes(9)),
    Case(
        manifold.Barycentre(normal(9, 4), 0.1),
        (Vector(4), Vector(3, "int64")),
        1e-12,
        "equations are solved by another method",
        draw=codes(9),
    ),
    # --- flour/ops/impute_models.py
    *(
        Case(
            impute_models.ImputeNearest(holes(7, 3), [0.1, 0.2, 0.3], 2, closeness=near),
            (Vector(3, d),),
            draw=missing,
            tolerance=1e-13,
            why=REASSOCIATES,
            label=f"-{near}",
        )
        for d in WIDTHS
        for near in (False, True)
    ),
    *(
        Case(
            impute_models.ImputeInTurn(
                [0, 2, 0], normal(3, 3), normal(3), [-9, -0.5, -9.0], [9, 0.5, 9.0]
            ),
            (Vector(3, d), Vector(3, d)),
            draw=sometimes_missing,
            tolerance=1e-13,
            why=REASSOCIATES,
        )
        for d in WIDTHS
    ),
]

CASES += cases_tensors.CASES

__all__ = ["CASES", "Case", "Text"]
