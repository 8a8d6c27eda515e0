"""Keeps an eye on the cards of a run: sets dirty ones aside before a job, says afterwards whose memory it was."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from matrix.host import process
from matrix.host.health import Look, evidence
from matrix.records import Fact
from matrix.triage.model import Cause

# After these a card is probed again before the next job gets it.
_SUSPECT = frozenset(
    {"cuda_illegal_access", "cuda_device_assert", "cuda_launch_failure", "nccl_error", "driver_mismatch", "job_timeout"}
)


class Keeper:
    """What is known of the cards of one run. Without `look` (pretended cards) it knows nothing and says nothing."""

    def __init__(self, look: Look | None, uuids: Sequence[str]) -> None:
        self.look = look
        self.aside: dict[str, list[str]] = {}  # uuid -> evidence
        self.unproved = set(uuids)

    async def dirty(self, uuids: Sequence[str], *, shared: bool) -> list[Fact]:
        """Look at cards before a job gets them; set the unfit ones aside and say why."""
        if self.look is None:
            return []
        probe = bool(self.unproved & set(uuids))
        said = []
        for health in await asyncio.to_thread(self.look, uuids, probe):
            why = evidence(health, lambda pid: bool(process.tags(pid)), shared=shared)
            if why:
                self.aside[health.uuid] = why
                said.append(Fact(key="card_set_aside", value=f"{health.uuid}: {'; '.join(why)}"))
        self.unproved -= set(uuids)
        return said

    async def after(self, causes: Sequence[Cause], uuids: Sequence[str]) -> list[Fact]:
        """Say who else held memory of a job's cards, when the job ran out of it."""
        if self.look is None:
            return []
        categories = {c.category for c in causes}
        if categories & _SUSPECT:
            self.unproved |= set(uuids)
        if "cuda_out_of_memory" not in categories:
            return []
        # The job's own processes are gone by now: whoever is left is somebody else.
        found = await asyncio.to_thread(self.look, uuids, False)
        return [
            Fact(key="card_held_by_others", value=f"{health.uuid}: {said}")
            for health in found
            for said in evidence(health, lambda pid: bool(process.tags(pid)), shared=False)
        ]
