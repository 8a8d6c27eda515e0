"""What must be true of the repository as a whole."""

import importlib.metadata
import re
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
IMPORT_ALL = """
import importlib, pkgutil, sys
for name in sys.argv[1:]:
    package = importlib.import_module(name)
    for module in pkgutil.walk_packages(package.__path__, name + "."):
        if "migrations" not in module.name:
            importlib.import_module(module.name)
print(sorted(m for m in ("paddle", "torch", "dsv4") if m in sys.modules))
"""


def test_matrix_and_bot_never_import_paddle_or_dsv4():
    done = subprocess.run([sys.executable, "-c", IMPORT_ALL, "matrix", "bot"], capture_output=True, text=True, cwd=ROOT)
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == "[]"


@pytest.mark.parametrize(
    ("package", "forbidden"), [("matrix", ("bot", "dsv4")), ("dsv4", ("matrix", "bot")), ("bot", ("dsv4",))]
)
def test_imports_go_one_way(package, forbidden):
    wrong = [
        f"{path}:{n}"
        for path in (ROOT / package).rglob("*.py")
        for n, line in enumerate(path.read_text().splitlines(), 1)
        for name in forbidden
        if line.lstrip().startswith((f"import {name}.", f"import {name} ", f"from {name}.", f"from {name} "))
        or line.strip() == f"import {name}"
    ]
    assert not wrong


@pytest.mark.parametrize("command", ["matrix", "bot", "dsv4"])
def test_help_answers_and_shows_the_verbs(command):
    done = subprocess.run([command, "--help"], capture_output=True, text=True)
    assert done.returncode == 0
    assert "Usage" in done.stdout


def test_no_module_has_more_than_400_lines():
    long = {
        str(p.relative_to(ROOT)): n
        for d in ("matrix", "bot", "dsv4")
        for p in (ROOT / d).rglob("*.py")
        if (n := len(p.read_text().splitlines())) > 400
    }
    assert not long


def _canonical(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def test_the_constraints_give_every_installed_package_one_version_each():
    """Two versions of one package can be installed by nobody; one without a version differs from machine to machine."""
    constrained = Counter(_canonical(line.split("==")[0]) for line in (ROOT / "constraints.txt").read_text().split())
    assert [name for name, n in constrained.items() if n > 1] == []
    installed = {_canonical(d.name) for d in importlib.metadata.distributions()} - {"dsv4-ci", "pip", "setuptools"}
    assert sorted(installed - constrained.keys()) == []
