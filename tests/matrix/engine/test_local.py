"""The engine of one host, with real processes."""

import asyncio
import os
import signal
import sys
import time
from pathlib import Path

import pytest

from matrix.host import process
from matrix.host.leases import Busy

from .conftest import wait_for

PYTHON_TREE = """
import os, subprocess, sys, time
def waits_for_nobody():
    time.sleep(600)
subprocess.Popen([sys.executable, "-c", "import time\\ndef in_the_child():\\n    time.sleep(600)\\nin_the_child()"])
subprocess.Popen(["sleep", "600"])
if os.fork() == 0:
    def in_the_fork():
        time.sleep(600)
    in_the_fork()
waits_for_nobody()
"""


def text(log):
    """The lines without their stamps."""
    return [line.split("Z ", 1)[1] for line in log.splitlines()]


def test_exit_code_output_and_times_are_those_of_the_job(bench):
    before = time.time()
    out = bench.run(bench.launch("bash", "-c", "echo out; echo err >&2; exit 3"))
    assert (out.why, out.exit_code, out.signal, out.left) == ("exit", 3, None, ())
    assert before <= out.started <= out.ended <= time.time()
    assert text(bench.log()) == ["out", "err"]


def test_output_is_kept_byte_for_byte_behind_the_stamps(bench):
    code = r"import os; os.write(1, b'\xff\x00 bar\r 1%\r 2%\n\n  end'); os.write(1, b' of line\nlast without newline')"
    bench.run(bench.launch(sys.executable, "-c", code))
    raw = (bench.folder / "job.log").read_bytes()
    lines = [line.split(b"Z ", 1)[1] for line in raw.split(b"\n")]
    assert lines == [b"\xff\x00 bar\r 1%\r 2%", b"", b"  end of line", b"last without newline"]


def test_a_big_output_is_whole(bench):
    out = bench.run(bench.launch("bash", "-c", "seq 200000"))
    assert out.exit_code == 0
    assert text(bench.log()) == [str(i) for i in range(1, 200001)]


def test_a_signal_is_named(bench):
    out = bench.run(bench.launch("bash", "-c", "kill -SEGV $$"))
    assert (out.exit_code, out.signal) == (128 + signal.SIGSEGV, "SIGSEGV")


@pytest.mark.parametrize(("argv", "code"), [(("no-such-program",), 127), (("/etc/passwd",), 126)])
def test_a_command_that_cannot_start_says_so_in_the_log(bench, argv, code):
    out = bench.run(bench.launch(*argv))
    assert out.exit_code == code
    assert f"cannot start '{argv[0]}'" in bench.log()
    assert out.remark == 1
    assert bench.all_free()


def test_a_missing_working_folder_says_so(bench):
    out = bench.run(bench.launch("true", cwd=bench.folder / "gone"))
    assert out.exit_code == 127
    assert "gone" in bench.log()


def test_the_job_sees_its_cards_and_no_others(bench):
    bench.run(bench.launch("bash", "-c", "echo $CUDA_VISIBLE_DEVICES $CUDA_DEVICE_ORDER"))
    assert text(bench.log()) == ["0,1 PCI_BUS_ID"]
    bench.run(bench.launch("bash", "-c", "echo ${CUDA_VISIBLE_DEVICES-unset}", cards=0, name="cpu"))
    assert text(bench.log("cpu")) == [""]


def test_the_job_holds_no_descriptor_of_the_runner(bench):
    bench.run(bench.launch("bash", "-c", "ls /proc/$$/fd; true"))
    assert text(bench.log()) == ["0", "1", "2"] or text(bench.log()) == ["0", "1", "2", "255"]


def test_cards_are_leased_while_the_job_runs_and_say_who_has_them(bench):
    seen = {}

    def look(run):
        wait_for(lambda: any("sid" in h for h in bench.leases.holders("PRETENDED-0")))
        seen["free"] = bench.leases.free([c.uuid for c in bench.cards])
        seen["holder"] = bench.leases.holders("PRETENDED-0")[0]
        run.cancel()

    bench.run(bench.launch("sleep", "60", facts={"job": "a"}), then=look)
    assert seen["free"] == ["PRETENDED-2", "PRETENDED-3"]
    assert seen["holder"]["job"] == "a"
    assert seen["holder"]["tag"] == f"{bench.folder}/job"
    assert bench.all_free()
    assert bench.leases.holders("PRETENDED-0") == []


def test_what_a_job_leaves_behind_is_ended_and_it_still_passes(bench):
    out = bench.run(bench.launch("bash", "-c", f"(trap '' TERM; setsid sleep 600 & echo $! > {bench.pids}); exit 0"))
    assert (out.why, out.exit_code) == ("exit", 0)
    assert bench.nasty_pids()
    assert bench.living() == []
    assert "left 1 processes behind" in bench.log()


def test_peak_memory_is_measured(bench):
    code = "import time; x = bytearray(200 << 20); time.sleep(0.6)"
    out = bench.run(bench.launch(sys.executable, "-c", code))
    assert 200 << 20 <= out.peak_memory < 400 << 20


