"""The bill of materials of a release, by the schema of CycloneDX."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.house import ROOT

sys.path.insert(0, str(ROOT / "scripts"))
import bill

pytestmark = pytest.mark.integrations


def test_the_bill_fits_its_schema(tmp_path: Path) -> None:
    validation = pytest.importorskip("cyclonedx.validation.json")
    schema = pytest.importorskip("cyclonedx.schema")
    build = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(tmp_path)]
    subprocess.run(build, cwd=ROOT, check=True, capture_output=True, timeout=300)
    (wheel,) = tmp_path.glob("*.whl")
    made = bill.bill_of_materials(wheel, ROOT, "0" * 40, 1_700_000_000).decode()
    validator = validation.JsonStrictValidator(schema.SchemaVersion.V1_6)
    assert not list(validator.validate_str(made, all_errors=True) or ())
    assert validator.validate_str(made.replace('"library"', '"shelf"'))
