"""Plans of programs that this machine has baked before: their images, in the code cache.

    image = ProgramImage(flow, exact=False)
    image.plan(background=None)         # the plan; None where the program has to be baked
    image.keep(plan)                    # writes the image once the plan's code is there

The key is the program's digest, so that it does not matter which importer made the program, nor
when. A plan that comes out of an image is rewritten and cut into stages only when that is looked
at: see oven.plans.image.
"""

from __future__ import annotations

import os
from contextlib import suppress
from functools import partial
from weakref import ref

from flour.core.errors import FlourError
from flour.language.flow import Flow
from objectstore import Archive, StoreError, combine
from oven.plans import image_cache
from oven.plans.background import Background
from oven.plans.image import PlanImage, image_of
from oven.plans.plan import Plan, restore

#: False turns these images off. Tests bake every program.
KEPT = [True]


class ProgramImage:
    """The place at which the plan of a program is, or would be, kept."""

    def __init__(self, flow: Flow, *, exact: bool) -> None:
        self._flow, self._exact = flow, exact
        without = os.environ.get("PRETZEL_WITHOUT", "")
        about = combine("program", flow.digest, repr(exact), without)
        self._entry = image_cache.look(about.encode("ascii"))

    def plan(self, *, background: Background) -> Plan | None:
        """The plan, if it is there with its machine code."""
        if self._entry.image is None:
            return None
        try:
            restored = PlanImage.from_bytes(self._entry.image).restore()
        except (LookupError, StoreError):
            return None
        flow, exact = self._flow, self._exact

        def programs() -> tuple[Flow, Flow]:
            from oven.optimise.rewrite import optimise

            return flow, optimise(flow, exact=exact)

        return restore(restored, programs, background=background, held=flow.nodes())

    def keep(self, plan: Plan) -> None:
        """Write the image of a plan that was just made, once its code is there."""
        keep_image(plan, self._entry.name)


def keep_image(plan: Plan, name: bytes, archive: Archive | None = None) -> None:
    """Write the image of a plan once its code is there; its parameters may be in this file."""
    plan.code.when_ready(partial(_keep, ref(plan), name, archive))


def _keep(known: ref[Plan], name: bytes, archive: Archive | None) -> None:
    plan = known()
    if plan is None:
        return
    with suppress(FlourError):  # calls raise it
        made = image_of(plan.program, archive) if plan.ready and plan.code.tier else None
        if made is not None:
            image_cache.write(name, made.to_bytes())
