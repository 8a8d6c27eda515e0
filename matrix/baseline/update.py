"""Makes a new baseline out of what a run measured: a text for a file of the repository, so that review governs it."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from importlib import metadata
from pathlib import Path

from matrix.baseline.losses import agree, baseline_file, job_losses, read_expected
from matrix.baseline.parse import Loss
from matrix.baseline.record import FormError
from matrix.errors import UsageError
from matrix.records import Attempt, JobRecord, RunRecord
from matrix.spec.job import Job, LossBaseline

_MISMATCHES = frozenset({"loss_mismatch", "baseline_exceeded"})
_PACKAGES = ("paddlepaddle", "paddlepaddle-gpu", "paddleformers", "paddlefleet", "torch", "transformers", "numpy")
_PLAIN = re.compile(r"[-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?")
_SLACK = 2.0  # seconds by which clocks of files and records may differ


@dataclass(frozen=True, slots=True)
class Proposal:
    """A baseline to review: the file's new text, and what is different from the one that is there."""

    file: Path
    text: str
    steps: int
    new: bool
    changed: int  # losses that differ from the old baseline's, or are not in it
    dropped: int  # losses of the old baseline that the run does not have
    first: str | None  # the first changed loss in words

    @property
    def same(self) -> bool:
        """Whether the baseline that is there already says the same."""
        return not self.new and not self.changed and not self.dropped


def propose(job: Job, record: JobRecord, run: RunRecord, *, root: Path, folder: Path) -> Proposal:
    """Return the baseline that a job's last attempt would give. `root` is matrix.yaml's folder, `folder` the run's.

    Raises:
        UsageError: the job has no loss baseline, did not end well, or printed nothing that can be a baseline.

    """
    if job.loss is None:
        raise UsageError(
            f"job {job.name!r} has no loss baseline",
            'give it one in matrix.yaml, such as `baseline: {loss: "baselines/' + job.name + '.{card}.txt"}`',
        )
    attempt = _finished_attempt(record, run)
    card = _card(record, attempt)
    found = _measured(job, job.loss, attempt, root=root, folder=folder)
    file = baseline_file(job.loss, root, card)
    old = _old(file)
    header = _header(job, attempt, run, card, versions(record, job, root))
    text = "".join(f"# {line}\n" for line in header) + "".join(line(loss) + "\n" for loss in found)
    changed = [x for x in found if x.key not in old or not agree(x.value, old[x.key].value, 0, 0)]
    first = changed[0] if changed and old else None
    before = old[first.key].text if first and first.key in old else "none"
    return Proposal(
        file=file,
        text=text,
        steps=len({x.step for x in found}),
        new=not old,
        changed=len(changed),
        dropped=len(old.keys() - {x.key for x in found}),
        first=f"{first.where}: {before} -> {first.text}" if first else None,
    )


def _finished_attempt(record: JobRecord, run: RunRecord) -> Attempt:
    if not record.attempts:
        raise UsageError(f"job {record.name!r} did not run in {run.id} ({record.status})", "name a run in which it did")
    attempt = record.attempts[-1]
    other = [c for c in attempt.causes if c.category not in _MISMATCHES]
    if attempt.exit_code != 0 or attempt.ended is None or other:
        why = f": {other[0].category}" if other else f", exit {attempt.exit_code}"
        raise UsageError(
            f"job {record.name!r} ended {record.status} in {run.id}{why}",
            "a baseline comes from a run that did its work: mend the job, run it again",
        )
    return attempt


def _card(record: JobRecord, attempt: Attempt) -> str | None:
    models = sorted({c.model for c in attempt.cards})
    if len(models) > 1:
        raise UsageError(f"job {record.name!r} ran on cards of several models ({', '.join(models)})", "ask for one")
    return models[0] if models else None


