"""What Slurm's own commands say and do: nodes, the queue, submitting, cancelling. Nothing here knows of matrix jobs."""

from __future__ import annotations

import asyncio
import os
import re
import subprocess
from collections.abc import Collection, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field

from matrix.errors import ToolError

_LIMIT = 60.0  # seconds for one command; a controller that restarts lets them wait
_AT_ONCE = 32  # commands that are waited for at the same time
_DEFAULT_KILL_WAIT = 30.0  # Slurm's own
# What a restarting or busy controller, or a limit that other jobs use up, lets sbatch say: later it may go well.
_LATER = re.compile(
    r"unable to contact|connect(ion)? (failure|refused|timed out|reset)|socket timed out|zero bytes|standby"
    r"|temporarily|communication|communications|controller is not|MaxSubmit|JobLimit|try again|no route to host"
    r"|slurm_load_.* error: .*timed out|transport endpoint",
    re.IGNORECASE,
)


class Away(Exception):  # noqa: N818 -- no error: it is asked again
    """The controller does not answer, or cannot take more at the moment."""


class Refused(Exception):  # noqa: N818 -- the answer of Slurm
    """Slurm will never take this job as it is."""


@dataclass(frozen=True, slots=True)
class Entry:
    """A line of the queue."""

    id: str
    state: str
    reason: str
    nodes: str
    name: str


@dataclass(frozen=True, slots=True)
class Node:
    """A node and its cards: GRES type (empty for untyped ones) to count."""

    name: str
    cards: Mapping[str, int] = field(default_factory=dict)
    memory: int | None = None  # bytes
    partition: str = ""


def parse_nodes(text: str) -> list[Node]:
    """Read `sinfo -h -N -o "%N|%G|%m|%P"`. A node is named once a partition."""
    found = []
    for line in text.splitlines():
        parts = line.strip().split("|")
        if len(parts) == 4:
            memory = int(parts[2]) << 20 if parts[2].isdecimal() else None
            found.append(Node(parts[0], parse_gres(parts[1]), memory, parts[3].rstrip("*")))
    return found


def parse_gres(text: str) -> dict[str, int]:
    """Read a node's GRES, such as `gpu:H20:4(S:0-1),shard:8` or `gpu:2`: type to count, of the cards alone."""
    cards: dict[str, int] = {}
    for part in re.sub(r"\([^)]*\)", "", text).split(","):
        match = re.fullmatch(r"gpu(?::([^:]+))?:(\d+)", part.strip())
        if match:
            name = match[1] or ""
            cards[name] = cards.get(name, 0) + int(match[2])
    return cards


def parse_queue(text: str) -> list[Entry]:
    """Read `squeue -h -o "%i|%T|%r|%N|%j"`. The name comes last: it may hold anything."""
    rows = (line.split("|", 4) for line in text.splitlines())
    return [Entry(*row) for row in rows if len(row) == 5]


def is_transient(said: str) -> bool:
    """Whether what Slurm said may pass by itself."""
    return _LATER.search(said) is not None


def clean_environment(env: Mapping[str, str]) -> dict[str, str]:
    """Keep what Slurm's commands need; nothing else of the runner's environment goes into the job script's."""
    kept = {"PATH", "HOME", "USER", "LOGNAME", "LANG", "LC_ALL", "TZ", "LD_LIBRARY_PATH"}
    ours = {"SLURM_CONF", "SLURM_JWT", "SLURM_CLUSTERS"}
    return {k: v for k, v in env.items() if k in kept | ours or k.startswith("SBATCH_")}


class Cluster:
    """Slurm as its commands show it to this user."""

    def __init__(self, env: Mapping[str, str] | None = None) -> None:
        self._env = clean_environment(os.environ if env is None else env)
        self._threads = ThreadPoolExecutor(_AT_ONCE, "slurm")

    async def nodes(self) -> list[Node]:
        """Return the nodes of all partitions that this user sees.

        Raises:
            Away: the controller does not answer.

        """
        return parse_nodes(await self._said("sinfo", "-h", "-N", "-o", "%N|%G|%m|%P"))

    async def queue(self, ids: Collection[str] = ()) -> list[Entry]:
        """Return this user's jobs, ended ones included for as long as the controller keeps them (MinJobAge).

        Raises:
            Away: the controller does not answer.

        """
        which = ("--jobs", ",".join(ids)) if len(ids) == 1 else ("--user", str(os.getuid()))
        try:
            return parse_queue(await self._said("squeue", "-h", "-t", "all", "-o", "%i|%T|%r|%N|%j", *which))
        except Refused as e:
            if "Invalid job id" in str(e):
                return []
            raise Away(str(e)) from None

    async def submit(self, script: str, arguments: Sequence[str]) -> str:
        """Hand a script to sbatch; return the id of the job.

        Raises:
            Refused: Slurm does not take such a job.
            Away: it may take it later.

        """
        said = await self._said("sbatch", "--parsable", *arguments, stdin=script)
        return said.strip().splitlines()[-1].split(";")[0]

    async def cancel(self, job: str, *, pending: bool = False) -> None:
        """Cancel a job; with `pending`, only if it has not begun. A job that is gone is none.

        Raises:
            Away: the controller does not answer.

        """
        only = ("--state=PENDING",) if pending else ()
        try:
            await self._said("scancel", *only, job)
        except Refused as e:
            if "Invalid job id" not in str(e) and "already" not in str(e).lower():
                raise Away(str(e)) from None

    async def final_state(self, job: str) -> str | None:
        """Ask the accounting, where there is one, how a job ended that the controller has forgotten."""
        try:
            said = await self._said("sacct", "-n", "-X", "-P", "-o", "State", "-j", job)
        except (Away, Refused):
            return None
        state = said.strip().splitlines()[-1:] or [""]
        return state[0].split()[0] if state[0].split() else None

    async def kill_wait(self) -> float:
        """Return the seconds between Slurm's TERM and its KILL."""
        try:
            said = await self._said("scontrol", "show", "config")
        except (Away, Refused):
            return _DEFAULT_KILL_WAIT
        match = re.search(r"^KillWait\s*=\s*(\d+)", said, re.MULTILINE)
        return float(match[1]) if match else _DEFAULT_KILL_WAIT

    def _start(self, command: Sequence[str]) -> subprocess.Popen[bytes]:
        pipe = subprocess.PIPE
        return subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=pipe, env=self._env, start_new_session=True)

    async def _said(self, *command: str, stdin: str = "") -> str:
        # Not asyncio's own subprocesses: one that is cancelled while it is being made waits for its pipes for ever
        # (Python 3.11), and the end of a run cancels a squeue at any moment.
        try:
            child = self._start(command)
        except FileNotFoundError:
            raise ToolError(
                f"{command[0]} is not on PATH: no Slurm here", "run on a login node, or use --engine local"
            ) from None
        loop = asyncio.get_running_loop()
        try:
            answer = loop.run_in_executor(self._threads, child.communicate, stdin.encode())
            out, err = await asyncio.wait_for(answer, _LIMIT)
        except TimeoutError:
            raise Away(f"{command[0]} did not answer within {_LIMIT:.0f} s") from None
        finally:
            if child.poll() is None:  # too late, or nobody wants to know any more
                child.kill()
        if child.returncode == 0:
            return out.decode(errors="replace")
        said = (err.decode(errors="replace").strip() or f"exit code {child.returncode}").splitlines()
        text = "; ".join(re.sub(r"^\w+: (error|fatal): ", "", line.strip()) for line in said[-2:])
        if is_transient(" ".join(said)):
            raise Away(text)
        raise Refused(text)
