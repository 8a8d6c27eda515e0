import json
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


def picked(root, changed, more=None, matrix=MATRIX):
    for name, text in (more or {}).items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    (root / "matrix.yaml").write_text(matrix)
    if not (root / ".git").exists():
        subprocess.run(["git", "init", "-q", root], check=True)
    return {c.job.name: c.reason for c in select(read(root / "matrix.yaml"), changed=changed) if c.selected}


ALL = {"lint", "model", "other", "train", "shell"}


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("def (", "cannot be read: invalid syntax, line 1"),
        ("#" * (2 << 20) + "\n", "cannot be read: it is larger than 2 MB"),
        ("x = '\0'", "cannot be read: "),
        ("# coding: klingon\n", "cannot be read: "),
        ("(" * 300 + ")" * 300, "cannot be read: "),
    ],
)
def test_a_file_that_cannot_be_read_has_all_jobs_run_and_says_so(root, text, why):
    """It may import anything: what it imported before it broke, or by a syntax of another Python."""
    found = picked(root, ["scripts/helper.py"], {"odd/broken.py": text})
    assert set(found) == ALL
    assert f"any change concerns it: what odd/broken.py imports {why}" in found["other"]
    assert set(picked(root, ["README.md"])) == {"lint"}, "prose is read by nobody"


def test_of_a_deleted_or_renamed_module_those_that_import_it_run(root):
    (root / "src/lib/core.py").unlink()
    assert set(picked(root, ["src/lib/core.py"])) == {"lint", "model", "shell"}
    assert set(picked(root, ["src/lib/core.py", "src/lib/heart.py"], {"src/lib/heart.py": ""})) == {
        "lint",
        "model",
        "shell",
    }
    (root / "tests/conftest.py").unlink()
    assert set(picked(root, ["tests/conftest.py"])) == {"lint", "model", "other", "shell"}


def test_a_job_whose_script_was_deleted_runs(root):
    (root / "scripts/train.py").unlink()
    assert picked(root, ["scripts/train.py"])["train"] == "scripts/train.py changed"


@pytest.mark.parametrize(
    ("text", "changed", "found"),
    [
        ("import space.deep.leaf", "space/deep/leaf.py", True),  # no __init__.py anywhere
        ("from space.deep import leaf", "space/deep/leaf.py", True),
        ("from space.deep.leaf import f as g", "space/deep/leaf.py", True),
        ("from space.deep import *", "space/deep/leaf.py", True),
        ("from ..lib import x", "src/lib/__init__.py", False),  # of another folder
        ("import deep.leaf", "space/deep/leaf.py", True),  # space/ may be on the path
        ("import helper", "scripts/helper.py", True),
        ("import json", "src/json.py", True),
        ("import json", "space/json.py", False),  # the standard library's: nobody puts space/ before it
        ("import importlib\nimportlib.import_module('space.deep.leaf')", "space/deep/leaf.py", True),
        ("import importlib\nimportlib.import_module('space.deep.leaf')", "space/deep/other.py", False),
        ("import importlib\nimportlib.import_module(f'space.deep.{x}')", "space/deep/other.py", True),
        ("import importlib\nimportlib.import_module('space.deep.' + x)", "scripts/helper.py", False),
        ("import importlib\nimportlib.import_module(x)", "scripts/helper.py", True),
        ("__import__(x)", "scripts/helper.py", True),
        ("pytest_plugins = ['helper']", "scripts/helper.py", True),
        ("from unittest import mock\nmock.patch('space.deep.leaf.f')", "space/deep/leaf.py", True),
        ("import subprocess\nsubprocess.run(['python', 'scripts/helper.py'])", "scripts/helper.py", True),
        ("import os, runpy\nrunpy.run_path(os.path.join(here, 'helper.py'))", "scripts/helper.py", True),
        ("import runpy\nrunpy.run_path(path)", "scripts/helper.py", True),
        ("name = 'config.json'", "space/config.py", False),
    ],
)
def test_imports_of_every_kind_are_seen(root, text, changed, found):
    more = {
        "space/deep/leaf.py": "",
        "space/deep/other.py": "",
        "space/config.py": "",
        changed: "",
        "tests/test_other.py": text,
    }
    assert ("other" in picked(root, [changed], more)) is found


def test_what_imports_by_computed_names_is_said_with_its_line(root):
    more = {
        "src/lib/lazy.py": "import importlib\n\nm = importlib.import_module(name)\n",
        "tests/test_other.py": "import lib.lazy",
    }
    found = picked(root, ["scripts/helper.py"], more)
    assert (
        found["other"] == "tests/test_other.py imports src/lib/lazy.py, which imports what only a run can tell: line 3"
    )
    assert set(found) == {"lint", "other", "train", "shell"}


def test_a_link_is_the_file_that_it_leads_to(root):
    (root / "alias").symlink_to("src/lib")
    (root / "scripts/copy.py").symlink_to("../src/lib/other.py")
    (root / "gone.py").symlink_to("nowhere")
    more = {"scripts/train.py": "import copy", "tests/test_other.py": "from alias import core"}
    assert set(picked(root, ["src/lib/core.py"], more)) == {"lint", "model", "other", "shell"}
    assert set(picked(root, ["src/lib/other.py"], more)) == {"lint", "train", "shell"}
    assert set(picked(root, ["alias"], more)) == ALL


@pytest.mark.parametrize(
    ("command", "why"),
    [
        ("python scripts/helper.py && bash ci.sh", "runs bash, so any change concerns it"),
        ("FOO=1 make x; python scripts/helper.py", "runs make, so any change concerns it"),
        ("python lib/core.py; python scripts/helper.py", None),
        (
            "python scripts/helper.py; python src/lib/model.py; true",
            "src/lib/model.py imports src/lib/core.py, which changed",
        ),
        ("python scripts/helper.py --then=src/lib/model.py", "src/lib/model.py imports src/lib/core.py, which changed"),
        ("cd . && FOO=1 timeout 5m python -u scripts/helper.py | cat", None),
        ("python -m lib.other", None),
        ("python -m lib.model && python scripts/helper.py", "src/lib/model.py imports src/lib/core.py, which changed"),
        ("python -m json.tool x.json", "names no Python file, so any change concerns it"),
        ('python scripts/helper.py && python -c "import lib.core"', "runs python -c, so any change concerns it"),
        ("python scripts/helper.py; python - <<E\\nimport lib.core\\nE", "runs python -c, so any change concerns it"),
    ],
)
def test_a_command_that_runs_more_than_it_names_is_concerned_by_any_change(root, command, why):
    matrix = f"floor: lint\nsuites: {{s: {{jobs: {{lint: {{command: x}}, it: {{command: {json.dumps(command)}}}}}}}}}"
    assert picked(root, ["src/lib/core.py"], matrix=matrix).get("it") == why
