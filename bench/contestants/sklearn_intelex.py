"""scikit-learn with scikit-learn-intelex patched in, as its docs say: before anything else."""

from __future__ import annotations

from bench.contestants.sklearn import ScikitLearn


class Patched(ScikitLearn):
    """The same pickles, with Intel's implementations where it has one."""

    name = "sklearn_intelex"
    title = "scikit-learn + intelex"
    environment = "onedal"
    packages = ("scikit-learn-intelex", "scikit-learn", "daal", "numpy")
    workloads = ("ac", "lin")

    def start(self) -> None:
        """Patch, then import."""
        from sklearnex import patch_sklearn

        patch_sklearn(verbose=False)
        super().start()


CONTESTANT = Patched
