"""Kept answers are found by their ids, and computed again bit for bit."""

from __future__ import annotations

import errno
import os
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from scipy.sparse import csr_matrix

import flour
import oven
from flour import Flow
from flour.core.errors import InputError, ParameterError
from flour.core.sparse import Sparse
from runtime import Runtime
from runtime.errors import BadCall, LostPlan, OutputInUse, UnknownEndpoint
from runtime.http import Server, ServerSettings
from runtime.provenance import AnswerLog, Why
from runtime.provenance.log import read_record
from runtime.provenance.values import packed, unpacked
from tests.house import at_most, until
from tests.runtime.http.client import Client

EXECUTORS = 1

ROWS = np.random.default_rng(0).normal(size=(40, 4))


def scored(seed: int) -> Flow:
    weights = np.random.default_rng(seed).normal(size=4)
    return flour.outputs(score=flour.vector("x", 4).linear_regressor(weights, 0.1))


def text_scored(factor: float) -> Flow:
    row = flour.record(customer=flour.text, amount=float)
    words = row["customer"].tokenize().word_ngrams(["nobody"], 1, 1)[0]
    return flour.outputs(score=row["amount"] * factor + words * 0.0)


def id_of(answers: Any) -> Any:
    return answers.id


def asked(runtime: Runtime) -> list[Any]:
    """Answers of every form of a call."""
    ways = [runtime.predict("f", row) for row in ROWS[:10]]
    ways += [runtime.predict("f", ROWS), runtime.predict("f", ROWS.tolist())]
    ways += [runtime.predict("f", {"x": ROWS[0]}, outputs="score")]
    ways += [runtime.submit("f", ROWS[3]).result(), runtime.predict("f", ROWS, engine="batch")]
    return [*ways, *runtime.predict_batch("f", [ROWS[:20], ROWS[20:]])]


def test_answers_are_recomputed_after_a_restart_and_switches(tmp_path: Path) -> None:
    kept: list[Any] = []
    with Runtime() as runtime:
        for seed in (1, 2, 3):
            runtime.register("f", scored(seed), background=False)
            if seed == 1:
                runtime.keep("f", tmp_path)
            kept += asked(runtime)
        kept.append(runtime.predict("f@1", ROWS[0]))
        runtime.unregister("f", 1)
        assert all(runtime.why(each.id).agrees() for each in kept)
    with Runtime() as runtime:
        runtime.register("f", scored(9), background=False)
        with runtime.keep("f", tmp_path) as keeper:
            assert len(keeper) == len(kept)
            for each in kept:
                why: Why = runtime.why(each.id)
                assert why.agrees()
                assert packed(why.answers) == packed(dict(each))
            assert {runtime.why(each.id).version for each in kept} == {"1", "2", "3"}


def test_a_different_answer_does_not_agree(tmp_path: Path, runtime: Runtime) -> None:
    runtime.register("f", scored(1))
    runtime.keep("f", tmp_path)
    why = runtime.why(id_of(runtime.predict("f", ROWS)))
    assert why.agrees()
    assert not why.agrees(ROWS + 1)
    scores = why.answers["score"].ravel()
    why.answers["score"] = np.nextafter(scores, 99).reshape(why.answers["score"].shape)
    assert not why.agrees()


def test_why_says_what_has_made_an_answer(tmp_path: Path, runtime: Runtime) -> None:
    notes = {"training": {"data": "sha256:12", "rows": 100}}
    runtime.register("f", scored(1), notes=notes)
    runtime.register("f", scored(2), activate=False)
    runtime.keep("f", tmp_path)
    runtime.route("f", "f@1", split={"f@2": 0.5}, header="user")
    headers = {"user": "ann", "x-request-id": "abc"}
    why = runtime.why(id_of(runtime.predict("f", ROWS[0], headers=headers)))
    assert (why.request, why.change, why.endpoint) == ("abc", 0, "f")
    assert np.array_equal(why.inputs, ROWS[0])
    first = runtime.why(id_of(runtime.predict("f@1", ROWS[0])))
    for form in ("text", "dot", "html"):
        lineage = first.lineage(form)
        assert "sha256:12" in lineage
        assert first.digest in lineage
        assert "f@1" in lineage
    assert first.plan_facts["parameters"]
    assert "test_why.py" in first.plan_facts["imported"][0]