def _measured(job: Job, baseline: LossBaseline, attempt: Attempt, *, root: Path, folder: Path) -> list[Loss]:
    """Return the losses of an attempt, one a step, all of them numbers."""
    try:
        found, source = job_losses(baseline, folder / attempt.log, root / job.cwd)
    except FormError as e:
        raise UsageError(f"job {job.name!r}: {e}") from None
    if baseline.record is not None and not _written_by(attempt, source):
        raise UsageError(
            f"{source} was not written by this attempt ({attempt.started} to {attempt.ended})",
            "another run has replaced it: run the job again, then update from that run",
        )
    if not found:
        raise UsageError(f"no loss was found in {source}", "lines such as `global_step: 10, loss: 1.234` are read")
    by_key: dict[tuple[int, int, str], Loss] = {}
    for loss in found:
        first = by_key.setdefault(loss.key, loss)
        if not math.isfinite(loss.value):
            raise UsageError(f"{source}:{loss.line}: {loss.where} is {loss.text}: no baseline for other runs")
        if first.value != loss.value:
            raise UsageError(f"{source}: {loss.where} is {first.text} in line {first.line}, {loss.text} in {loss.line}")
    return [by_key[key] for key in sorted(by_key)]


def _written_by(attempt: Attempt, file: Path) -> bool:
    begin = datetime.fromisoformat(attempt.started).timestamp()
    end = datetime.fromisoformat(attempt.ended or attempt.started).timestamp()
    return begin - _SLACK <= file.stat().st_mtime <= end + _SLACK


def _old(file: Path) -> Mapping[tuple[int, int, str], Loss]:
    try:
        return {x.key: x for x in read_expected(file)}
    except FileNotFoundError:
        return {}
    except FormError:
        return {}  # it cannot be read by anyone: what replaces it is new


def line(loss: Loss) -> str:
    """Write a loss as a line of a baseline file; the number as the job printed it, if it is a plain one."""
    micro = f":{loss.micro}" if loss.micro is not None else ""
    value = loss.text if _PLAIN.fullmatch(loss.text) and float(loss.text) == loss.value else repr(loss.value)
    return f"{loss.step}{micro} {value}" + (f" {loss.name}" if loss.name != "loss" else "")


def _header(job: Job, attempt: Attempt, run: RunRecord, card: str | None, found: Mapping[str, str]) -> list[str]:
    lines = [
        f"Losses of job {job.name}; written by `matrix baseline update`. <step> <loss>",
        f"commit: {run.commit or 'unknown'}" + (f" with {run.uncommitted}" if run.uncommitted else ""),
        f"card: {card or 'cpu'}",
        f"cards: {len(attempt.cards)}",
        f"run: {run.id}, attempt {attempt.n}, {attempt.started}",
        *(f"companion: {repository} {commit}" for repository, commit in sorted(run.companions.items())),
        *(f"version: {name} {version}" for name, version in sorted(found.items())),
    ]
    return [" ".join(text.split()) for text in lines]


def versions(record: JobRecord, job: Job, root: Path) -> dict[str, str]:
    """Return the versions that a job reported (facts `version.NAME`, or the meta.json of its record).

    Where it reported none, those of the packages that are installed beside this program, marked as such.
    """
    told = {f.key.removeprefix("version."): str(f.value) for f in record.facts if f.key.startswith("version.")}
    if not told and job.loss and job.loss.record:
        told = _of_meta(root / job.cwd / f"{job.loss.record}.meta.json")
    return told or {name: f"{version} (where the baseline was written)" for name, version in _installed(_PACKAGES)}


def _of_meta(file: Path) -> dict[str, str]:
    try:
        found = json.loads(file.read_bytes()).get("versions")
    except (OSError, ValueError, AttributeError):
        return {}
    return {str(k)[:80]: str(v)[:80] for k, v in found.items()} if isinstance(found, dict) else {}


def _installed(names: Sequence[str]) -> list[tuple[str, str]]:
    found = []
    for name in names:
        try:
            found.append((name, metadata.version(name)))
        except metadata.PackageNotFoundError:
            continue
    return found
