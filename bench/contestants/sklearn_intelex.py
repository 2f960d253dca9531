"""scikit-learn with scikit-learn-intelex patched in, as its docs say: before anything else."""

from __future__ import annotations

from bench.contestants.sklearn import ScikitLearn


class Patched(ScikitLearn):
    """The same pickles, with Intel's implementations where it has one."""

    name = "sklearn_intelex"
    title = "scikit-learn + intelex"
    environment = "onedal"
    packages = ("scikit-learn-intelex", "scikit-learn", "daal", "numpy")
    settings = f"{ScikitLearn.settings}; all patched but DummyRegressor"
    workloads = ("sa", "ac", "tab", "lin")

    def start(self) -> None:
        """Patch, then import.

        scikit-learn's boosted trees begin with a DummyRegressor, and Intel's cannot be read from
        pickles that were made without it.
        """
        from sklearnex import get_patch_map, patch_sklearn

        names = [name for name in get_patch_map() if "Dummy" not in name]
        patch_sklearn(names, verbose=False)
        super().start()


CONTESTANT = Patched
