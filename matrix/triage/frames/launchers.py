"""Launchers' closing words (torchrun, paddle, DeepSpeed, MPI, Slurm): which process they saw end, and how."""

from __future__ import annotations

import re
from dataclasses import dataclass

from matrix.triage.frames.model import Incident
from matrix.triage.lines import Line
from matrix.triage.store import LineStore

MARKS = frozenset({"launcher", "exit", "signal"})
_ENDED = (
    re.compile(r"failed \(exitcode: (?P<code>-?\d+)\)(?: local_rank: (?P<rank>\d+))?"),
    re.compile(r"Container rank (?P<rank>\d+) status failed .* code (?P<code>-?\d+) log"),
    re.compile(r"exits with return code = (?P<code>-?\d+)"),
    re.compile(r"[Pp]rocess (?P<rank>\d+) terminated with (?:signal (?P<signal>SIG\w+)|exit code (?P<code>\d+))"),
    re.compile(
        r"srun: error: \S+: tasks? (?P<rank>\d+)[\d,-]*: (?:Exited with exit code (?P<code>\d+)|(?P<word>Killed|Segmentation fault|Aborted|Terminated|Bus error))"
    ),
    re.compile(r"process rank (?P<rank>\d+) with PID \d+ on node \S+ exited on signal (?P<number>\d+)"),
    re.compile(r"(?:died with|killed by|terminated by|received) (?:<Signals\.)?(?P<signal>SIG\w+)"),
    re.compile(r"Signal (?P<number>\d+) \((?P<signal>SIG\w+)\) received by PID"),
    re.compile(r"exitcode\s*: (?P<code>-?\d+) \(pid: \d+\)"),
)
_NUMBERS = {
    "SIGHUP": 1,
    "SIGINT": 2,
    "SIGILL": 4,
    "SIGTRAP": 5,
    "SIGABRT": 6,
    "SIGBUS": 7,
    "SIGFPE": 8,
    "SIGKILL": 9,
    "SIGSEGV": 11,
    "SIGPIPE": 13,
    "SIGTERM": 15,
}
_WORDS = {"Killed": 9, "Segmentation fault": 11, "Aborted": 6, "Terminated": 15, "Bus error": 7}
_ROOT = re.compile(r"Root Cause \(first observed failure\)")
_ROOT_RANK = re.compile(r"\s*rank\s*: (\d+) \(local_rank: (\d+)\)")


@dataclass(frozen=True, slots=True)
class Ended:
    """A process that a launcher saw end."""

    line: int
    rank: int | None
    code: int  # negative for a signal, as Popen gives it


def ended(line: Line) -> Ended | None:
    """What a launcher's line says about a process's end, if it does."""
    for pattern in _ENDED:
        if found := pattern.search(line.body):
            groups = found.groupdict()
            rank = int(groups["rank"]) if groups.get("rank") else None
            if signal := groups.get("signal"):
                return Ended(line.no, rank, -_NUMBERS.get(signal, 1))
            if number := groups.get("number"):
                return Ended(line.no, rank, -int(number))
            if word := groups.get("word"):
                return Ended(line.no, rank, -_WORDS[word])
            return Ended(line.no, rank, int(groups.get("code") or 1))
    return None


def block(store: LineStore, start: int) -> tuple[int, int | None]:
    """Last line of torchrun's table that starts at its ChildFailedError, and the rank that it saw fail first."""
    rank: int | None = None
    root = False
    rules = 0
    end = start
    for no in range(start + 1, start + 400):
        line = store.line(no)
        if line is None:
            break
        if line.body.startswith("====="):
            rules += 1
            end = no
            if rules == 2:
                break
        elif _ROOT.search(line.body):
            root = True
        elif root and rank is None and (found := _ROOT_RANK.match(line.body)):
            rank = int(found[1])
    return (end if rules == 2 else start), rank


def incident(line: Line, found: Ended) -> Incident:
    """A process's end as an incident: evidence of its own if a signal ended it, else only a pointer to the process's output."""
    by_signal = found.code < 0 and found.code != -15
    return Incident(
        "signal" if by_signal else "launcher", line.no, line.no, line.no, line.text, line.body.strip(), [line], line.stream,
        found.rank if found.rank is not None else line.rank, fatal=0.7 if by_signal else 0.35, wrapper=not by_signal,
    )  # fmt: skip
