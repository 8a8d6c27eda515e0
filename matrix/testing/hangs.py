"""Ends tests that hang and says where they hung; says of a worker that died what it died of."""

from __future__ import annotations

import faulthandler
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Generator
from pathlib import Path
from typing import IO, Any

import pytest

from matrix.host import stacks
from matrix.testing import watchdog
from matrix.triage.witness import witnessed

_INPUT = "matrix_hangs"  # the key under which xdist hands the folder to its workers
_MOST = 200_000  # characters of stacks that a report holds


class Hangs:
    """A watchdog beside each process that runs tests, and the reports of what they ended."""

    def __init__(self, config: pytest.Config, limit: float) -> None:
        self.config, self.limit = config, limit
        given = getattr(config, "workerinput", {})
        self.own_folder = not given
        self.folder = Path(given[_INPUT]) if given else Path(tempfile.mkdtemp(prefix="matrix-hangs-"))
        self.name = str(given.get("workerid", "main"))
        self.child: subprocess.Popen[bytes] | None = None
        self.fault: IO[bytes] | None = None
        self.test: str | None = None

    @property
    def hang(self) -> Path:
        """The file that the watchdog writes."""
        return self.folder / f"{self.name}.hang"

    @pytest.hookimpl(optionalhook=True)
    def pytest_configure_node(self, node: Any) -> None:
        """Tell a worker where to write."""
        node.workerinput[_INPUT] = str(self.folder)

    @pytest.hookimpl(trylast=True)
    def pytest_sessionstart(self) -> None:
        """Let the process write its stacks to a file, at a signal and when it dies. After pytest's own handler."""
        if self._controls():
            return
        self.fault = (self.folder / f"{self.name}.fault").open("ab", buffering=0)
        faulthandler.register(stacks.SIGNAL, file=self.fault, all_threads=True)
        if not self.own_folder:  # a worker's standard error is nobody's; elsewhere it is the best place
            faulthandler.enable(self.fault)
        signal.signal(watchdog.END, self._end)

    def _controls(self) -> bool:
        """Whether this process only leads workers."""
        return (
            self.own_folder
            and bool(getattr(self.config.option, "tx", None))
            and self.config.pluginmanager.has_plugin("dsession")
        )

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Generator[None, object, object]:
        """Have the test watched. Matrix jobs have their own limits and supervisors."""
        if hasattr(item, "job"):
            return (yield)
        self.test = item.nodeid
        self._order({"test": item.nodeid, "limit": self.limit})
        try:
            return (yield)
        finally:
            self.test = None
            self._order({})

    def _order(self, order: dict[str, object]) -> None:
        if self.child is None or self.child.poll() is not None:
            self.child = self._watch()
        assert self.child.stdin is not None
        try:
            self.child.stdin.write(json.dumps(order).encode() + b"\n")
            self.child.stdin.flush()
        except BrokenPipeError:
            self.child = None  # killed by somebody; the next test gets another

    def _watch(self) -> subprocess.Popen[bytes]:
        py_spy = shutil.which("py-spy") or shutil.which("py-spy", path=str(Path(sys.executable).parent)) or ""
        root = str(Path(__file__).parents[2])
        env = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, [root, os.environ.get("PYTHONPATH")]))}
        arguments = [str(os.getpid()), str(self.hang), str(self.folder / f"{self.name}.fault"), py_spy]
        return subprocess.Popen(
            [sys.executable, "-m", "matrix.testing.watchdog", *arguments],
            stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=None, env=env, start_new_session=True,
        )  # fmt: skip

    def _end(self, _number: int, _frame: object) -> None:
        """Fail the test that hangs, where it can be interrupted."""
        if self.test is not None:
            self.hang.replace(self.hang.with_suffix(".interrupted"))
            pytest.fail(_hang_text(self.hang.with_suffix(".interrupted")), pytrace=False)

    @pytest.hookimpl(optionalhook=True)
    def pytest_handlecrashitem(self, crashitem: str, report: Any) -> None:
        """Say what the worker of a test died of."""
        worker = report.node.gateway.id
        hang, fault = self.folder / f"{worker}.hang", self.folder / f"{worker}.fault"
        if hang.is_file() and json.loads(hang.read_bytes())["test"] == crashitem:
            report.longrepr = _hang_text(hang)
            report.user_properties.append(("category", "job_timeout"))
            return
        text = fault.read_text(encoding="utf-8", errors="replace") if fault.is_file() else ""
        category = _category(fault) if text else "unknown"
        report.longrepr = f"{category}: the worker died in {crashitem}\n{text[-_MOST:]}".rstrip()
        report.user_properties.append(("category", category))

    def pytest_unconfigure(self) -> None:
        """End the watchdog, and remove the folder."""
        if self.child is not None and self.child.stdin is not None:
            self.child.stdin.close()
            self.child.wait(10)
        if self.fault is not None:
            faulthandler.unregister(stacks.SIGNAL)
            faulthandler.disable()
            self.fault.close()
        if self.own_folder:
            shutil.rmtree(self.folder, ignore_errors=True)


def _hang_text(path: Path) -> str:
    said = json.loads(path.read_bytes())
    text = f"{said['test']} did not end within {said['limit']:g} s"
    cause = witnessed("job_timeout", text, rule="pytest-hang", about=said["test"])
    return f"{cause.category}: {cause.text}; where it hung:\n{said['stacks'][:_MOST]}"


def _category(fault: Path) -> str:
    from matrix.triage.diagnosis import diagnose  # noqa: PLC0415 -- seldom needed, slow to load

    causes = diagnose(fault, exit_code=None).causes
    return causes[0].category if causes else "unknown"
