"""Tokens, rates and crowds: who is refused, with what, and that nothing is told."""

from __future__ import annotations

import os
from hashlib import sha256
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flour.core.errors import ParameterError
from runtime.http.guard import guards
from runtime.http.guard.guards import DAY, Budget, Rates, Sender, TokenFile
from runtime.http.wire.interfaces import Need
from runtime.http.wire.messages import Request

ALICE, BOB = "a" * 20, "b" * 20
DIGEST, WORDS = sha256(ALICE.encode()).hexdigest(), "predict,read,change"


def ask(path: str = "/v2/models", token: str | None = None, peer: str = "10.0.0.1") -> Request:
    headers = {} if token is None else {b"authorization": f"Bearer {token}".encode()}
    request = Request("GET", path, "", headers, b"")
    request.peer = peer
    return request


def anybody(request: Request) -> guards.Sender:
    return guards.Sender(request.peer, known=False)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "tokens"
    path.write_text(f"# ours\nalice {ALICE}\n\nbob\t{BOB}\n", encoding="utf-8")
    return path


class TestTokens:
    def test_known_clients_come_in(self, file: Path) -> None:
        tokens = TokenFile(file)
        assert tokens(ask(token=ALICE)) is None
        assert tokens.client(ask(token=BOB)) == ("bob", True)

    @pytest.mark.parametrize("token", [None, "", "wrong", ALICE[:-1], ALICE + "a", "é" * 9])
    def test_others_stay_outside(self, file: Path, token: str | None) -> None:
        refused = TokenFile(file)(ask(token=token))
        assert refused is not None
        assert refused.status == 401
        assert dict(refused.headers) == {"WWW-Authenticate": "Bearer"}
        assert ALICE.encode() not in refused.body
        assert str(file).encode() not in refused.body

    def test_a_pipe_is_not_waited_for(self, file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(guards, "_CHECK_SECONDS", 0.0)
        tokens = TokenFile(file)
        file.unlink()
        os.mkfifo(file)
        assert tokens(ask(token=ALICE)) is None, "the former tokens stay valid"
        with pytest.raises(ParameterError, match="not a file of tokens") as refused:
            TokenFile(file)
        assert refused.value.found == "not a regular file"

    @pytest.mark.parametrize(
        ("lines", "what", "hint"),
        [
            (f"alice {ALICE} predict\nbob {ALICE}", "line 2 has this token, for another", "remove"),
            (f"bob {ALICE}\nbob {ALICE}", "line 2 has this token, for this", "make another token"),
            (f"bob {ALICE}\nbob {ALICE} read", "other rights or models in line 2", "the same in"),
            (f"bob {ALICE} read a\nbob {BOB} read b", "other rights or models in line 2", "same"),
        ],
    )
    def test_lines_at_odds_are_told_by_their_numbers(
        self, file: Path, lines: str, what: str, hint: str
    ) -> None:
        """With what to do, and without a token."""
        file.write_text(f"# clients\n{lines}\n")
        with pytest.raises(ParameterError, match=what) as refused:
            TokenFile(file)
        assert (refused.value.where, refused.value.found) == (f"{file}:3", "bob")
        assert hint in str(refused.value.hint)
        assert not any(token in str(refused.value) for token in (ALICE, BOB))

    def test_other_schemes_are_not_known(self, file: Path) -> None:
        def said(what: str) -> Request:
            return Request("GET", "/v2/models", "", {b"authorization": what.encode()}, b"")

        assert TokenFile(file)(said(f"Basic {ALICE}")) is not None
        assert TokenFile(file)(said(f"bearer   {ALICE} ")) is None

    def test_health_is_open(self, file: Path) -> None:
        tokens = TokenFile(file)
        for path in ("/v2/health/live", "/v2/health/ready/"):
            assert tokens(ask(path)) is None
        assert tokens(ask("/v2/health/live/../models")) is not None

    def test_anonymous_clients_where_they_may(self, file: Path) -> None:
        tokens = TokenFile(file, required=False)
        assert tokens(ask()) is None
        assert tokens.client(ask()) == ("10.0.0.1", False)
        assert tokens(ask(token="wrong")) is not None

    @pytest.mark.parametrize(
        "text",
        [
            *("alice", f"alice {ALICE} x", "alice short", "\udc80", f"alice {ALICE} read a* b"),
            *(f"alice {ALICE}\nalice {BOB} read", f"alice {ALICE}\nalice {BOB} {WORDS} a"),
            *(f"alice {BOB} {ALICE}", f"alice {BOB} read,{ALICE}"),
            *(f"alice {ALICE} read ,", f"alice {ALICE} read a,,b", f"alice {ALICE} read, a"),
            *("alice sha256:abc", f"alice sha256:{'g' * 64}", "alice cert:"),
            *("alice cert:x\nbob cert:x", f"alice {ALICE}\nbob sha256:{DIGEST}"),
        ],
    )
    def test_a_wrong_file_is_refused_at_once(self, tmp_path: Path, text: str) -> None:
        path = tmp_path / "tokens"
        path.write_bytes(text.encode("utf-8", "surrogateescape"))
        with pytest.raises(ParameterError) as caught:
            TokenFile(path)
        assert ALICE not in str(caught.value)
        with pytest.raises(ParameterError, match="cannot be read"):
            TokenFile(tmp_path / "none")


class TestKindsOfClients:
    """Digests, certificates, several tokens of one client, and scopes of models."""

    def test_a_digest_is_as_good_as_its_token(self, file: Path) -> None:
        file.write_text(f"alice sha256:{DIGEST.upper()}\n")
        tokens = TokenFile(file)
        assert tokens.client(ask(token=ALICE)) == ("alice", True)
        for wrong in (DIGEST, f"sha256:{DIGEST}", f"sha256:{DIGEST.upper()}"):
            assert not tokens.client(ask(token=wrong)).known

    def test_a_certificate_is_as_good_as_a_token(self, file: Path) -> None:
        file.write_text(f"shop cert:shop.example.com predict\nbob {BOB}\n")
        tokens = TokenFile(file, need_of=lambda _: Need("predict", None, scoped=False))

        def shown(*names: str, token: str | None = None) -> Request:
            request = ask(token=token)
            request.certified = names
            return request

        assert tokens(shown("other", "shop.example.com")) is None
        assert tokens.client(shown("shop.example.com")) == ("shop", True)
        assert tokens.client(shown("shop.example.com", token=BOB)) == ("bob", True)
        for refused in (
            *(shown(), shown("shop"), shown("SHOP.example.com"), shown("")),
            *(shown(token="cert:shop.example.com"), shown("shop.example.com", token="x")),
        ):
            answer = tokens(refused)
            assert answer is not None
            assert answer.status == 401

    def test_a_client_has_two_tokens_while_it_changes(self, file: Path) -> None:
        file.write_text(f"alice {ALICE} read a*\nalice {BOB} read a*\n")
        tokens = TokenFile(file)
        assert [tokens.client(ask(token=each)).name for each in (ALICE, BOB)] == ["alice"] * 2

    @pytest.mark.parametrize(
        ("need", "allowed"),
        [
            (Need("predict", "fraud", scoped=False), True),
            (Need("predict", "fraud-2@7", scoped=False), True),
            (Need("read", "churn", scoped=False), True),
            *((Need("read", name, scoped=True), False) for name in ("Fraud", "churn2", "a", "@")),
            (Need("change", "fraud", scoped=False), False),
            (Need("read", None, scoped=True), True),
            (Need("read", None, scoped=False), False),
            (Need("", None, scoped=True), True),
        ],
    )
    def test_a_scope_is_patterns_of_names(self, file: Path, need: Need, *, allowed: bool) -> None:
        file.write_text(f"alice {ALICE} predict,read fraud*,churn\nbob {BOB}\n")
        tokens = TokenFile(file, need_of=lambda _: need)
        refused = tokens(ask(token=ALICE))
        assert (refused is None) is allowed
        assert allowed or (refused is not None and refused.status == 403)
        assert tokens(ask(token=BOB)) is None


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


class TestRates:
    def test_the_known_may_ask_more(self, file: Path) -> None:
        clock = Clock()
        rates = Rates(TokenFile(file).client, anonymous=2, known=10, clock=clock)
        assert [rates(ask()) is None for _ in range(3)] == [True, True, False]
        assert [rates(ask(token=ALICE)) is None for _ in range(11)] == [True] * 10 + [False]
        assert rates(ask(token=BOB)) is None
        assert rates(ask(peer="10.0.0.2")) is None
        refused = rates(ask())
        assert refused is not None
        assert (refused.status, dict(refused.headers)) == (429, {"Retry-After": "1"})
        clock.now = 0.5
        assert rates(ask()) is None
        assert rates(ask()) is not None

    def test_slow_rates_say_when(self) -> None:
        rates = Rates(anybody, anonymous=0.1, clock=Clock())
        assert rates(ask()) is None
        refused = rates(ask())
        assert refused is not None
        assert dict(refused.headers) == {"Retry-After": "10"}
        assert rates(ask("/v2/health/ready")) is None

    @given(
        times=st.lists(st.floats(0, 3), min_size=1, max_size=60),
        rate=st.floats(0.5, 20),
        burst=st.floats(0.1, 3),
    )
    def test_never_more_than_the_rate(self, times: list[float], rate: float, burst: float) -> None:
        clock = Clock()
        rates = Rates(anybody, anonymous=rate, burst=burst, clock=clock)
        passed = 0
        for wait in times:
            clock.now += wait
            passed += rates(ask()) is None
        assert passed <= max(1.0, rate * burst) + rate * clock.now + 1e-6

    def test_many_clients_take_bounded_room(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(guards, "_CLIENTS", 10)
        rates = Rates(anybody, anonymous=1, clock=Clock())
        for n in range(50):
            assert rates(ask(peer=str(n))) is None
        assert len(rates._buckets) == 10


def posted(peer: str, body: bytes) -> Request:
    request = Request("POST", "/predict/m", "", {}, body)
    request.peer = peer
    return request


def test_repeated_questions_cost_nothing_and_a_day_ends() -> None:
    now = [0.0]
    budget = Budget(lambda each: Sender(each.peer, known=False), 100, lambda: now[0])
    assert budget(posted("a", b"x" * 60)) is None
    assert all(budget(posted("a", b"x" * 60)) is None for _ in range(9))
    refused = budget(posted("a", b"y" * 60))
    assert refused is not None
    assert refused.status == 429
    assert dict(refused.headers)["Retry-After"] == str(int(DAY))
    assert budget(posted("a", b"z" * 40)) is None
    assert budget(posted("b", b"y" * 60)) is None
    now[0] = DAY
    assert budget(posted("a", b"y" * 60)) is None