def test_an_endpoint_that_is_not_kept_is_in_the_table(tmp_path: Path, runtime: Runtime) -> None:
    runtime.register("f", scored(1))
    keeper = runtime.keep("f", tmp_path)
    assert not {"f", "f@1"} & runtime.endpoints.routes.keys()
    assert runtime.endpoints.find("f") is runtime.endpoints.find("f@1")
    runtime.register("f", scored(2))
    keeper.close()
    keeper.close()
    assert {"f", "f@1", "f@2"} == runtime.endpoints.routes.keys()
    assert runtime.endpoints.routes["f"].version == "2"
    assert type(runtime.predict("f", ROWS[0])) is dict
    with pytest.raises(UnknownEndpoint, match="id"):
        runtime.why("nothing")


def test_a_plan_that_is_gone_is_named(tmp_path: Path, runtime: Runtime) -> None:
    runtime.register("f", scored(1))
    runtime.keep("f", tmp_path)
    why = runtime.why(id_of(runtime.predict("f", ROWS[0])))
    runtime.register("f", scored(2))
    runtime.unregister("f", 1)
    file = tmp_path / "plans" / f"{why.digest}.pretzel"
    moved = file.rename(tmp_path / "away")
    with pytest.raises(LostPlan, match=why.digest):
        why.recomputed()
    moved.rename(file)
    assert why.agrees()


def test_rows_that_are_not_kept_have_to_be_given(tmp_path: Path, runtime: Runtime) -> None:
    runtime.register("f", scored(1))
    runtime.keep("f", tmp_path, inputs=False)
    why = runtime.why(id_of(runtime.predict("f", ROWS[0])))
    assert why.inputs is None
    with pytest.raises(InputError, match="not kept"):
        why.recomputed()
    assert why.agrees(ROWS[0])


def test_a_sample_keeps_a_share(tmp_path: Path, runtime: Runtime) -> None:
    runtime.register("f", scored(1))
    keeper = runtime.keep("f", tmp_path, sample=0.25)
    found = [id_of(runtime.predict("f", row)) for row in ROWS]
    keeper.flush()
    assert len(keeper) == sum(each is not None for each in found) == 10


def test_the_callers_arrays_may_change(tmp_path: Path, runtime: Runtime) -> None:
    runtime.register("f", scored(1))
    runtime.keep("f", tmp_path)
    rows = ROWS.copy()
    answer = runtime.predict("f", rows)
    rows[:] = 0
    answer["score"][:] = 0
    assert runtime.why(id_of(answer)).agrees()


def test_answers_over_http_have_an_id(tmp_path: Path, runtime: Runtime) -> None:
    runtime.register("m", text_scored(2.0))
    runtime.keep("m", tmp_path)
    with Server(runtime, ServerSettings(port=0, max_unread=0.0)) as server:
        client = Client(server.port)
        body = {"inputs": [
            {"name": "customer", "datatype": "BYTES", "shape": [1, 1], "data": ["ann"]},
            {"name": "amount", "datatype": "FP64", "shape": [1, 1], "data": [0.1]},
        ]}  # fmt: skip
        replies = [
            client.post("/v2/models/m/infer", body, {"X-Request-Id": "abc"}),
            client.post("/v2/models/m/versions/1/infer", body),
            client.post("/predict/m", {"customer": "ann", "amount": 0.1}),
        ]
    for reply in replies:
        assert reply.status == 200, reply.body
        why = runtime.why(reply.headers["x-answer-id"])
        assert why.agrees()
        assert float(np.ravel(why.answers["score"])[0]) == 0.2
    assert runtime.why(replies[0].headers["x-answer-id"]).request == "abc"


def test_a_subject_is_erased_on_disk(tmp_path: Path, runtime: Runtime) -> None:
    runtime.register("m", text_scored(2.0))
    keeper = runtime.keep("m", tmp_path, subject="customer")
    people = ("ann-93b1", "bob-77c2", "eve-51d3")
    found = {p: runtime.predict("m", {"customer": p, "amount": 1.0}) for p in people}
    keeper.flush()
    assert b"ann-93b1" in in_files(tmp_path)
    assert keeper.erase("ann-93b1") == 1
    assert b"ann-93b1" not in in_files(tmp_path)
    assert b"bob-77c2" in in_files(tmp_path)
    with pytest.raises(UnknownEndpoint):
        runtime.why(id_of(found["ann-93b1"]))
    assert runtime.why(id_of(found["eve-51d3"])).agrees()
    assert keeper.erase("ann-93b1") == 0


