"""What README and docs tell readers to type does what they say."""

import importlib.util
import os
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from bot.policy import parse_policy
from matrix.history.quarantine import QuarantineFile
from matrix.plan.hosts import HostsSpec
from matrix.spec.load import read_bytes
from tests.services import need

ROOT = Path(__file__).parents[2]
# With the soak tests: what takes long, trains, or needs a cluster.
LONG = {
    "docs/history.md",
    "docs/pytest.md",
    "docs/running.md",
    "docs/actions.md",
    "docs/starting.md",
    "docs/training.md",
    "docs/slurm.md",
}

_spec = importlib.util.spec_from_file_location("command_blocks", ROOT / "scripts/command_blocks.py")
command_blocks = importlib.util.module_from_spec(_spec)
sys.modules["command_blocks"] = command_blocks
_spec.loader.exec_module(command_blocks)

BLOCKS = {p.relative_to(ROOT).as_posix(): list(command_blocks.blocks(p)) for p in command_blocks.pages()}
RUN = [page for page, found in BLOCKS.items() if any(b.what == "run" for b in found)]


def test_every_block_of_commands_is_run_or_says_why_not():
    done = subprocess.run(
        [sys.executable, "scripts/command_blocks.py"], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    print(done.stdout)
    *lines, total = done.stdout.splitlines()
    assert len(lines) > 30
    assert total.startswith(f"{len(lines)} blocks of commands: ")
    assert RUN


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("Say:\n\n    matrix run\n", "a block without a language"),
        ("```\nmatrix run\n```\n", "a block without a language"),
        ("* a list\n\n      matrix run\n", "a block without a language"),
        ("```bash\nmatrix run\n```\n", "write <!-- run -->"),
        ("<!-- not run: no -->\n```bash\nmatrix run\n```\n", "say why"),
        ("<!-- run -->\nOther text.\n\n```bash\nmatrix run\n```\n", "write <!-- run -->"),
        ("<!-- run: exit 1 -->\n```bash\nmatrix run\n```\n", None),
        ("```yaml\na: 1\n```\n", None),
    ],
)
def test_a_block_that_is_neither_run_nor_marked_is_found(tmp_path, text, problem):
    page = tmp_path / "page.md"
    page.write_text(text)
    (block,) = command_blocks.blocks(page, tmp_path)
    assert (block.problem or "").startswith(problem or "")
    assert bool(block.problem) == bool(problem)


def read_as_what_it_is(text):
    """Read a piece of YAML by the reader of the file that it is a piece of."""
    data = yaml.safe_load(text)
    match next(iter(data)):
        case "hosts":
            HostsSpec.model_validate(data)
        case "quarantine":
            QuarantineFile.model_validate(yaml.load(text, yaml.BaseLoader))
        case "commands":
            parse_policy(text)
        case "jobs":
            read_bytes(yaml.safe_dump({"suites": {"s": data}}).encode())
        case "suites" | "version" | "defaults":
            read_bytes(text.encode())
        case "retry":
            read_bytes((text + "suites: {s: {jobs: {a: {command: x}}}}\n").encode())
        case _:
            read_bytes(yaml.safe_dump({"suites": {"s": {"jobs": data}}}).encode())


YAML = [b for found in BLOCKS.values() for b in found if b.language == "yaml"]


@pytest.mark.parametrize("block", YAML, ids=lambda b: f"{b.page}:{b.line}")
def test_every_piece_of_a_file_is_right(block):
    read_as_what_it_is(block.code)


@pytest.mark.parametrize("text", ["hosts: {a: {crads: 1}}", "jobs: {a: {comand: x}}", "commands: {fly: {}}"])
def test_a_piece_with_a_mistake_is_refused(text):
    with pytest.raises(Exception, match=r"crads|comand|fly"):
        read_as_what_it_is(text)


@pytest.mark.parametrize("page", [pytest.param(p, marks=pytest.mark.soak) if p in LONG else p for p in RUN])
def test_the_commands_of_a_page_work_one_after_the_other(page, tmp_path):
    if page == "docs/slurm.md":
        need("SLURM_CONF")
    work = tmp_path / "work"
    work.mkdir()
    keep = {k: v for k, v in os.environ.items() if not k.startswith(("MATRIX_", "GITHUB_", "PYTEST_"))}
    env = keep | {
        "PATH": f"{work}/bin:{Path(sys.executable).parent}:{os.environ['PATH']}",
        "PYTHONPATH": str(ROOT),
        "MATRIX_LEASE_DIR": str(tmp_path / "leases"),
        "HOME": str(tmp_path),
        "PYTEST_ADDOPTS": "-p matrix.pytest_plugin",  # also where the package is not installed
    }
    before = ""  # what readers need not see, run with the block behind it
    for block in BLOCKS[page]:
        if block.what == "setup":
            before += block.code
        elif block.what == "file":
            (work / block.rest).parent.mkdir(parents=True, exist_ok=True)
            (work / block.rest).write_text(block.code)
        elif block.what == "run":
            done = subprocess.run(
                ["bash", "-euo", "pipefail", "-c", before + block.code],
                cwd=work,
                env=env,
                capture_output=True,
                text=True,
            )
            assert done.returncode == block.exit_code, f"{page}:{block.line}\n{done.stdout}\n{done.stderr}"
            assert "Traceback" not in done.stderr, f"{page}:{block.line}\n{done.stderr}"
            before = ""
    assert before == ""
