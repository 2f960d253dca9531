"""`pretzel cluster` without Ray, and the numbers of replicas that it understands."""

from __future__ import annotations

from importlib.util import find_spec

import pytest

from runtime.cli.cluster import scale
from runtime.cli.errors import ArgumentError
from runtime.cluster.serving import Scale
from tests.runtime.cli.conftest import Pretzel


@pytest.mark.skipif(find_spec("ray") is not None, reason="Ray is installed")
@pytest.mark.parametrize("words", [("up", "."), ("status",), ("down",)])
def test_without_ray_it_says_how_to_get_it(pretzel: Pretzel, words: tuple[str, ...]) -> None:
    ran = pretzel("cluster", *words)
    assert ran.code == 4
    assert "pretzel-runtime[cluster]" in ran.err


def test_numbers_of_replicas() -> None:
    assert scale("3", 9) == Scale(3, 3)
    assert scale("0..8", 9) == Scale(0, 8)
    assert scale("auto", 9) == Scale(1, 9)
    with pytest.raises(ArgumentError, match="auto"):
        scale("many", 9)
    with pytest.raises(ArgumentError, match="auto"):
        scale("8..2", 9)
