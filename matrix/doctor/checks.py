"""All checks, in the order in which they are shown."""

from __future__ import annotations

from matrix.doctor import cards, host, repository
from matrix.doctor.model import Check

CHECKS: tuple[tuple[str, Check], ...] = (
    ("cards", cards.cards),
    ("driver", cards.driver),
    ("MIG", cards.mig),
    ("Paddle", cards.paddle),
    ("Slurm", host.slurm),
    ("lease folder", host.lease_folder),
    ("py-spy", host.py_spy),
    ("processes", host.processes),
    ("disk", host.disk),
    ("shared memory", host.shared_memory),
    ("clock", host.clock),
    ("git", repository.git),
    ("matrix", repository.matrix),
    ("rules", repository.rules),
    ("quarantine", repository.quarantine),
    ("history", repository.database),
    ("GitHub token", repository.token),
)
