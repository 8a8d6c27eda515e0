"""One small process a job: holds the card leases, is the subreaper of the job's tree, and ends it whole.

The tree is ended when the job exits (what it left behind), at its limit, when the runner says so, and when the runner
dies (its end of the pipe closes). The cards are freed only when no process of the job is left.

Forked from the zygote; standard library only. Standard input: one line of JSON (see `Supervisor`), then the words
`cancel` and `kill`. Standard output: one line of JSON an event, `started` and `ended`.
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
import select
import signal
import time

from matrix.host import process
from matrix.host.joblog import JobLog
from matrix.host.leases import Lease

_CHUNK = 1 << 16
_SURVIVORS_PAUSE = 0.2  # seconds between looks at processes that KILL did not end
_OOM_STEP = 250  # of 1000: as if the job used a quarter of the memory more than its runner


class Supervisor:
    """Runs one job as its plan says.

    The plan: argv, cwd, env, log, timeout, tag, lease_dir, result (file), stacks (file), py_spy (path or null),
    container (tool and label, or null), and in seconds `term` and `kill` (what the tree gets after either signal),
    `leftover` (what remains after a normal exit gets before KILL), `orphan` (what the tree gets before KILL when the
    runner is gone) and `stacks_limit`.
    """

    def __init__(self, plan: dict[str, object], lease: dict[str, int], rest: bytes) -> None:
        self.plan = plan
        self.log = JobLog(_str(plan["log"]))
        for fd in lease.values():
            os.set_inheritable(fd, False)  # the job must not hold its own lease
        self.lease = Lease(_str(plan["lease_dir"]), _str(plan["tag"]), lease)
        self.pid = 0
        self.status: int | None = None  # as waitpid gives it, of the job's first process
        self.exited = -1  # pidfd of the job's first process
        self.output = -1
        self.open = False  # the output
        self.commands = rest
        self.listening = True
        self.peak = 0  # bytes
        self.sample_at = 0.0
        self.sample_every = 0.05
        self.poll = select.poll()

    def run(self) -> None:
        """Start the job, follow it to its end, end its tree, report, and free the cards."""
        started = time.time()
        deadline = time.monotonic() + _float(self.plan["timeout"])
        event: dict[str, object] = {"event": "ended", "started": started}
        try:
            self.start()
        except OSError as e:
            text = f"cannot start {e.filename or _argv(self.plan)[0]!r}: {e.strerror}"
            code = 127 if e.errno == errno.ENOENT else 126
            event |= {"why": "exit", "exit_code": code, "remark": self.log.remark(text)}
            self.finish(event, [])
            return
        if self.lease.fds:
            me, leader = (getattr(process.read(pid), "start", 0) for pid in (os.getpid(), self.pid))
            self.lease.update(pid=os.getpid(), start=me, sid=self.pid, sid_start=leader)
        self.tell({"event": "started", "pid": self.pid, "supervisor": os.getpid()})
        why = self.follow(deadline)
        event["why"] = why
        if why == "timeout":
            limit = _float(self.plan["timeout"])
            event["remark"] = self.log.remark(f"reached its limit of {limit:g} s; every process of the job is ended")
            self.stacks()
        elif why != "exit":
            event["remark"] = self.log.remark("the runner is gone" if why == "lost" else "the run was cancelled")
        left = self.end_tree(why)
        self.drain()
        if self.status is not None:
            event["exit_code"] = os.waitstatus_to_exitcode(self.status)
        self.finish(event, left)

    def start(self) -> None:
        """Fork and execute the job in a session of its own.

        Raises:
            OSError: the program or the working folder is not there, or may not be used.

        """
        self.output, out = os.pipe2(os.O_CLOEXEC)
        failed, fail = os.pipe2(os.O_CLOEXEC)
        supervisor = os.getpid()
        self.pid = os.fork()
        if self.pid == 0:
            try:
                self.become_job(out, supervisor)
            except OSError as e:
                what = e.filename if isinstance(e.filename, str) else _argv(self.plan)[0]
                os.write(fail, json.dumps([e.errno, e.strerror, what]).encode())
            finally:
                os._exit(127)
        os.close(out)
        os.close(fail)
        with os.fdopen(failed, "rb") as f:
            problem = f.read()
        if problem:
            os.waitpid(self.pid, 0)
            raise OSError(*json.loads(problem))
        os.set_blocking(self.output, False)
        self.open = True
        self.exited = os.pidfd_open(self.pid)
        for fd in (self.output, self.exited, 0):
            self.poll.register(fd, select.POLLIN)

    def become_job(self, out: int, supervisor: int) -> None:
        """In the child: set everything as the plan says and execute the job's command."""
        os.setsid()
        process.die_with_parent()
        if os.getppid() != supervisor:
            return  # it died before it could be watched
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        os.dup2(out, 1)
        os.dup2(out, 2)
        for number in (signal.SIGPIPE, signal.SIGXFSZ, signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            signal.signal(number, signal.SIG_DFL)
        _die_first()
        os.chdir(_str(self.plan["cwd"]))
        argv = _argv(self.plan)
        os.execvpe(argv[0], argv, _env(self.plan))  # noqa: S606

    def follow(self, deadline: float) -> str:
        """Pass output on until the job exits, its limit is reached, or the runner says stop or is gone."""
        while True:
            if self.status is not None:
                return "exit"
            now = time.monotonic()
            if now >= deadline:
                return "timeout"
            if word := self.listen():
                return word
            if now >= self.sample_at:
                self.sample(now)
            self.step(min(deadline, self.sample_at) - now)

    def step(self, wait: float) -> None:
        """Wait for the next event, at most `wait` seconds; pass output on, read commands, reap."""
        for fd, _ in self.poll.poll(max(0.0, wait) * 1000):
            if fd == self.output:
                self.pump()
            elif fd == 0:
                data = os.read(0, _CHUNK)
                self.commands += data
                if not data:
                    self.listening = False
                    self.poll.unregister(0)
            elif fd == self.exited:
                self.poll.unregister(fd)
        self.reap()

    def listen(self) -> str | None:
        """Return what the runner wants: `cancel`, `kill`, or `lost` when it is gone."""
        for word in ("kill", "cancel"):
            if f"{word}\n".encode() in self.commands:
                return word
        return None if self.listening else "lost"

    def pump(self) -> bool:
        """Copy one chunk of output to the log; False when there is none."""
        if not self.open:
            return False
        try:
            chunk = os.read(self.output, _CHUNK)
        except BlockingIOError:
            return False
        if not chunk:
            self.open = False
            self.poll.unregister(self.output)
        self.log.write(chunk)
        return self.open

    def drain(self) -> None:
        """Copy what is left in the pipe; nobody is there to write more, or not even KILL ended them."""
        while self.pump():
            pass

    def reap(self) -> bool:
        """Collect ended children, the job's own and those whose parent died; False when none is left."""
        while True:
            try:
                pid, status, used = os.wait4(-1, os.WNOHANG)
            except ChildProcessError:
                return False
            if pid == 0:
                return True
            self.peak = max(self.peak, used.ru_maxrss * 1024)  # of one process; `sample` sees the whole tree
            if pid == self.pid:
                self.status = status

    def tree(self) -> list[process.Process]:
        """List the living processes of the job. All descend from here: a subreaper's orphans come back to it."""
        return process.descendants([os.getpid()], process.table())

    def sample(self, now: float) -> None:
        """Measure the tree's resident memory; at first often, then every two seconds."""
        total = 0
        for p in self.tree():
            with contextlib.suppress(OSError, IndexError, ValueError), open(f"/proc/{p.pid}/statm", "rb") as f:
                total += int(f.read().split()[1])
        self.peak = max(self.peak, total * os.sysconf("SC_PAGE_SIZE"))
        self.sample_every = min(2.0, self.sample_every * 2)
        self.sample_at = now + self.sample_every

    def stacks(self) -> None:
        """Write where every Python process hangs, before they are ended."""
        from matrix.host import stacks

        py_spy = self.plan["py_spy"]
        stacks.dump(
            self.tree,
            _str(self.plan["stacks"]),
            py_spy if isinstance(py_spy, str) else None,
            _float(self.plan["stacks_limit"]),
            self.log.remark,
        )

    def end_tree(self, why: str) -> list[int]:
        """End every process of the job, TERM before KILL, each with its own limit; return the pids that are left."""
        if self.reap():
            limit = {"exit": "leftover", "lost": "orphan", "kill": None}.get(why, "term")
            if why == "exit":
                self.log.remark(f"the job ended and left {len(self.tree())} processes behind; they are ended")
            if limit:
                self.terminate(time.monotonic() + _float(self.plan[limit]))
        self.end_container()
        return process.kill_all(self.living, _float(self.plan["kill"]), self.step) if self.reap() else []

    def living(self) -> list[process.Process]:
        """Reap, then list what is left of the tree."""
        return self.tree() if self.reap() else []

    def terminate(self, until: float) -> None:
        """Send TERM once to every process, also to those that appear meanwhile, and wait for their end."""
        told: set[tuple[int, int]] = set()
        while time.monotonic() < until and self.listen() != "kill":
            living = self.living()
            if not living:
                return
            for p in living:
                if (p.pid, p.start) not in told:
                    told.add((p.pid, p.start))
                    process.send(p, signal.SIGTERM)
            self.step(0.02)

    def end_container(self) -> None:
        """Remove the job's container, whose processes are not ours, by its label."""
        container = self.plan["container"]
        if not isinstance(container, dict):
            return
        from matrix.host import containers

        if problem := containers.end(container["tool"], container["label"], _env(self.plan)):
            self.log.remark(problem)

    def finish(self, event: dict[str, object], left: list[int]) -> None:
        """Write and tell the result, wait for processes that not even KILL ended, then free the cards."""
        if left:
            self.log.remark(f"processes {left} do not end; the cards stay leased until they do")
        ended = {**event, "ended": time.time(), "left": left, "peak_memory": self.peak or None, "lines": self.log.lines}
        ended["log_problem"] = self.log.problem
        result = _str(self.plan["result"])
        with contextlib.suppress(OSError):  # a full disk; the runner hears it by the pipe
            with open(f"{result}.tmp", "w") as f:
                json.dump(ended, f)
            os.replace(f"{result}.tmp", result)
        if not left:
            self.lease.release()
        self.tell(ended)
        while left and self.living():
            time.sleep(_SURVIVORS_PAUSE)
        self.lease.release()

    def tell(self, event: dict[str, object]) -> None:
        """Send an event to the runner, if it is still there."""
        with contextlib.suppress(BrokenPipeError):
            os.write(1, json.dumps(event).encode() + b"\n")


def _die_first() -> None:
    """When the host's memory is full, let the kernel end a job rather than the runner or other programs of its size."""
    with contextlib.suppress(OSError, ValueError), open("/proc/self/oom_score_adj", "r+b", buffering=0) as f:
        f.write(b"%d" % min(1000, int(f.read()) + _OOM_STEP))


def _str(value: object) -> str:
    assert isinstance(value, str)
    return value


def _float(value: object) -> float:
    assert isinstance(value, int | float)
    return float(value)


def _env(plan: dict[str, object]) -> dict[str, str]:
    env = plan["env"]
    assert isinstance(env, dict)
    return env


def _argv(plan: dict[str, object]) -> list[str]:
    argv = plan["argv"]
    assert isinstance(argv, list)
    return argv


def main(lease: dict[str, int]) -> None:
    """Read the plan and run it, with the descriptors of its leases. TERM, INT and HUP count as `cancel`."""
    process.become_subreaper()
    data = b""
    while b"\n" not in data:
        chunk = os.read(0, _CHUNK)
        if not chunk:
            return  # the runner died before it could say what to do
        data += chunk
    line, rest = data.split(b"\n", 1)
    supervisor = Supervisor(json.loads(line), lease, rest)

    def cancel(_number: int, _frame: object) -> None:
        supervisor.commands += b"cancel\n"

    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, cancel)
    supervisor.run()
