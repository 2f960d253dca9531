"""Pictures of the documentation, made from the running product, so that they do not age.

    scripts/pictures           writes docs/pictures/*.png

A headless Chromium takes them of a server over sample models that have been asked, of the pages
that it and `pretzel explain` write, and of the board for Grafana as it stands in its file.
"""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
import tempfile
from html import escape
from pathlib import Path
from urllib.request import urlopen

import numpy as np
import pandas as pd
from sklearn.compose import make_column_transformer
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler

import pretzel

ROOT = Path(__file__).resolve().parent.parent
PICTURES = ROOT / "docs" / "pictures"
MOST_BYTES = 100_000
#: The steps from a model's file to an answer, and what happens there.
WAY = (
    ("file", "estimator, booster, ONNX"),
    ("program", "typed, rewritten, fused"),
    ("plan", "native code, parameters"),
    ("runtime", "names, versions, routes"),
    ("answer", "Python, HTTP, SQL, files"),
)
#: The browser as Debian and others call it.
BROWSERS = ("chromium", "chromium-browser", "google-chrome")


def main() -> int:
    """Take all pictures."""
    browser = next(filter(None, map(shutil.which, BROWSERS)), None)
    if browser is None:
        print("pictures: install chromium first", file=sys.stderr)
        return 4
    PICTURES.mkdir(exist_ok=True)
    (PICTURES / "way.svg").write_text(_way(), encoding="utf-8")
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder)
        rows = _models(place / "models")
        with pretzel.serve(place / "models", port=0) as server:
            _ask(server.url, rows)
            _take(browser, server.url, "status", 1280, 480)
            _take(browser, f"{server.url}/explain/fraud", "explain", 1180, 640)
        model = pretzel.load(place / "models" / "churn" / "1" / "churn.pretzel")
        for name, html, width, height in (
            ("shares", model.attribute(rows[:1]).to_html(), 480, 200),
            ("board", _board(place), 900, 600),
            ("progress", _progress(place, rows), 900, 230),
        ):
            page = place / f"{name}.html"
            page.write_text(html, encoding="utf-8")
            _take(browser, page.as_uri(), name, width, height)
    return 0


def _way() -> str:
    """The diagram of the way from a model's file to an answer."""
    parts, width = [], 168
    for place, (title, below) in enumerate(WAY):
        x = 8 + place * (width + 34)
        parts.append(
            f'<rect x="{x}" y="8" width="{width}" height="64" rx="8" fill="#f4f1ea" '
            f'stroke="#8a6d3b"/><text x="{x + width / 2}" y="36" font-size="16" '
            f'font-weight="bold">{title}</text><text x="{x + width / 2}" y="57">{below}</text>'
        )
        if place:
            parts.append(f'<path d="M{x - 30} 40h22m-7 -6l8 6l-8 6" fill="none" stroke="#555"/>')
    whole = 16 + len(WAY) * width + (len(WAY) - 1) * 34
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {whole} 80" font-size="12" '
        f'font-family="sans-serif" text-anchor="middle">{"".join(parts)}</svg>\n'
    )


def _models(folder: Path) -> pd.DataFrame:
    """Put three models into a folder, one of them watched; the rows of their training."""
    rng = np.random.default_rng(0)
    rows = pd.DataFrame(
        {
            "age": rng.normal(42, 11, 4000).round(),
            "income": rng.gamma(2, 20, 4000).round(1),
            "city": rng.choice(["Oslo", "Rome", "Graz"], 4000),
        }
    )
    target = np.where(rows["age"] + rng.normal(0, 8, 4000) > 45, "yes", "no")
    encoded = (OneHotEncoder(sparse_output=False), ["city"])
    linear = make_column_transformer((StandardScaler(), ["age", "income"]), encoded)
    plain = make_column_transformer(encoded, remainder="passthrough")
    trees = HistGradientBoostingClassifier(max_iter=20, random_state=0)
    for name, version, pipeline in (
        ("churn", 1, make_pipeline(linear, LogisticRegression())),
        ("churn", 2, make_pipeline(linear, LogisticRegression(C=0.1))),
        ("fraud", 1, make_pipeline(plain, trees)),
    ):
        path = folder / name / str(version) / f"{name}.pretzel"
        path.parent.mkdir(parents=True)
        model = pretzel.compile(pipeline.fit(rows, target), verify=rows[:50]).wait()
        model.save(path, training=rows)
    (folder / "fraud" / "notes.toml").write_text("[watch]\ndrift = true\n")
    return rows


