"""The folder through which a run and the nodes of an attempt speak: both write whole files into the attempt's scratch.

plan.json (how to run it; gone once read, for it holds the environment), job.json (Slurm's id), stop (a word that ends
it), begun.RANK.json and ended.RANK.json (what each node says), output (what the batch script itself printed).
"""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from matrix.engine.base import Launch, Outcome
from matrix.files import replace
from matrix.host.gpus import Card
from matrix.spec.job import Container


@dataclass(frozen=True, slots=True)
class Exchange:
    """The files of one attempt."""

    scratch: Path

    @property
    def folder(self) -> Path:
        """The folder of these files."""
        return self.scratch / "slurm"

    @property
    def plan(self) -> Path:
        """How to run the job."""
        return self.folder / "plan.json"

    @property
    def output(self) -> Path:
        """What the batch script printed: nothing, unless it broke."""
        return self.folder / "output"

    def node(self, rank: int) -> Path:
        """Scratch of one node of several."""
        return self.scratch / f"node{rank}"

    def node_log(self, rank: int) -> Path:
        """Log of one node of several, before it is merged with the others."""
        return self.node(rank) / "log"

    def write(self, name: str, document: Mapping[str, Any], *, secret: bool = False) -> None:
        """Write one of the files, whole and durable."""
        self.folder.mkdir(parents=True, exist_ok=True)
        if secret:
            self.folder.chmod(0o700)
        replace(self.folder / f"{name}.json", json.dumps(document), durable=True)

    def read(self, name: str) -> dict[str, Any] | None:
        """Read one of the files; None if it is not there (yet). Listing the folder makes NFS look afresh."""
        with contextlib.suppress(OSError, ValueError):
            if f"{name}.json" in os.listdir(self.folder):  # noqa: PTH208 -- names only
                found = json.loads((self.folder / f"{name}.json").read_bytes())
                return found if isinstance(found, dict) else None
        return None

    def begin_anew(self) -> None:
        """Remove what an earlier submission of the same attempt left."""
        for file in (*self.folder.glob("begun.*"), *self.folder.glob("ended.*"), self.folder / "stop"):
            file.unlink(missing_ok=True)

    def stop(self, word: str, *, first: bool = False) -> bool:
        """Tell all nodes to end: `cancel`, `kill`, or `node N` where node N ended badly. With `first`, only once."""
        flags = os.O_WRONLY | os.O_CREAT | (os.O_EXCL if first else os.O_TRUNC)
        try:
            fd = os.open(self.folder / "stop", flags, 0o644)
        except OSError:
            return False
        os.write(fd, word.encode())
        os.close(fd)
        return True

    def stopped(self) -> str | None:
        """Return the word that ends the attempt."""
        try:
            return (self.folder / "stop").read_text() or None
        except OSError:
            return None

    def said(self) -> str:
        """Return the last line that the batch script printed; one of srun's own only where there is no other."""
        try:
            lines = self.output.read_bytes()[-4096:].decode(errors="replace").strip().splitlines()
        except OSError:
            return ""
        own = [line for line in lines if not line.startswith(("srun: ", "slurmstepd: "))]
        return (own or lines or [""])[-1][:300]


def launch_document(launch: Launch) -> dict[str, Any]:
    """Return a launch as JSON has it."""
    container = asdict(launch.container) if launch.container else None
    return {
        "tag": launch.tag,
        "argv": list(launch.argv),
        "cwd": str(launch.cwd),
        "env": dict(launch.env),
        "log": str(launch.log),
        "scratch": str(launch.scratch),
        "timeout": launch.timeout,
        "container": container,
        "facts": dict(launch.facts or {}),
    }


def read_launch(document: Mapping[str, Any]) -> Launch:
    """Return the launch that a document holds."""
    container = document["container"]
    return Launch(
        tag=document["tag"],
        argv=tuple(document["argv"]),
        cwd=Path(document["cwd"]),
        env=document["env"],
        log=Path(document["log"]),
        scratch=Path(document["scratch"]),
        timeout=document["timeout"],
        container=Container(**{**container, "mounts": tuple(container["mounts"])}) if container else None,
        facts=document["facts"],
    )


def outcome_document(out: Outcome) -> dict[str, Any]:
    """Return an outcome as JSON has it."""
    return asdict(out)


def read_outcome(document: Mapping[str, Any]) -> Outcome:
    """Return the outcome that a document holds."""
    cards = tuple(Card(**card) for card in document["cards"])
    tuples = {key: tuple(document[key]) for key in ("left", "hosts", "unfit")}
    return Outcome(**{**document, **tuples, "cards": cards})
