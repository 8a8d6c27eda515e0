"""Where the process that runs the matrix and the processes whose items wait for it meet: a folder with two files."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import pytest

from matrix.files import replace

_KEY = pytest.StashKey["Meeting"]()
INPUT = "matrix_meeting"  # the key under which xdist hands the folder to its workers


@dataclass(frozen=True, slots=True)
class Meeting:
    """The folder in which they meet."""

    at: Path

    @staticmethod
    def of(config: pytest.Config) -> Meeting:
        """Return the meeting of this session."""
        given = getattr(config, "workerinput", {}).get(INPUT)
        return Meeting(Path(given)) if given else config.stash[_KEY]

    def keep(self, config: pytest.Config) -> None:
        """Make this the meeting of a session without workers, or of a controller."""
        config.stash[_KEY] = self

    def say_folder(self, folder: Path) -> None:
        """Say in which folder the run is."""
        replace(self.at / "folder", str(folder))

    def say_ended(self, text: str) -> None:
        """Say that the run is over, and how."""
        replace(self.at / "ended", text)

    def folder(self) -> Path | None:
        """Return the folder of the run once it is there."""
        return Path(text) if (text := self._read("folder")) else None

    def ended(self) -> str | None:
        """Return how the run ended; None while it goes on."""
        return self._read("ended")

    def _read(self, name: str) -> str | None:
        try:
            return (self.at / name).read_text(encoding="utf-8")
        except FileNotFoundError:
            return None
