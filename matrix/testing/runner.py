"""Starts one `matrix run` of the selected jobs, in the controller, and ends it with the session."""

from __future__ import annotations

import contextlib
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import pytest

from matrix.host import process
from matrix.run.folder import LOCK, runs_folder
from matrix.testing.jobs import JobItem, Jobs
from matrix.testing.meeting import INPUT, Meeting

_CANCEL_LIMIT = 30.0  # seconds that a cancelled run gets, before it is killed
_MAIN = "from matrix.cli import main; main()"


class Runner:
    """The run of a session: begun once the selection is known, watched by a thread."""

    def __init__(self, config: pytest.Config) -> None:
        self.config = config
        self.meeting = Meeting(Path(tempfile.mkdtemp(prefix="matrix-pytest-")))
        self.meeting.keep(config)
        self.child: subprocess.Popen[bytes] | None = None
        self.watcher: threading.Thread | None = None

    @property
    def _spec(self) -> Path:
        jobs = self.config.pluginmanager.get_plugin("matrix-jobs")
        assert isinstance(jobs, Jobs)
        return jobs.spec

    def pytest_collection_finish(self, session: pytest.Session) -> None:
        """Begin, where this process runs the items itself."""
        self._begin([item.name for item in session.items if isinstance(item, JobItem)])

    @pytest.hookimpl(optionalhook=True)
    def pytest_configure_node(self, node: Any) -> None:
        """Tell a worker where to meet."""
        node.workerinput[INPUT] = str(self.meeting.at)

    @pytest.hookimpl(optionalhook=True)
    def pytest_xdist_node_collection_finished(self, ids: Sequence[str]) -> None:
        """Begin with what the first worker has selected; all workers select alike."""
        ours = self._id_of_spec(ids)
        self._begin(i.removeprefix(f"{ours}::") for i in ids if ours and i.startswith(f"{ours}::"))

    @pytest.hookimpl(optionalhook=True)
    def pytest_handlecrashitem(self, crashitem: str, report: Any) -> None:
        """Say of a job whose waiting worker died that the job itself may be well."""
        ours = self._id_of_spec([crashitem])
        if ours is None:
            return
        name = crashitem.removeprefix(f"{ours}::")
        folder = self.meeting.folder()
        shown = f"matrix show {folder.name} {name}" if folder else "matrix show"
        report.longrepr = f"the pytest worker that waited for {name} died; what became of the job: {shown}"
        report.user_properties.append(("category", "runner_lost"))

    def _id_of_spec(self, ids: Iterable[str]) -> str | None:
        for one in ids:
            file = one.partition("::")[0]
            if (self.config.rootpath / file).resolve() == self._spec:
                return file
        return None

    def _begin(self, names: Iterable[str]) -> None:
        chosen = list(names)
        if self.child is not None or not chosen or self.config.option.collectonly:
            return
        cards = self.config.getoption("matrix_cards")
        only = [part for name in chosen for part in ("--only", name)]
        command = [sys.executable, "-c", _MAIN, "run", str(self._spec), *only, *(["--cards", cards] if cards else [])]
        before = self._folders()
        with (self.meeting.at / "output").open("wb") as output:
            self.child = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=output, stderr=output, cwd=self._spec.parent,
                preexec_fn=process.die_with_parent,  # noqa: PLW1509 -- no thread of ours runs yet
                start_new_session=True,  # Ctrl-C comes to this process, which passes it on
            )  # fmt: skip
        self.watcher = threading.Thread(target=self._watch, args=(self.child, before), daemon=True)
        self.watcher.start()

    def _folders(self) -> set[Path]:
        return set(runs_folder(self._spec.parent).glob("*"))

    def _watch(self, child: subprocess.Popen[bytes], before: set[Path]) -> None:
        """Find the folder of the run (its lock names the child), then wait for the end."""
        found = False
        while not found and child.poll() is None:
            for folder in self._folders() - before:
                with contextlib.suppress(OSError):
                    if (folder / LOCK).read_text(encoding="ascii").strip() == str(child.pid):
                        self.meeting.say_folder(folder)
                        found = True
            time.sleep(0.05)
        code = child.wait()
        said = (self.meeting.at / "output").read_text(encoding="utf-8", errors="replace").strip()
        if found:
            self.meeting.say_ended(f"the matrix run ended with exit code {code} before this job did")
        else:  # it never began: what it said, in the words of pytest's options
            reason = said[-2000:].removeprefix("matrix: ").replace(" --cards ", " --matrix-cards ")
            self.meeting.say_ended(f"{reason or f'exit code {code}'}\nso no job of the matrix was run")

    def pytest_sessionfinish(self) -> None:
        """End a run that nobody waits for any more."""
        if self.child is None:
            return
        for number in (signal.SIGINT, signal.SIGINT, signal.SIGKILL):
            if self.child.poll() is not None:
                break
            if not (number is signal.SIGINT and self._over()):
                self.child.send_signal(number)
            with contextlib.suppress(subprocess.TimeoutExpired):
                self.child.wait(_CANCEL_LIMIT)
        if self.watcher is not None:
            self.watcher.join(5)

    def _over(self) -> bool:
        """Whether all jobs are over and the run only writes its reports."""
        from matrix.records import FINAL, load  # noqa: PLC0415

        folder = self.meeting.folder()
        return folder is not None and all(j.status in FINAL for j in load(folder / "run.json").jobs)

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        """Say where the reports of the run are."""
        if folder := self.meeting.folder():
            terminalreporter.write_line(f"matrix: run {folder.name}, report in {folder / 'report.html'}")

    def pytest_unconfigure(self) -> None:
        """Remove the folder in which they met."""
        shutil.rmtree(self.meeting.at, ignore_errors=True)