def test_a_subject_is_erased_in_whichever_form_its_rows_came(tmp_path: Path) -> None:
    record = flour.record("row", {"user": flour.Scalar(), "amount": flour.Scalar()})
    frame = pd.DataFrame({"user": [17, 18], "amount": [1.0, 2.0]})
    forms: list[Any] = [{"user": 17, "amount": 1.0}, [17.0, 1.0], [[17, 1.0], [18, 2.0]]]
    forms += [frame, frame.convert_dtypes(), pa.Table.from_pandas(frame), frame.to_dict("records")]
    with Runtime() as runtime:
        runtime.register("m", flour.outputs(score=record["user"] + record["amount"]))
        keeper = runtime.keep("m", tmp_path, subject="user")
        for rows in forms:
            runtime.predict("m", rows)
        for other in (19, 1, True):
            runtime.predict("m", {"user": other, "amount": 1.0})
        assert keeper.erase(17) == len(forms)
        assert keeper.erase(1.0) == 2
        assert len(keeper) == 1
        assert not keeper.failed


@pytest.mark.parametrize("private", [(), ("customer",)])
@pytest.mark.parametrize("rows", [2, 65, 200])
def test_a_subject_of_texts_is_erased_from_frames_of_any_length(
    tmp_path: Path, rows: int, private: tuple[str, ...]
) -> None:
    columns: dict[str, Any] = {"customer": ["ann-93b1"] * rows, "amount": [1.0] * rows}
    forms = [columns, pd.DataFrame(columns), pd.DataFrame(columns).astype(object)]
    forms += [pa.table(columns), pd.DataFrame(columns).to_dict("records")]
    with Runtime() as runtime:
        runtime.register("m", text_scored(2.0), notes={"private": private})
        for number, form in enumerate(forms):
            keeper = runtime.keep("m", tmp_path / f"{number}", subject="customer")
            kept = [runtime.predict("m", form), runtime.submit("m", form).result()]
            shown = [runtime.why(id_of(each)).inputs for each in kept]
            assert all("amount" in (each[0] if isinstance(each, list) else each) for each in shown)
            assert (b"ann-93b1" in in_files(tmp_path / f"{number}")) == (not private)
            assert keeper.erase("ann-93b1") == 2
            assert b"ann-93b1" not in in_files(tmp_path / f"{number}")
            assert not keeper.failed
            keeper.close()


def in_files(folder: Path) -> bytes:
    return b"".join(path.read_bytes() for path in folder.rglob("*") if path.is_file())


def test_wrong_options_are_refused(tmp_path: Path, runtime: Runtime) -> None:
    runtime.register("f", scored(1))
    for wrong in (
        *({"sample": 0}, {"sample": True}, {"private": "show"}, {"subject": "nobody"}),
        *({"seconds": "week"}, {"seconds": -1}, {"rotate": "x"}, {"rotate": None}),
        *({"most_bytes": -5}, {"most_bytes": "1 GB"}, {"inputs": "x"}, {"samplez": 1}),
    ):
        with pytest.raises(ParameterError, match=next(iter(wrong))):
            runtime.keep("f", tmp_path, **wrong)
    with pytest.raises(ParameterError, match="folder: a directory"):
        runtime.keep("f", 5)  # type: ignore[arg-type]  # what is refused
    with pytest.raises(ParameterError, match=r"options are inputs, sample, (.|\n)*'sample'\?"):
        runtime.keep("f", tmp_path, samplez=1)
    with pytest.raises(ParameterError, match="folder: a directory to write in"):
        runtime.keep("f", "/proc/answers")
    runtime.keep("f", tmp_path)
    with pytest.raises(BadCall, match="kept already"):
        runtime.keep("f", tmp_path / "other")
    runtime.register("g", scored(2))
    with pytest.raises(OutputInUse):
        runtime.keep("g", tmp_path)


