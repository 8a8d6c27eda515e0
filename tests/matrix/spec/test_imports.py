import subprocess

import pytest

from matrix.spec.imports import reach
from matrix.spec.load import read
from matrix.spec.select import select

FILES = {
    "src/lib/__init__.py": "",
    "src/lib/core.py": "import math",
    "src/lib/model.py": "from .core import x",
    "src/lib/other.py": "import json",
    "tests/conftest.py": "",
    "tests/test_model.py": "from lib.model import y",
    "tests/test_other.py": "import lib.other as o",
    "tests/deep/test_lazy.py": "def f():\n    from lib import core",
    "scripts/train.py": "import helper",
    "scripts/helper.py": "",
    "scripts/broken.py": "def (",
}


@pytest.fixture
def root(tmp_path):
    for name, text in FILES.items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return tmp_path


@pytest.mark.parametrize(
    ("changed", "reached"),
    [
        ("src/lib/core.py", {"src/lib/model.py", "tests/test_model.py", "tests/deep/test_lazy.py"}),
        ("src/lib/other.py", {"tests/test_other.py"}),
        ("scripts/helper.py", {"scripts/train.py"}),
        ("tests/conftest.py", {"tests/test_model.py", "tests/test_other.py", "tests/deep/test_lazy.py"}),
        ("scripts/train.py", set()),
    ],
)
def test_imports_are_followed_over_packages_scripts_and_conftest(root, changed, reached):
    assert set(reach(root, FILES, [changed]).of) == reached


def test_a_change_of_a_package_reaches_whoever_imports_from_it(root):
    assert {"tests/test_model.py", "tests/test_other.py"} <= set(reach(root, FILES, ["src/lib/__init__.py"]).of)


MATRIX = """
floor: lint
suites:
  s:
    jobs:
      lint: {command: "true"}
      model: {pytest: tests/test_model.py}
      other: {pytest: tests/test_other.py}
      train: {command: python scripts/train.py}
      shell: {command: make all}
"""


@pytest.mark.parametrize(
    ("changed", "chosen"),
    [
        (["src/lib/core.py"], {"lint", "model", "shell"}),
        (["src/lib/other.py"], {"lint", "other", "shell"}),
        (["scripts/helper.py"], {"lint", "train", "shell"}),
        (["README.md"], {"lint"}),
        ([], {"lint"}),
        (["configs/a.yaml"], {"lint", "model", "other", "train", "shell"}),
    ],
)
def test_jobs_without_paths_are_chosen_by_what_they_import(root, changed, chosen):
    (root / "matrix.yaml").write_text(MATRIX)
    subprocess.run(["git", "init", "-q", root], check=True)
    choices = select(read(root / "matrix.yaml"), changed=changed)
    assert {c.job.name for c in choices if c.selected} == chosen
    assert all(c.reason for c in choices)
