from pathlib import Path

import pytest

from matrix.triage import diagnose


@pytest.fixture
def report(tmp_path: Path):
    """Diagnose a text as a log."""

    def made(text: str | bytes, **options):
        path = tmp_path / "job.log"
        path.write_bytes(text.encode() if isinstance(text, str) else text)
        return diagnose(path, **options)

    return made
