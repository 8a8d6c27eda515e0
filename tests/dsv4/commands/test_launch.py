"""`dsv4 launch` and `dsv4 fleet` on the command line."""

import subprocess
import sys

import pytest

from tests.dsv4.conftest import REFERENCE

CONFIG = REFERENCE.parents[3] / "examples" / "dsv4-align-8" / "config.yaml"

WITHOUT_PADDLE = """
import sys
sys.modules["paddle"] = None  # an import of it fails
from dsv4.cli import main
main()
"""


@pytest.mark.parametrize("verb", ["launch", "fleet"])
def test_a_dry_run_needs_no_paddle(verb):
    argv = [sys.executable, "-c", WITHOUT_PADDLE, verb, "--dry-run", str(CONFIG)]
    done = subprocess.run(argv, capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")
    assert "expert_model_parallel_size" in done.stdout if verb == "fleet" else "rank 7: layers 0-3" in done.stdout
