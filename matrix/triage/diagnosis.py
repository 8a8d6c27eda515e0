"""From one log, or one folder of rank logs, to its report."""

from __future__ import annotations

import functools
from pathlib import Path

from matrix.triage import folder, ranks
from matrix.triage.analysis import analyse, scanner_for
from matrix.triage.causes import report
from matrix.triage.model import LogReport
from matrix.triage.read import open_log
from matrix.triage.ruleset import RuleSet, load_rules, user_rules


@functools.lru_cache(maxsize=1)
def default_rules() -> RuleSet:
    """Load the built-in rules and those of the repository that the command runs in, once."""
    return load_rules([user_rules(Path.cwd())])


def diagnose(
    path: str | Path,
    *,
    exit_code: int | None = None,
    job: str | None = None,  # noqa: ARG001 - callers know it; reports that name the job will use it
    rules: RuleSet | None = None,
) -> LogReport:
    """Read a log (plain, gz, zst, `-`) or a folder of rank logs and say what failed first.

    `exit_code` is the job's own, where it is known: 0 means that nothing failed, whatever the log says.
    Raises UsageError if the log cannot be read.
    """
    rules = rules or default_rules()
    if Path(path).is_dir():
        return ranks.diagnose_folder(folder.read_folder(Path(path)), str(path), exit_code, rules)
    with open_log(str(path)) as stream:
        return report(str(path), analyse(scanner_for(rules).scan(stream), rules, exit_code), rules)
