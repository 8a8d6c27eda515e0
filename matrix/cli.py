"""The command `matrix`. Verbs are loaded only when they are called, so that help answers at once."""

from __future__ import annotations

import sys
from typing import NoReturn

import click

from matrix.errors import MatrixError, by_system
from matrix.help import EXIT_CODES, READER_GONE, LazyGroup, complain

# verb -> (module with a click command named `command`, one line of help)
VERBS: dict[str, tuple[str, str]] = {
    "init": ("matrix.commands.init", "Write a first matrix.yaml from what is found: matrix init --dry-run"),
    "doctor": ("matrix.commands.doctor", "Check cards, driver, Slurm, history, disk, clock: matrix doctor"),
    "list": ("matrix.commands.list", "List the jobs of a matrix: matrix list --only 'qwen*'"),
    "plan": ("matrix.commands.plan", "Show what would run where and why: matrix plan --changed-since origin/main"),
    "run": ("matrix.commands.run", "Run the matrix: matrix run --only qwen-pt"),
    "show": ("matrix.commands.show", "Show runs, a run or a job: matrix show last qwen-sft"),
    "triage": ("matrix.commands.triage", "Say what failed first in any CI log: matrix triage job.log.gz"),
    "rerun": ("matrix.commands.rerun", "Run jobs of a run again: matrix rerun last --failed"),
    "serve": ("matrix.commands.serve", "Serve the page of runs, cards, logs and losses: matrix serve"),
    "history": ("matrix.commands.history", "Ask what is remembered: matrix history query --since 7d"),
    "flaky": ("matrix.commands.flaky", "Tests that fail now and then: matrix flaky probe tests/test_a.py::test_b"),
    "run-job": ("matrix.commands.run_job", "Run one job as a cell of a workflow: matrix run-job qwen-sft --out cell"),
    "merge": ("matrix.commands.merge", "Merge the runs of many runners into one: matrix merge downloaded/ -o merged"),
    "baseline": ("matrix.commands.baseline", "Propose a new baseline: matrix baseline update qwen-sft --from last"),
    "prune": ("matrix.commands.prune", "Remove old runs: matrix prune --older 14d --dry-run"),
    "bisect": ("matrix.commands.bisect", "Find the commit that broke a job: matrix bisect JOB --good v1.2"),
    "completion": ("matrix.commands.completion", "Print what completes the command in a shell: matrix completion bash"),
    "rules": ("matrix.commands.rules", "Show and check the rules of triage: matrix rules show disk_full"),
    "schema": ("matrix.commands.schema", "Print the JSON Schema of matrix files: matrix schema > matrix.schema.json"),
}


class _Verbs(LazyGroup):
    """The verbs of the table."""

    verbs = VERBS


@click.group(cls=_Verbs, context_settings={"help_option_names": ["-h", "--help"]}, epilog=EXIT_CODES)
@click.version_option(package_name="dsv4-ci")
def cli() -> None:
    """Run the test matrix of a model repository and say what failed first."""


def _fail(e: MatrixError) -> NoReturn:
    print(f"matrix: {e.message}", file=sys.stderr)
    if e.advice:
        print(f"  {e.advice}", file=sys.stderr)
    sys.exit(e.exit_code)


def main() -> None:
    """Entry point: maps errors to the exit codes of the contract."""
    stream = sys.stdout
    try:
        code = cli.main(standalone_mode=False)
    except click.ClickException as e:
        complain(e, "matrix")
        sys.exit(2)
    except click.Abort:
        sys.exit(130)
    except MatrixError as e:
        _fail(e)
    except SystemExit as e:  # click's own, if it put another stream in place: who read the output went away
        sys.exit(READER_GONE if sys.stdout is not stream else e.code)
    except OSError as e:  # a full disk, a folder that may not be written: the host's, not ours
        _fail(by_system(e))
    sys.exit(code if isinstance(code, int) else 0)
