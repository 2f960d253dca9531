"""What calls take, as measured: on their callers' threads, and by executors."""

from __future__ import annotations

from runtime.service.version import ModelVersion
from scheduler import CostModel, Estimate

#: What a call takes that was never measured: for itself, and for the bytes that it touches.
BASE_SECONDS = 3e-6
BYTES_A_SECOND = 2e10
_SIZES = 16
#: From the time of executors nothing is concluded about calls of more than this many times as many
#: rows.
_FARTHER = 16


class Costs:
    """The time of calls by version and size.

    The same work takes longer on an executor, which is measured while others run too.
    """

    def __init__(self) -> None:
        self.inline, self.batch = CostModel(), CostModel()

    def observe(self, version: ModelVersion, rows: int, seconds: float) -> None:
        """Note the time of a call on its caller's thread."""
        self.inline.observe(_key(version, rows), rows, seconds)

    def estimate(self, version: ModelVersion, rows: int) -> Estimate | None:
        """What a call should take: measured near its size, else worked out, else far from it.

        A call of one row is mostly overhead and says nothing of a thousand rows, so executors'
        times count for up to _FARTHER times as many rows. One measurement may have been slow for
        reasons that have gone, so the least counts.
        """
        near = self.inline.estimate(_key(version, rows), rows)
        batch = self.batch.estimate(version.owner, rows, farther=_FARTHER)
        if near is not None:
            return near if batch is None else min(near, batch)
        if batch is not None:
            return batch
        work = version.learned.row_work
        if work is None:
            return None
        if version.grows:  # its code says nothing of texts; one is about as good as another
            return self.inline.estimate(_key(version, 1), rows)
        seconds = BASE_SECONDS + rows * work / BYTES_A_SECOND
        return Estimate(seconds, seconds / max(rows, 1), 0)

    def forget(self, owner: str) -> None:
        """Forget a version that has gone, after its last call."""
        self.batch.forget(owner)
        for size in range(_SIZES):
            self.inline.forget((owner, size))


def _key(version: ModelVersion, rows: int) -> tuple[str, int]:
    """Calls of about the same size have the same key: within a factor of four."""
    return version.owner, min(rows.bit_length() // 2, _SIZES - 1)
