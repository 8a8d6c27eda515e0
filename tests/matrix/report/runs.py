"""Runs to report on, built as the runner builds them."""

from matrix.records import Attempt, CardRecord, Fact, JobRecord, RunRecord, SpecRef, Status
from matrix.triage.model import Cause, Consequence

CARD = CardRecord(uuid="GPU-1", index=2, model="H20")
TIME = {"started": "2026-12-01T09:30:11Z", "ended": "2026-12-01T09:31:46Z"}


def cause(category: str, text: str, line: int | None = None, **more) -> Cause:
    return Cause(
        category=category, rule="r", confidence=0.9, text=text, line=line, signature="8f3c2a1b9d04e6f7", **more
    )


def job(name: str, status: str, *causes: Cause, suite: str = "Unit tests", ran: bool = True, **more) -> JobRecord:
    exit_code = {"passed": 0, "failed": 1}.get(status)
    attempt = Attempt(n=1, log=f"logs/{name}/1.log", exit_code=exit_code, cards=[CARD], causes=list(causes), **TIME)
    return JobRecord(name=name, suite=suite, status=Status(status), attempts=[attempt] if ran else [], **more)


def run_of(*jobs: JobRecord, status: str = "failed", **more) -> RunRecord:
    values = {
        "id": "20261201-093011-7f3a",
        "spec": SpecRef(path="matrix.yaml", sha256="ab"),
        "engine": "local",
        "host": "gpu-3",
        "commit": "a13fcde3f809a011edff0a22c809bd0a1403f46f",
        "started": "2026-12-01T09:30:11Z",
        "ended": "2026-12-01T09:33:20Z",
        "status": Status(status),
        "jobs": list(jobs),
    }
    return RunRecord(**(values | more))


def cascade() -> RunRecord:
    """A run as in the original report: a chain with one root, an abort after training, a green job."""
    multi = "Integration test (H20, multi-card)"
    return run_of(
        job("unit", "passed"),
        job(
            "qwen-sft",
            "failed",
            cause("handoff_missing", "hand-off 'qwen-sft' cannot be used: checkpoints/qwen-sft: is not there"),
            suite=multi,
        ),
        job("qwen-lora", "blocked", suite=multi, ran=False, blocked_by=["qwen-sft"], needs=["qwen-sft"]),
        job("qwen-eval", "blocked", suite=multi, ran=False, blocked_by=["qwen-lora"], needs=["qwen-lora"]),
        job(
            "qwen3vl-fsdp",
            "failed",
            cause(
                "rank_abort_teardown",
                "terminate called without an active exception",
                3,
                rank=0,
                fix={"en": "Destroy the process group before the exit."},
                consequences=[Consequence(line=5, category="worker_exception", text="exit code -6")],
            ),
            suite=multi,
            facts=[Fact(key="training_finished", value=True, source="logs/qwen3vl-fsdp/1.log:2")],
            failing_tests=["tests/a.py::test_b[bf16]"],
        ),
        job("flaky", "failed", allowed=True),
        job("gemma4", "skipped", ran=False, reason="not selected"),
    )
