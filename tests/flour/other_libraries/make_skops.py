"""Write some of the models that are kept as pickles as files of skops, too: skops.tar.xz.

    python tests/flour/other_libraries/make_skops.py

Run it twice: where imbalanced-learn is installed, and where category_encoders 2.6.3 is, with pandas
1.5, as skops cannot write what later ones have. It keeps what the other run wrote.
"""

from __future__ import annotations

import io
import pickle
import tarfile
import warnings
from pathlib import Path

FOLDER = Path(__file__).parent
PLACE = FOLDER / "skops.tar.xz"
#: The archives of pickles, and what is taken of each.
MODELS = {
    FOLDER / "models.tar.xz": ["smote"],
    FOLDER.parent / "category_encoders" / "2.6.3.tar.xz": ["Target_0_gaps", "WOE_0", "OneHot_0"],
}


def contents(place: Path) -> dict[str, bytes]:
    """The files of an archive."""
    with tarfile.open(str(place)) as archive:
        found = {one.name: archive.extractfile(one) for one in archive}
        return {name: file.read() for name, file in found.items() if file}


def main() -> None:
    """Write the archive."""
    import skops.io

    warnings.simplefilter("ignore")
    made = contents(PLACE) if PLACE.exists() else {}
    for place, names in MODELS.items():
        files = contents(place)
        for name in names:
            try:
                made[f"{name}.skops"] = skops.io.dumps(pickle.loads(files[f"{name}.pkl"]))
            except (ImportError, TypeError):  # the library, or the pandas, of the other run
                continue
    with tarfile.open(str(PLACE), "w:xz") as archive:
        for name in sorted(made):
            about = tarfile.TarInfo(name)
            about.size = len(made[name])
            archive.addfile(about, io.BytesIO(made[name]))


if __name__ == "__main__":
    main()
