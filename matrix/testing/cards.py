"""Cards for a test: leased in the process that runs it, from the same folder as all runners of the host."""

from __future__ import annotations

import hashlib
import itertools
import os
import tempfile
import time
from collections.abc import Sequence
from functools import cache
from pathlib import Path

import pytest

from matrix.errors import MatrixError
from matrix.host import process
from matrix.host.gpus import Card, visible
from matrix.host.leases import Busy, Lease, LeaseError, Leases
from matrix.run.own_cards import find_cards

_POLL = 0.1  # seconds between tries for cards that others hold
_RESERVE_AFTER = 30.0  # seconds of waiting after which other runners are asked to leave some
_LEFT_LIMIT = 2.0  # seconds that processes which a test left get to end
_count = itertools.count(1)


class Held:
    """Cards that a test holds, and the environment as it was before."""

    def __init__(self, lease: Lease, cards: Sequence[Card], tag: str) -> None:
        self.cards, self._lease, self._tag = tuple(cards), lease, tag
        ours = {
            "CUDA_VISIBLE_DEVICES": ",".join(c.visible for c in cards),
            "CUDA_DEVICE_ORDER": "PCI_BUS_ID",  # the order in which the cards' indices are meant
            process.TAG: process.add_tag(tag, os.environ.get(process.TAG)),  # by which children are found again
        }
        self._before = {name: os.environ.get(name) for name in ours}
        os.environ.update(ours)

    def release(self) -> list[int]:
        """End what the test left running, then give the cards back; return the processes that do not end."""
        for name, value in self._before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value
        left = process.kill_all(lambda: process.of_job(self._tag), _LEFT_LIMIT)
        if left:
            self._lease.close()  # the entry stays: whoever wants the card next finds those processes by its tag
        else:
            self._lease.release()
        return left


def lease(n: int, test: str, *, pretended: str | None) -> Held:
    """Wait for n cards of this host; skip the test where the host has fewer."""
    try:
        known, folder = _known(pretended)
        if n > len(known):
            pytest.skip(f"needs {n} cards, this host has {len(known)} (to pretend some: --matrix-cards {n})")
        leases = _leases(folder)
    except (MatrixError, LeaseError) as e:
        pytest.fail(f"cards: {e}", pytrace=False)
    tag = f"pytest-{os.getpid()}-{next(_count)}"
    began = time.monotonic()
    by_uuid = {c.uuid: c for c in known}
    while True:
        reserved = set(leases.reserved_by_others())
        free = [u for u in leases.free(by_uuid) if u not in reserved]
        if len(free) >= n:
            try:
                taken = leases.take(free[:n], tag, test=test)
            except Busy:
                continue
            leases.reserve((), "")
            return Held(taken, [by_uuid[u] for u in free[:n]], tag)
        if n > 1 and time.monotonic() - began > _RESERVE_AFTER:
            leases.reserve(list(by_uuid)[:n], tag)
        time.sleep(_POLL)


@cache
def _leases(folder: str | None) -> Leases:
    return Leases(folder)


@cache
def _known(pretended: str | None) -> tuple[tuple[Card, ...], str | None]:
    """Return the cards that tests may use, and the folder of their leases (None: the host's).

    Inside a matrix job the cards are the job's, leased by its supervisor already: tests share them among themselves.
    """
    cards = find_cards(pretended, ())
    tag = os.environ.get(process.TAG)
    if not os.environ.get("MATRIX_JOB") or not tag:
        return cards, None
    narrowed = os.environ.get("CUDA_VISIBLE_DEVICES", "")
    if not cards:
        cards = tuple(Card(f"PRETENDED-{n}", int(n), "pretended") for n in narrowed.split(",") if n.strip().isdecimal())
    name = hashlib.sha256(tag.encode()).hexdigest()[:16]
    return visible(cards, narrowed), str(Path(tempfile.gettempdir()) / f"matrix-leases-{os.getuid()}-{name}")
