"""Files that twelve versions of the libraries wrote: none answers otherwise than its version.

They are imported where none of the libraries can be; the table is in
docs/reference/coverage-versions.md.
"""

from __future__ import annotations

import json

from tests.flour.versions.compare import RIGHT, SAMPLED, archives
from tests.house import run_python

CODE = """
import json, sys
for name in ("sklearn", "scipy", "joblib", "pandas", "lightgbm", "xgboost"):
    sys.modules[name] = None
from tests.flour.versions.compare import Archive, archives
print(json.dumps({path.name: [*Archive(path).compared()] for path in archives()}))
"""


def test_files_answer_as_the_version_that_wrote_them() -> None:
    assert sum(path.stat().st_size for path in archives()) <= 3_000_000
    found = json.loads(run_python(CODE, timeout=600))
    assert len(found) >= 12
    for name, files in found.items():
        others = {file: told for file, *told in files if told[0] not in (RIGHT, SAMPLED)}
        assert not others, name
        assert len(files) >= 200
