"""Pages about FastAPI, Flask and Celery: what a reader does works with these themselves."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.test_pages import Reader

pytestmark = pytest.mark.integrations

#: Pages, and the packages without which their commands cannot run.
PAGES = {
    "docs/how-to/fastapi.md": ("fastapi", "uvicorn"),
    "docs/how-to/flask-celery.md": ("flask", "celery"),
    "docs/tutorials/from-fastapi.md": ("fastapi", "uvicorn"),
}


@pytest.mark.parametrize("page", PAGES)
def test_the_page_works(page: str, tmp_path: Path) -> None:
    for package in PAGES[page]:
        pytest.importorskip(package)
    reader = Reader(page, tmp_path)
    try:
        reader.python()
        reader.files()
        reader.commands()
    finally:
        reader.close()
