"""What processes count for a rollout adds up, however their reports come."""

from __future__ import annotations

import json
import random
from typing import Any

import pytest

from runtime.rollout import REPORTERS, Evidence, OutcomeCounts

OWNERS = ("m@1", "m@2")
COUNTED: dict[str, Any] = {
    "id": "one",
    "owners": list(OWNERS),
    "limits": [["p99", 0.5]],
    "agreement": False,
}


def tally(**more: Any) -> OutcomeCounts:
    return OutcomeCounts(COUNTED | more, lambda: (0, 0))


@pytest.mark.parametrize("seed", range(5))
def test_reports_that_are_lost_late_or_sent_twice_count_once(seed: int) -> None:
    rng, evidence = random.Random(seed), Evidence(OWNERS)
    tallies, sent, errors = [tally() for _ in range(3)], [], 0
    for number in range(300):
        failed = rng.random() < 0.2
        errors += failed
        one = rng.choice(tallies)
        one.note(OWNERS[number % 2], rng.random(), ValueError() if failed else None, None)
        if rng.random() < 0.3:
            sent.append(json.loads(json.dumps(one.report())))
    last = [each.report() for each in tallies]
    rng.shuffle(sent)
    for each in [*sent[: len(sent) // 2], *last, *sent[len(sent) // 3 :], *last]:
        evidence.take(*each)
    found = {owner: evidence.counts(owner) for owner in OWNERS}
    assert [found[owner]["answers"].number for owner in OWNERS] == [150, 150]
    assert sum(found[owner]["errors"].total for owner in OWNERS) == errors > 0
    again = Evidence(OWNERS)
    again.take_over(json.loads(json.dumps(evidence.to_data())))
    again.take(*last[0])  # it is known already
    assert {owner: again.counts(owner) for owner in OWNERS} == found
    tallies[0].note("m@1", 0.1, None, None)  # its process has outlived the judge
    again.take(*tallies[0].report())
    assert again.counts("m@1")["answers"].number == 151


def test_processes_that_ended_long_ago_are_added_up() -> None:
    evidence = Evidence(OWNERS)
    for _ in range(REPORTERS + 20):
        one = tally()
        one.note("m@2", 0.7, None, None)
        evidence.take(*one.report())
    assert evidence.counts("m@2")["answers"].number == REPORTERS + 20
    assert evidence.counts("m@2")["p99"].total == REPORTERS + 20
    assert len(evidence.to_data()["reports"]) == REPORTERS


def test_a_value_counts_where_it_is_new_to_all_that_remember_the_request() -> None:
    evidence, one, other = Evidence(OWNERS), tally(), tally()
    one.note("m@2", 0.1, None, {"x-request-id": "r"})
    assert not evidence.tell({"sold": 1.0}, [])
    claims = [each for each in (one.claim("r", ["sold"]), other.claim("r", ["sold"])) if each]
    assert evidence.tell({"sold": 1.0}, claims)
    other.note("m@2", 0.1, None, {"x-request-id": "r"})  # the client has sent it again
    claims = [each for each in (one.claim("r", ["sold"]), other.claim("r", ["sold"])) if each]
    assert evidence.tell({"sold": 1.0}, claims)
    assert evidence.counts("m@2")["sold"].number == 1
    assert evidence.unknown == 2


def test_agreement_goes_on_where_a_comparison_began_anew() -> None:
    compared = [(0, 0)]
    one = OutcomeCounts(COUNTED | {"agreement": True}, lambda: compared[-1])
    found = []
    for counts in ((3, 4), (5, 8), (1, 2)):
        compared.append(counts)
        found.append(one.report()[2]["m@2"]["agreement"])
    assert found == [[3, 4], [5, 8], [6, 10]]