def test_threads_keep_at_once(tmp_path: Path, runtime: Runtime) -> None:
    runtime.register("f", scored(1))
    keeper = runtime.keep("f", tmp_path)
    found: list[str] = []

    def ask() -> None:
        found.extend(id_of(runtime.predict("f", row)) for row in ROWS)

    threads = [threading.Thread(target=ask) for _ in range(4)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    assert len(set(found)) == len(found) == 160
    assert all(runtime.why(each).agrees() for each in found)
    assert keeper.dropped == keeper.failed == 0


# --- the log -------------------------------------------------------------------------------------


@contextmanager
def log(folder: Path, seconds: float | None = None) -> Iterator[AnswerLog]:
    made = AnswerLog(folder, lambda record: record[:4].decode(), 4000, seconds)
    yield made
    made.close()


def record(number: int) -> tuple[str, bytes]:
    name = f"{number:04}"
    return name, name.encode() + bytes(96)


def test_the_log_is_bounded(tmp_path: Path) -> None:
    with log(tmp_path) as made:
        for number in range(1000):
            made.append([record(number)])
        assert len(in_files(tmp_path)) <= 4000 + 1200
        assert made.find("0999") == record(999)[1]
        assert made.find("0000") is None


def test_what_was_cut_off_or_damaged_is_left_out(tmp_path: Path) -> None:
    with log(tmp_path) as made:
        made.append([record(1), record(2)])
    (file,) = tmp_path.glob("*.log")
    file.write_bytes(file.read_bytes()[:-1])
    with log(tmp_path) as made:
        assert made.find("0001") == record(1)[1]
        assert made.find("0002") is None
        made.append([record(3)])
        assert made.find("0003") == record(3)[1]
        data = bytearray(file.read_bytes())
        data[20] ^= 1
        file.write_bytes(data)
        assert made.find("0001") is None


def test_old_files_go(tmp_path: Path) -> None:
    with log(tmp_path, seconds=0.0) as made:
        made.append([record(1)])
        made.expire()
        assert made.find("0001") is None
        assert in_files(tmp_path) == b""


def test_a_clock_that_is_set_back_deletes_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Files from the future stay until they are old by the clock that there is then."""
    with log(tmp_path, seconds=3600.0) as made:
        made.append([record(1)])
        made.turn()
        now = time.time()
        for shift, kept in ((-86400.0, True), (0.0, True), (86400.0, False)):
            monkeypatch.setattr("runtime.provenance.log.time.time", lambda s=shift: now + s)
            made.append([record(2)])
            assert (made.find("0001") is not None) is kept


def test_a_full_disk_hides_nothing_that_comes_later(tmp_path: Path) -> None:
    """What there was no room for is not kept, as a whole; what comes afterwards is read by all."""
    with log(tmp_path) as made:
        made.append([record(1)])
        for _ in range(3):
            with at_most(150), pytest.raises(OSError, match=r"(?i)large|space"):
                made.append([record(2), record(3)])
        assert [made.find(f"{n:04}") for n in (1, 2, 3)] == [record(1)[1], None, None]
        made.append([record(4)])
        found = read_record(tmp_path, lambda each: each.startswith(b"0004"))
        assert found == made.find("0004") == record(4)[1]


def test_a_full_disk_is_said_once_and_answers_go_on(
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
    runtime: Runtime,
) -> None:
    """An answer that could not be kept is still an answer, and later ones are kept again."""
    runtime.register("m", scored(1), background=False)
    keeper = runtime.keep("m", tmp_path)
    with monkeypatch.context() as patched:
        patched.setattr(AnswerLog, "_write", _no_room)
        lost = id_of(runtime.predict("m", ROWS[0]))
        for _ in range(4):  # each turn one call tries the disk again, under no id
            keeper.flush()
            assert {id_of(runtime.predict("m", ROWS[0])) for _ in range(3)} == {None}
    assert keeper.failed == 4
    assert keeper.dropped == 8
    assert caplog.text.count("answers of m cannot be written: No space left on device") == 3
    keeper.flush()
    with pytest.raises(UnknownEndpoint):
        runtime.why(lost)
    assert runtime.why(id_of(runtime.predict("m", ROWS[0]))).agrees()


def test_a_full_disk_ends_an_erasure_and_loses_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, runtime: Runtime
) -> None:
    """Lines that cannot be written anew stay as they were, under their ids."""
    runtime.register("m", text_scored(2.0), background=False)
    keeper = runtime.keep("m", tmp_path, subject="customer")
    rows = [{"customer": f"c{number % 3}", "amount": float(number)} for number in range(12)]
    kept = {id_of(runtime.predict("m", row)): row for row in rows}
    keeper.flush()
    with monkeypatch.context() as patched:
        patched.setattr("runtime.provenance.log.write_file", _no_room)
        with pytest.raises(BadCall, match="not all answers of this subject"):
            keeper.erase("c1")
    assert {each: runtime.why(each).inputs for each in kept} == kept
    assert keeper.erase("c1") == 4
    assert len(keeper) == 8


def test_damaged_facts_about_a_plan_are_named(tmp_path: Path, runtime: Runtime) -> None:
    runtime.register("m", scored(1), background=False)
    with runtime.keep("m", tmp_path):
        why = runtime.why(id_of(runtime.predict("m", ROWS[0])))
        (facts,) = tmp_path.glob("plans/*.json")
        facts.write_text("{", encoding="utf-8")
        with pytest.raises(LostPlan, match="damaged"):
            why.lineage()


def test_zeros_at_the_end_of_a_file_are_no_records(tmp_path: Path, runtime: Runtime) -> None:
    """A power cut leaves them, and eight of them are a length of 0 with its checksum."""
    runtime.register("m", scored(1), background=False)
    with runtime.keep("m", tmp_path):
        kept = id_of(runtime.predict("m", ROWS[0]))
    (written,) = tmp_path.glob("answers-*.log")
    with written.open("ab") as file:
        file.write(bytes(4096))
    with runtime.keep("m", tmp_path):
        later = id_of(runtime.predict("m", ROWS[1]))
        assert runtime.why(kept).agrees()
        assert runtime.why(later).agrees()


def test_answers_of_the_definitions_agree_once_code_is_there(tmp_path: Path) -> None:
    rows, weights = np.random.default_rng(5).normal(size=(2, 60, 64))
    program = flour.outputs(score=flour.vector("x", 64).linear_regressor(weights[0], 0.1))
    compiling = threading.Event()
    with ThreadPoolExecutor(1) as thread, Runtime(executors=1) as runtime:
        thread.submit(compiling.wait, 60.0)
        runtime.register("m", oven.bake(program, background=thread))
        with runtime.keep("m", tmp_path):
            kept = [id_of(runtime.predict("m", row)) for row in rows]
            compiling.set()
            runtime.wait()
            assert all(runtime.why(each).agrees() for each in kept)


def _no_room(*_: object) -> None:
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


@pytest.mark.parametrize(
    "value",
    [
        {"a": [1, 2.5, None, True, "x", float("inf")], 3: (1, b"\x00")},
        np.float32(0.1),
        np.array([["a", None], [1, 2.0]], object),
        np.array(["2020-01-01"], "M8[ns]"),
        np.arange(6, dtype=np.int16).reshape(2, 3).T,
        np.array([np.nan, -0.0]),
        np.array([], np.float64),
        np.array(["aé", "b"]),
    ],
)
def test_values_come_back_as_they_were(value: Any) -> None:
    found = unpacked(packed(value))
    assert type(found) is type(value)
    assert packed(found) == packed(value)
    if isinstance(value, np.ndarray):
        assert found.dtype == value.dtype
        assert found.shape == value.shape


def test_sparse_rows_are_kept(tmp_path: Path) -> None:
    rows = csr_matrix(np.where(ROWS > 0.5, ROWS, 0))
    for value in (rows, Sparse.from_scipy(rows)):
        found = unpacked(packed(value))
        assert type(found) is type(value)
        assert np.array_equal(found.toarray(), rows.toarray())
    program = flour.vector("x", 4, sparse=True).linear_regressor(np.ones(4), 0.1)
    with Runtime() as runtime:
        runtime.register("f", program)
        runtime.keep("f", tmp_path)
        assert runtime.why(id_of(runtime.predict("f", rows))).agrees()


def test_unknown_values_are_refused() -> None:
    with pytest.raises(InputError, match="cannot be kept"):
        packed({"x": object()})


def amounts() -> Flow:
    return flour.outputs(score=flour.record(amount=float)["amount"] * 2.0)


def test_a_closed_keeper_says_so(tmp_path: Path, runtime: Runtime) -> None:
    runtime.register("f", amounts())
    keeper = runtime.keep("f", tmp_path, subject="amount")
    answer = id_of(runtime.predict("f", {"amount": 17.0}))
    keeper.close()
    found = keeper.why(answer)
    assert found is not None
    assert found.answers == runtime.predict("f", {"amount": 17.0})
    with pytest.raises(BadCall, match="no longer kept"):
        keeper.erase(17.0)
    with runtime.keep("f", tmp_path, subject="amount") as again:
        assert again.erase(17.0) == 1


def test_what_cannot_be_erased_is_said(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with Runtime() as runtime:
        runtime.register("f", amounts())
        with runtime.keep("f", tmp_path):
            runtime.predict("f", {"amount": 17.0})
        with runtime.keep("f", tmp_path, subject="amount") as keeper:
            runtime.predict("f", {"amount": 17.0})
            assert keeper.erase(17.0) == 1
            assert "1 answers were kept without a subject" in caplog.text
            runtime.register("f", flour.outputs(y=flour.record(z=float)["z"]))
            for _ in range(3):
                runtime.predict("f", {"z": 1.0})
            keeper.flush()
            assert len(keeper) == 1
            assert keeper.failed == 3
    assert caplog.text.count("has no column 'amount', by which they are erased") == 1


def test_a_lineage_has_three_forms(tmp_path: Path, runtime: Runtime) -> None:
    runtime.register("f", amounts())
    with runtime.keep("f", tmp_path):
        why = runtime.why(id_of(runtime.predict("f", {"amount": 17.0})))
    with pytest.raises(ParameterError, match="no such form"):
        why.lineage("pdf")


@pytest.mark.parametrize("change", ["upgrade", "replace", "unregister"])
def test_blocks_of_one_call_are_of_one_version(
    tmp_path: Path, change: str, runtime: Runtime
) -> None:
    """Keeping answers changes nothing of which version gives them."""
    runtime.register("f", scored(1), background=False)
    with runtime.keep("f", tmp_path):
        blocks = runtime.predict_batch("f", [ROWS] * 12)
        first = next(blocks)
        if change == "unregister":
            runtime.unregister("f")
        else:
            version = 1 if change == "replace" else 2
            runtime.register("f", scored(2), version, replace=True, background=False)
        for each in blocks:
            np.testing.assert_array_equal(each["score"], first["score"])


def test_a_folder_that_lost_its_salt_is_refused_where_answers_are_erased(tmp_path: Path) -> None:
    """With another salt no answer that is there would be found by its subject."""
    row = {"customer": "ann", "amount": 1.0}
    for damage in (Path.unlink, lambda salt: salt.write_bytes(b"")):
        folder = tmp_path / getattr(damage, "__name__", "cut").strip("<>")
        with Runtime(executors=1) as runtime:
            runtime.register("m", text_scored(2.0), background=False)
            runtime.keep("m", folder, subject="customer").close()
            runtime.keep("m", folder, subject="customer").close()  # an empty folder is no loss
            with runtime.keep("m", folder, subject="customer"):
                kept = id_of(runtime.predict("m", row))
            salt = (folder / "salt").read_bytes()
            damage(folder / "salt")
            runtime.keep("m", folder).close()  # without a subject, which makes no other salt
            with pytest.raises(BadCall, match="salt"):
                runtime.keep("m", folder, subject="customer")
            (folder / "salt").write_bytes(salt)
            with runtime.keep("m", folder, subject="customer") as keeper:
                assert runtime.why(kept).agrees()
                assert keeper.erase("ann") == 1


@pytest.mark.parametrize("inline", [True, False])
def test_answers_of_shadows_are_not_kept(tmp_path: Path, runtime: Runtime, *, inline: bool) -> None:
    versions = [runtime.register("f", scored(seed), background=False) for seed in (1, 2)]
    runtime.route("f", versions[0], shadow=versions[1], inline=inline)
    with runtime.keep("f", tmp_path):
        before = int(id_of(runtime.predict("f", ROWS)).rpartition("-")[2])
        until(lambda: runtime.routes.shadow_stats()[0].asked == 1)
        assert int(id_of(runtime.predict("f", ROWS[0])).rpartition("-")[2]) == before + 1
        assert id_of(runtime.predict("f@2", ROWS[0])) is not None, "it was asked by address"
