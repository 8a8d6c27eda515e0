"""A project in a folder of its own, and a pytest that runs there with the plugin."""

import os
import subprocess
import sys
import xml.etree.ElementTree as ET
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]


# What this environment has besides, and what takes most of the time that pytest needs to start.
WITHOUT = [part for name in ("hypothesispytest", "anyio", "platformdirs") for part in ("-p", f"no:{name}")]


class Project:
    """A folder with files, in which pytest is run as users run it."""

    def __init__(self, root):
        self.root = root
        self.env = {k: v for k, v in os.environ.items() if not k.startswith(("PYTEST_", "MATRIX_", "GITHUB_"))}
        self.env |= {"PYTHONPATH": str(ROOT), "MATRIX_LEASE_DIR": str(root / "leases"), "COLUMNS": "200"}
        self.write("pytest.ini", f"[pytest]\naddopts = -p no:cacheprovider {' '.join(WITHOUT)}\n")

    def write(self, name, text):
        path = self.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        return path

    def pytest(self, *args, plugin=True, **env):
        command = [sys.executable, "-m", "pytest", *WITHOUT, *(["-p", "matrix.pytest_plugin"] if plugin else [])]
        self.done = subprocess.run(
            [*command, "--junitxml", "junit.xml", *args],
            capture_output=True, text=True, cwd=self.root, env=self.env | env, timeout=120,
        )  # fmt: skip
        self.out = self.done.stdout + self.done.stderr
        return self.done.returncode

    def matrix(self, *args):
        code = "from matrix.cli import main; main()"
        self.done = subprocess.run(
            [sys.executable, "-c", code, *args],
            capture_output=True,
            text=True,
            cwd=self.root,
            env=self.env,
            timeout=120,
        )
        self.out = self.done.stdout + self.done.stderr
        return self.done.returncode

    def cases(self):
        found = {}
        for case in ET.parse(self.root / "junit.xml").iter("testcase"):
            bad = [c for c in case if c.tag in ("failure", "error", "skipped")]
            found[case.get("name")] = bad[0].tag if bad else "passed"
        return found

    def properties(self, name):
        case = next(c for c in ET.parse(self.root / "junit.xml").iter("testcase") if c.get("name") == name)
        return {p.get("name"): p.get("value") for p in case.iter("property")}


@pytest.fixture
def project(tmp_path):
    return Project(tmp_path)
