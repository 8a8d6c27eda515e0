"""An engine on pretended cards, a job that will not die, and a runner process that can be killed."""

import asyncio
import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from matrix.engine.base import Launch
from matrix.engine.local import Limits, LocalEngine
from matrix.host import process
from matrix.host.gpus import pretended
from matrix.host.leases import Leases

QUICK = Limits(term=0.3, kill=5.0, leftover=0.3, orphan=0.3, stacks=5.0)

# A tree of every kind of process that outlives a careless runner: all ignore TERM; one is a plain child, one leads a
# session of its own, one was forked twice and left the session, one has an empty environment.
NASTY = """
import os, signal, sys, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
def note():
    with open(sys.argv[1], "a") as f:
        f.write(f"{os.getpid()}\\n")
def stay():
    note()
    while True:
        time.sleep(60)
if os.fork() == 0:
    stay()
if os.fork() == 0:
    os.setsid(); stay()
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        stay()
    os._exit(0)
if os.fork() == 0:
    code = "import os, sys, time; open(sys.argv[1], 'a').write(f'{os.getpid()}\\\\n'); time.sleep(600)"
    os.execve(sys.executable, [sys.executable, "-c", code, sys.argv[1]], {})
print("nasty", flush=True)
stay()
"""
NASTY_COUNT = 5

RUNNER = """
import asyncio, json, os, sys
from pathlib import Path
from matrix.engine.base import Launch
from matrix.engine.local import Limits, LocalEngine
from matrix.host.gpus import pretended
folder, argv = Path(sys.argv[1]), json.loads(sys.argv[2])
async def main():
    engine = LocalEngine(pretended("4"), Limits(term=0.3, orphan=0.3), str(folder / "leases"), owns_process=True)
    launch = Launch(tag=f"{folder}/job", argv=tuple(argv), cwd=folder, env=dict(os.environ), log=folder / "job.log",
                    scratch=folder / "scratch", timeout=120, cards=engine.cards[:2])
    run = await engine.start(launch)
    while run.supervisor is None:
        await asyncio.sleep(0.01)
    print(run.supervisor, flush=True)
    print(await run.wait(), flush=True)
asyncio.run(main())
"""


def wait_for(condition, limit=20.0):
    """Poll until the condition holds; the seconds that it took."""
    begin = time.monotonic()
    while not condition():
        assert time.monotonic() - begin < limit, "did not come true"
        time.sleep(0.005)
    return time.monotonic() - begin


class Bench:
    """One engine in a folder of its own."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.leases = Leases(str(folder / "leases"))
        self.cards = pretended("4")
        self.pids = folder / "pids"

    def engine(self, limits=QUICK):
        return LocalEngine(self.cards, limits, self.leases.directory)

    def launch(self, *argv, cards=2, timeout=60.0, name="job", **changes):
        return Launch(
            **{
                "tag": f"{self.folder}/{name}", "argv": argv, "cwd": self.folder, "env": dict(os.environ),
                "log": self.folder / f"{name}.log", "scratch": self.folder / name, "timeout": timeout,
                "cards": self.cards[:cards], **changes,
            }
        )  # fmt: skip

    def nasty(self, **changes):
        return self.launch(sys.executable, "-c", NASTY, str(self.pids), **changes)

    def nasty_pids(self):
        return [int(n) for n in self.pids.read_text().split()] if self.pids.exists() else []

    def nasty_is_up(self):
        return len(self.nasty_pids()) == NASTY_COUNT

    def living(self):
        found = [process.read(pid) for pid in self.nasty_pids()]
        return [p.pid for p in found if p and p.alive]

    def all_free(self):
        return len(self.leases.free([c.uuid for c in self.cards])) == len(self.cards)

    def log(self, name="job"):
        return (self.folder / f"{name}.log").read_text()

    def run(self, launch, *, then=None, limits=QUICK):
        """Run one job to its end in an event loop of its own; `then(run)` is called beside it."""

        async def go():
            engine = self.engine(limits)
            try:
                run = await engine.start(launch)
                assert run is not None
                if then:
                    await asyncio.to_thread(then, run)
                return await run.wait()
            finally:
                engine.close()

        return asyncio.run(go())

    def runner(self, code=NASTY, count=NASTY_COUNT):
        """Start a runner process with the nasty job; it and the pid of its supervisor."""
        argv = json.dumps([sys.executable, "-c", code, str(self.pids)])
        child = subprocess.Popen(
            [sys.executable, "-c", RUNNER, str(self.folder), argv], stdout=subprocess.PIPE, text=True
        )
        supervisor = int(child.stdout.readline())
        wait_for(lambda: len(self.nasty_pids()) == count)
        return child, supervisor


@pytest.fixture
def bench(tmp_path):
    bench = Bench(tmp_path)
    yield bench
    for pid in bench.living():  # a failed test must not leave them to others
        os.kill(pid, 9)