def _ask(url: str, rows: pd.DataFrame) -> None:
    """Ask the models, one of them about rows that are older than those of the training."""
    for row in rows[:200].to_dict("records"):
        urlopen(f"{url}/predict/churn", json.dumps(row).encode()).close()
    older = rows.assign(age=rows["age"] + 15)
    for start in range(0, 2000, 20):
        block = older[start : start + 20].to_json(orient="records")
        urlopen(f"{url}/predict/fraud", block.encode()).close()


def _board(place: Path) -> str:
    """The board for Grafana as its file has it: sections and the panels in them."""
    subprocess.run(
        [sys.executable, "-m", "runtime", "dashboard", "--into", str(place)],
        check=True,
        capture_output=True,
    )
    board = json.loads((place / "pretzel.json").read_text())
    parts = []
    for panel in board["panels"]:
        grid = panel["gridPos"]
        kind = "h3" if panel["type"] == "row" else "div"
        style = f"grid-column: {grid['x'] + 1} / span {grid['w']}"
        about = escape(panel.get("description", "").split(". ")[0])
        title = escape(panel.get("title", ""))
        parts.append(f'<{kind} style="{style}"><b>{title}</b><br>{about}</{kind}>')
    css = (
        "body{font:12px sans-serif;display:grid;grid-template-columns:repeat(24,1fr);gap:6px}"
        "div{border:1px solid #bbb;border-radius:3px;padding:6px}h3{margin:4px 0}"
    )
    return f"<!doctype html><meta charset=utf-8><style>{css}</style>" + "".join(parts)


def _progress(place: Path, rows: pd.DataFrame) -> str:
    """A terminal in which `pretzel predict` goes through a file, with its progress bar."""
    pd.concat([rows] * 60).to_csv(place / "rows.csv", index=False)
    command = "pretzel predict models/churn rows.csv --output answers.csv"
    typed = f"{sys.executable} -m runtime {command.partition(' ')[2]}"
    done = subprocess.run(
        ["script", "-qec", typed, "/dev/null"],
        cwd=place,
        check=True,
        capture_output=True,
        text=True,
    )
    drawn = [line for line in done.stdout.replace("\n", "\r").split("\r") if line.strip()]
    bars = [line for line in drawn if "%" in line and "100%" not in line]
    shown = escape("\n".join([f"$ {command}", _bare(bars[len(bars) // 2]), _bare(drawn[-1])]))
    css = (
        "body{margin:0;background:#1c1c1c;color:#ddd}"
        "pre{font:15px monospace;padding:4px 20px;line-height:1.6}"
    )
    return f"<!doctype html><meta charset=utf-8><style>{css}</style><pre>{shown}"


def _bare(line: str) -> str:
    """A line of a terminal without the codes that colour and erase."""
    return re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", line).strip()


def _take(browser: str, address: str, name: str, width: int, height: int) -> None:
    path = PICTURES / f"{name}.png"
    with tempfile.TemporaryDirectory() as profile:
        subprocess.run(
            [
                *(browser, "--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars"),
                f"--user-data-dir={profile}",
                f"--window-size={width},{height}",
                f"--screenshot={path}",
                address,
            ],
            check=True,
            capture_output=True,
            timeout=120,
        )
    size = path.stat().st_size
    assert size <= MOST_BYTES, f"{path}: {size:,} bytes"
    print(f"{path.relative_to(ROOT)}: {size:,} bytes")


if __name__ == "__main__":
    sys.exit(main())
