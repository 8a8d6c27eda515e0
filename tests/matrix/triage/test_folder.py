"""One diagnosis for a folder of rank logs, in the shapes that launchers leave."""

import json
from pathlib import Path

import pytest

from matrix.errors import UsageError
from matrix.triage import diagnose

STEPS = "".join(f"[2026-12-01 01:56:{20 + i}] step {i}/6 rank {{rank}} loss 0.5\n" for i in range(1, 4))
OWN = 'Traceback (most recent call last):\n  File "/w/train.py", line 13, in <module>\n    packs[9]\nIndexError: list index out of range\n'
LOST = (
    'Traceback (most recent call last):\n  File "/w/train.py", line 31, in <module>\n    dist.all_reduce(g)\n'
    "RuntimeError: [gloo/transport/tcp/pair.cc:584] TIMEOUT self_rank = {rank} pair_rank = 1 peer_str = [127.0.0.1]:6023\n"
)
TERMINATED = (
    "\n--------------------------------------\nC++ Traceback (most recent call last):\n--------------------------------------\n"
    "{where}\n\n----------------------\nError Message Summary:\n----------------------\n"
    "FatalError: `Termination signal` is detected by the operating system.\n"
)
SHAPES = {
    "paddle": "workerlog.{rank}",
    "torchrun": "run/attempt_0/{rank}/stderr.log",
    "plain": "logs/rank{rank}.log",
    "dotted": "worker.{rank}.log",
    "per rank folder": "rank_{rank}/output.log",
    "numbers": "{rank}.out",
}


def folder(root: Path, shape: str, texts: list[str], **files: str) -> Path:
    for rank, text in enumerate(texts):
        path = root / SHAPES[shape].format(rank=rank)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(STEPS.format(rank=rank) + text.replace("{rank}", str(rank)))
    for name, text in files.items():
        (root / name).write_text(text)
    return root


@pytest.mark.parametrize("shape", SHAPES)
def test_the_rank_that_raised_is_named_not_the_ones_that_lost_it(tmp_path, shape):
    found = diagnose(folder(tmp_path, shape, [LOST, OWN, LOST]))
    cause = found.causes[0]
    assert (found.status, cause.category, cause.rank, cause.line) == ("failed", "worker_exception", 1, 7)
    assert cause.file == SHAPES[shape].format(rank=1)
    assert {c.file for c in cause.consequences} == {SHAPES[shape].format(rank=r) for r in (0, 2)}


def test_of_several_ranks_with_own_failures_the_first_in_time_is_the_cause(tmp_path):
    early = "[2026-12-01 01:56:30] x\n" + OWN
    late = "[2026-12-01 01:56:40] x\n" + OWN.replace("IndexError", "ZeroDivisionError")
    found = diagnose(folder(tmp_path, "paddle", [late, LOST, early]))
    assert found.causes[0].rank == 2


def test_torch_elastic_s_own_time_of_each_failure_is_used(tmp_path):
    root = folder(tmp_path, "torchrun", [OWN, OWN])
    for rank, stamp in ((0, 1_800_000_050), (1, 1_800_000_001)):
        path = root / f"run/attempt_0/{rank}/error.json"
        path.write_text(json.dumps({"message": {"message": "x", "extraInfo": {"timestamp": str(stamp)}}}))
    assert diagnose(root).causes[0].rank == 1


def test_only_the_last_attempt_of_an_elastic_run_counts(tmp_path):
    root = folder(tmp_path, "torchrun", [LOST, OWN])
    for rank, text in enumerate([OWN.replace("IndexError", "KeyError"), LOST]):
        path = root / f"run/attempt_1/{rank}/stderr.log"
        path.parent.mkdir(parents=True)
        path.write_text(text)
    assert diagnose(root).causes[0].rank == 0


def test_a_rank_that_just_stops_is_the_cause_when_the_others_lost_it(tmp_path):
    found = diagnose(folder(tmp_path, "paddle", [LOST + TERMINATED.format(where="No stack"), ""], exit_code="241"))
    assert (found.causes[0].rank, found.causes[0].file, found.causes[0].line) == (1, "workerlog.1", 3)


def test_in_a_hang_the_rank_that_did_not_reach_the_collective_is_named_with_where_it_stood(tmp_path):
    waiting = TERMINATED.format(where="0   paddle::distributed::ProcessGroupGloo::AllReduce(phi::DenseTensor*)")
    absent = TERMINATED.format(where="No stack trace in paddle")
    found = diagnose(folder(tmp_path, "paddle", [waiting, absent, waiting], exit_code="124"))
    cause = found.causes[0]
    assert (cause.category, cause.rank, cause.line) == ("job_timeout", 1, 3)
    assert "Ranks 0, 2 waited" in cause.fix["en"]


def test_a_collective_that_timed_out_names_the_rank_that_did_not_arrive(tmp_path):
    late = "[rank0]:[E1201 01:58:00 ProcessGroupNCCL.cpp:616] [Rank 0] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=7, OpType=ALLREDUCE) ran for 600000 milliseconds before timing out.\n"
    found = diagnose(folder(tmp_path, "plain", [late, "", late], exit_code="1"))
    assert (found.causes[0].category, found.causes[0].rank) == ("collective_timeout", 1)


def test_a_folder_whose_job_exited_with_0_passed(tmp_path):
    found = diagnose(folder(tmp_path, "paddle", ["done\n", "done\n"], launcher_exit_code="0"))
    assert (found.status, found.causes) == ("passed", [])


def test_a_folder_without_logs_is_a_user_s_error(tmp_path):
    (tmp_path / "model.safetensors").write_bytes(b"x")
    with pytest.raises(UsageError, match="no log in this folder"):
        diagnose(tmp_path)