@pytest.mark.parametrize("py_spy", [True, False], ids=["py-spy", "faulthandler"])
def test_at_the_limit_every_python_process_says_where_it_hangs(bench, py_spy, monkeypatch):
    if not py_spy:
        monkeypatch.setattr("shutil.which", lambda *_, **__: None)
    out = bench.run(bench.launch(sys.executable, "-c", PYTHON_TREE, timeout=1.5))
    assert out.why == "timeout"
    log = bench.log()
    for function in ("waits_for_nobody", "in_the_child", "in_the_fork"):
        assert function in log.replace("def ", "").split("Python stacks of", 1)[1], log
    assert "(sleep 600): no Python process" in log
    assert "reached its limit of 1.5 s" in log.splitlines()[out.remark - 1]


def test_a_python_without_handler_gets_no_signal(bench, monkeypatch):
    """It would die of it. Here it lives until TERM and says that it did."""
    monkeypatch.setattr("shutil.which", lambda *_, **__: None)
    code = "import signal, time; signal.signal(15, lambda *_: (print('got TERM', flush=True), exit(0))); time.sleep(60)"
    bench.run(bench.launch(sys.executable, "-I", "-c", code, timeout=1.0))
    assert "no Python stacks: it has no handler" in bench.log()
    assert text(bench.log())[-1] == "got TERM"


TURNS = [pytest.param(i, marks=[pytest.mark.soak] if i >= 2 else []) for i in range(20)]


@pytest.mark.parametrize("turn", TURNS)
def test_hang_leaves_nothing(bench, turn):
    out = bench.run(bench.nasty(timeout=1.0))
    assert out.why == "timeout"
    assert bench.nasty_is_up()
    assert (bench.living(), bench.all_free()) == ([], True)


@pytest.mark.parametrize("how", ["cancel", "kill"])
@pytest.mark.parametrize("turn", TURNS)
def test_cancel_leaves_nothing(bench, turn, how):
    def stop(run):
        wait_for(bench.nasty_is_up)
        getattr(run, how)()

    out = bench.run(bench.nasty(), then=stop)
    assert out.why == how
    assert (bench.living(), bench.all_free()) == ([], True)


@pytest.mark.parametrize("turn", TURNS)
def test_killed_runner_leaves_nothing(bench, turn):
    runner, _ = bench.runner()
    runner.kill()
    wait_for(bench.all_free)
    assert bench.living() == []
    runner.wait()
    runner.stdout.close()


@pytest.mark.parametrize("turn", TURNS)
def test_killed_supervisor_leaves_nothing(bench, turn):
    runner, supervisor = bench.runner()
    os.kill(supervisor, signal.SIGKILL)
    wait_for(bench.all_free)
    assert bench.living() == []
    assert "why='lost'" in runner.communicate(timeout=20)[0]
    assert "supervisor ended before the job" in bench.log()


@pytest.mark.parametrize("turn", TURNS)
def test_with_runner_and_supervisor_killed_the_next_to_lease_ends_the_old_job(bench, turn):
    runner, supervisor = bench.runner()
    os.kill(runner.pid, signal.SIGSTOP)  # else it would clean up
    os.kill(supervisor, signal.SIGKILL)
    runner.kill()
    runner.wait()
    runner.stdout.close()
    wait_for(lambda: not ((p := process.read(supervisor)) and p.alive))
    mine = [c.uuid for c in bench.cards[:2]]
    with pytest.raises(Busy, match="its last job"):  # one emptied its environment: no tag, but the job's session
        bench.leases.take(mine, "next")
    (untagged,) = bench.living()
    os.kill(untagged, signal.SIGKILL)
    wait_for(lambda: not bench.living())
    bench.leases.take(mine, "next").release()
    assert bench.all_free()


def test_a_dead_zygote_is_replaced_and_its_supervisors_go_on(bench):
    async def go():
        engine = bench.engine()
        first = await engine.start(bench.launch("bash", "-c", "sleep 0.5; echo done", name="first"))
        await asyncio.sleep(0.2)
        os.kill(engine._nursery.pid, signal.SIGKILL)
        second = await engine.start(bench.launch("echo", "two", cards=0, name="second"))
        try:
            return await first.wait(), await second.wait()
        finally:
            engine.close()

    first, second = asyncio.run(go())
    assert (first.why, first.exit_code) == (second.why, second.exit_code) == ("exit", 0)
    assert text(bench.log("first")) == ["done"]
    assert text(bench.log("second")) == ["two"]


HIDDEN = """
import os, sys, time
def note():
    open(sys.argv[1], "a").write(f"{os.getpid()}\\n")
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        code = "import os, sys, time; open(sys.argv[1], 'a').write(f'{os.getpid()}\\\\n'); time.sleep(600)"
        os.execve(sys.executable, [sys.executable, "-c", code, sys.argv[1]], {})
    os._exit(0)
note()
time.sleep(600)
"""


def test_without_supervisor_even_what_hid_tag_and_session_is_ended(bench):
    runner, supervisor = bench.runner(HIDDEN, 2)
    os.kill(supervisor, signal.SIGKILL)
    assert "why='lost'" in runner.communicate(timeout=30)[0]
    assert (bench.living(), bench.all_free()) == ([], True)


def test_when_memory_is_full_the_kernel_ends_a_job_before_its_runner(bench):
    own = int(Path("/proc/self/oom_score_adj").read_text())
    assert bench.run(bench.launch("cat", "/proc/self/oom_score_adj")).exit_code == 0
    assert int(bench.log().split()[-1]) == min(1000, own + 250)
