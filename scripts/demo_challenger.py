"""The end of the demonstration: a second version of a model, compared, given a share, promoted.

Everything is asked over HTTP, as an operator would with curl. An answer that is not that of the
version which the server names ends the demonstration.
"""

from __future__ import annotations

import json
import urllib.request
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

from demo_samples import Sample
from sklearn.base import clone
from sklearn.ensemble import RandomForestClassifier

import flour
import oven

NAME, CHAMPION, CHALLENGER = "orders", "orders@1", "orders@2"
#: How many requests each version of the endpoint is shown with, and the challenger's first share.
ASKED, SHARE = 300, 20
Say = Callable[[object], None]


def challenger_of(champion: Sample, models: Path) -> Sample:
    """The same table and a forest, saved as the second version; the first one answers."""
    rows = champion.rows
    pipeline = clone(champion.pipeline)
    pipeline.set_params(logisticregression=RandomForestClassifier(60, max_depth=8, random_state=0))
    pipeline.fit(rows, (rows["basket"] > 60) ^ (rows["city"] == "Oslo"))
    folder = models / NAME
    (folder / "2").mkdir()
    program = flour.from_sklearn(pipeline, rows[:5])
    oven.bake(program).save(folder / "2" / f"{NAME}.pretzel")
    (folder / "endpoint.toml").write_text(f'champion = "{CHAMPION}"\n', encoding="utf-8")
    return Sample(NAME, "the same table + a forest", pipeline, rows)


def promote(url: str, champion: Sample, challenger: Sample, say: Say) -> None:
    """Shadow, share, promotion and rollback, with what the server tells of each."""
    versions = {CHAMPION: champion, CHALLENGER: challenger}
    say(f"\n=== a challenger for {NAME}: {challenger.about}")
    server = Server(url, versions)
    server.change("PUT", "route", {"champion": CHAMPION, "shadow": CHALLENGER})
    server.told("compare")  # it counts from its first call on
    counts = server.asked()
    say(f"as a shadow: {_shares(counts)} answered; {_agreement(server.told('compare'))}")
    share = {"champion": CHAMPION, "split": {CHALLENGER: SHARE}, "header": "x-user"}
    server.change("PUT", "route", share)
    say(f"with {SHARE} % of the users: {_shares(server.asked())} answered")
    server.change("POST", "promote", {})
    say(f"promoted: {_shares(server.asked(CHALLENGER))} answered")
    server.change("POST", "rollback", {})
    say(f"rolled back: {_shares(server.asked())} answered")
    server.change("POST", "promote", {})
    server.asked(CHALLENGER)
    history = server.told("history")["changes"]
    said = ", ".join(each["action"] for each in history)
    say(f"and promoted; its history, also in {NAME}/endpoint.toml: {said}")


class Server:
    """The server as an operator sees it, and as its clients do."""

    def __init__(self, url: str, versions: dict[str, Sample]) -> None:
        self._url, self._versions = url, versions
        rows = next(iter(versions.values())).rows[:ASKED]
        self._bodies = [json.dumps(row).encode() for row in _plain(rows)]
        self._expected = {
            name: sample.pipeline.predict_proba(rows)[:, 1] for name, sample in versions.items()
        }

    def change(self, method: str, what: str, body: dict[str, Any]) -> None:
        """Change the route."""
        data = json.dumps(body).encode()
        path = f"{self._url}/v2/models/{NAME}/{what}"
        with urllib.request.urlopen(urllib.request.Request(path, data, method=method), timeout=60):
            pass

    def told(self, what: str) -> dict[str, Any]:
        """What the server says of the endpoint."""
        with urllib.request.urlopen(f"{self._url}/v2/models/{NAME}/{what}", timeout=60) as response:
            found: dict[str, Any] = json.load(response)
        return found

    def asked(self, champion: str = CHAMPION) -> Counter[str]:
        """How many users each version answered; each answer is the one of its version.

        Where there is only a champion, its name is not in the answers.
        """
        counts: Counter[str] = Counter()
        for number, body in enumerate(self._bodies):
            asked = urllib.request.Request(f"{self._url}/predict/{NAME}", body)
            asked.add_header("X-User", str(number))
            with urllib.request.urlopen(asked, timeout=60) as response:
                answer = json.load(response)["probabilities"]["true"]
                version = response.headers["X-Model-Version"] or champion
            if abs(answer - self._expected[version][number]) > 1e-9:
                raise SystemExit(f"{version} answers otherwise: {answer}")
            counts[version] += 1
        return counts


def _plain(rows: Any) -> list[dict[str, Any]]:
    """Rows as JSON has them: what is missing is null."""
    listed: list[dict[str, Any]] = json.loads(rows.to_json(orient="records"))
    return listed


def _shares(counts: Counter[str]) -> str:
    return ", ".join(f"{name} {count}" for name, count in sorted(counts.items()))


def _agreement(compared: dict[str, Any]) -> str:
    agreement = compared["outputs"]["label"]["agreement"]
    return f"{compared['pairs']} compared so far, the labels agree in {agreement:.0%}"
