"""Nodes that an earlier model had as well become the same operators, as long as those are there."""

from __future__ import annotations

import gc
import weakref
from typing import Any

import numpy as np
import pytest
from onnx import helper

from flour.language.flow import Flow
from flour.onnx import import_model
from flour.onnx.model import Attributes
from flour.onnx.reading import LONG, read_model
from flour.ops.ngrams import WordNgrams
from tests.onnx_parts import FLOAT, STRING, model, node

WORDS = [f"word{place}" for place in range(2 * LONG)]
TEXTS = np.array([["word1 word2 word2"], ["word3 nothing"]], object)


def counts(factor: float = 1.0, words: list[str] = WORDS, **tokens: Any) -> Any:
    """The weighed words of a document."""
    width = len(words)
    split: dict[str, Any] = {"mark": 0, "mincharnum": 1, "pad_value": "#", "separators": [" "]}
    pool: dict[str, Any] = {"pool_strings": words, "ngram_counts": [0]}
    lengths: dict[str, Any] = {"min_gram_length": 1, "max_gram_length": 1, "max_skip_count": 0}
    weights = [factor * (place + 1) for place in range(width)]
    made = model(
        [
            node("Tokenizer", ["X"], ["T"], "split", domain="com.microsoft", **(split | tokens)),
            node(
                "TfIdfVectorizer",
                ["T"],
                ["Y"],
                "weigh",
                **pool,
                **lengths,
                mode="TFIDF",
                ngram_indexes=list(range(width)),
                weights=weights,
            ),
        ],
        [("X", STRING, [None])],
        [("Y", FLOAT, [None, width])],
    )
    made.opset_import.append(helper.make_opsetid("com.microsoft", 1))
    return made


def dictionary(flow: Flow) -> WordNgrams:
    """The operator that counts."""
    (found,) = [item.op for item in flow.nodes() if isinstance(item.op, WordNgrams)]
    return found


def answers(made: Any) -> Any:
    """What the model's program makes of the texts."""
    program = import_model(made, native_only=True)
    return program.run(program.flow.reference, {"X": TEXTS[:, 0]})["Y"]


def test_an_equal_node_becomes_the_same_operators() -> None:
    first, again = (import_model(counts(), native_only=True) for _ in range(2))
    assert dictionary(first.flow) is dictionary(again.flow)
    assert first.flow.outputs == again.flow.outputs
    want = np.zeros(len(WORDS))
    want[[1, 2]] = 2, 6
    np.testing.assert_array_equal(answers(counts())[0], want)


def test_another_weight_word_or_pad_is_another_operator() -> None:
    kept = import_model(counts(), native_only=True)
    np.testing.assert_array_equal(answers(counts(2.0)), 2 * answers(counts()))
    other = import_model(counts(words=[*WORDS[:-1], "last"]), native_only=True)
    assert dictionary(other.flow) != dictionary(kept.flow)
    # The pad value is one of the words: that could be told apart, and is not native.
    with pytest.raises(Exception, match="filled up with"):
        import_model(counts(pad_value="word1"), native_only=True)
    # A word may have spaces in it: words alone can still be counted.
    spaced = import_model(counts(separators=["x"]), native_only=True)
    assert dictionary(spaced.flow) == dictionary(kept.flow)


def test_each_program_knows_its_own_places() -> None:
    import_model(counts(), native_only=True)
    kept = import_model(counts(), native_only=True)
    program = import_model(counts(), native_only=True)  # from another line
    first, last = (each.flow.origins() for each in (kept, program))
    places = {
        item.op.name: ({place.line for place in first[item]}, {place.step for place in last[item]})
        for item in program.flow.nodes()
    }
    lines = {place.line for found in last.values() for place in found}
    assert len(lines) == 1
    for name in ("WordNgrams", "Multiply"):
        assert places[name][0].isdisjoint(lines)
        assert places[name][1] == {"TfIdfVectorizer 'weigh'"}


def test_operators_are_not_kept_for_it() -> None:
    program = import_model(counts(3.0), native_only=True)
    known = weakref.ref(dictionary(program.flow))
    del program
    gc.collect()
    assert known() is None
    assert len(answers(counts(3.0))) == 2


def test_long_attributes_are_read_when_somebody_asks() -> None:
    tokens, weigh = read_model(counts()).graph.nodes
    found = weigh.attributes
    assert isinstance(found, Attributes)
    names = {item.name for item in counts().graph.node[1].attribute}
    assert set(found) == names
    assert len(found) == len(names)
    long = {"pool_strings", "ngram_indexes", "weights"}
    assert len(found.settled()) == len(names - long)
    assert found["pool_strings"] == tuple(WORDS)
    assert found["pool_strings"] is found["pool_strings"]
    assert found.get("weights") == tuple(float(place + 1) for place in range(len(WORDS)))
    assert found.get("nothing", 5) == 5
    assert not weigh.graphs()
    assert tokens.attributes["separators"] == (" ",)
