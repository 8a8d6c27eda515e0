"""Compares a job's losses with its baseline, exactly or within a tolerance, and names the first step that differs."""

from __future__ import annotations

import glob
import math
import re
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from matrix.baseline.parse import Loss, lines_of, read_log
from matrix.baseline.record import FormError, read_baseline, read_csv, read_file
from matrix.spec.job import LossBaseline
from matrix.triage.model import Cause
from matrix.triage.witness import witnessed

_LOG = "the log"
Kind = Literal["differs", "missing", "not_in_baseline"]


@dataclass(frozen=True, slots=True)
class Difference:
    """A step whose loss is not that of the baseline; `got` is None where the job did not print it."""

    kind: Kind
    step: int
    got: Loss | None
    want: Loss | None


@dataclass(frozen=True, slots=True)
class Comparison:
    """What came of comparing a job with its baseline."""

    causes: list[Cause] = field(default_factory=list)
    compared: int = 0  # losses of the baseline that were compared
    baseline: Path | None = None  # None: this card model has none yet
    note: str | None = None  # what a reader should know though nothing failed


def differences(
    found: Iterable[Loss],
    expected: Sequence[Loss],
    *,
    rtol: float = 0.0,
    atol: float = 0.0,
    steps: Sequence[int] = (),
    nan_equal: bool = False,
) -> list[Difference]:
    """Return what differs, in the order of the steps; an empty list if every wanted step agrees.

    A pair agrees if |got − want| ≤ atol + rtol·|want|. NaN agrees with nothing, unless `nan_equal`; an infinity with
    itself. A step that is printed several times must agree every time. `steps` chooses; without it all count.
    """
    wanted = [e for e in expected if not steps or e.step in steps]
    by_key: dict[tuple[int, int, str], list[Loss]] = defaultdict(list)
    found = _means(found) if not any(e.micro is not None for e in expected) else list(found)
    for loss in found:
        by_key[loss.key].append(loss)
    result = [Difference("not_in_baseline", s, None, None) for s in steps if s not in {e.step for e in wanted}]
    for want in wanted:
        there = by_key.get(want.key, [])
        wrong = next((g for g in there if not agree(g.value, want.value, rtol, atol, nan_equal=nan_equal)), None)
        if not there:
            result.append(Difference("missing", want.step, None, want))
        elif wrong:
            result.append(Difference("differs", want.step, wrong, want))
    return sorted(result, key=lambda d: (d.step, d.want.key if d.want else (d.step, 0, "")))


def agree(got: float, want: float, rtol: float, atol: float, *, nan_equal: bool = False) -> bool:
    """Tell whether a loss is that of the baseline."""
    if math.isnan(got) or math.isnan(want):
        return nan_equal and math.isnan(got) and math.isnan(want)
    if math.isinf(got) or math.isinf(want):
        return got == want
    return abs(got - want) <= atol + rtol * abs(want)


def _means(found: Iterable[Loss]) -> list[Loss]:
    """Replace the micro-batches of each step by their mean, for a baseline that only knows steps."""
    plain, groups = [], defaultdict(list)
    for loss in found:
        if loss.micro is None:
            plain.append(loss)
        else:
            groups[loss.step, loss.name].append(loss)
    for (step, name), parts in groups.items():
        mean = math.fsum(p.value for p in parts) / len(parts)
        plain.append(Loss(step, mean, repr(mean), parts[0].line, name=name))
    return plain


def baseline_file(baseline: LossBaseline, root: Path, card: str | None) -> Path:
    """Return the baseline's file for a card model (`cpu` without cards). `root` is the folder of matrix.yaml."""
    model = re.sub(r"[^A-Za-z0-9._-]+", "-", card or "cpu").strip("-.") or "cpu"
    return root / baseline.file.replace("{card}", model)


def _of_other_cards(baseline: LossBaseline, root: Path) -> list[str]:
    """Return the first files of this baseline that are there, of whatever card."""
    if "{card}" not in baseline.file:
        return []
    return sorted(glob.glob(glob.escape(baseline.file).replace("{card}", "*"), root_dir=root))[:3]  # noqa: PTH207 -- a folder may be absolute


def job_losses(baseline: LossBaseline, log: Path, cwd: Path) -> tuple[list[Loss], Path]:
    """Return the losses of a job and the file they were read from: the record it writes, or its log.

    Raises:
        FormError: the record is not there or does not have the form of one.

    """
    source, shown = (log, _LOG) if baseline.record is None else (cwd / baseline.record, baseline.record)
    try:
        return (read_log(lines_of(log)) if baseline.record is None else read_file(source)), source
    except OSError as e:
        raise FormError(f"{shown} cannot be read: {e.strerror}") from None
    except FormError as e:
        raise FormError(f"{shown}, {e}") from None


def compare_losses(
    baseline: LossBaseline, *, job: str, log: Path, cwd: Path, root: Path, card: str | None, nan_equal: bool = False
) -> Comparison:
    """Compare a job that ended with its baseline; at most one cause, `loss_mismatch`, about the first difference.

    `log` is the attempt's log, `cwd` the job's working folder, `root` the folder of matrix.yaml, `card` the model
    of the cards that were leased. Without a baseline for this model nothing fails and the note says how to make one.
    """
    file = baseline_file(baseline, root, card)
    shown = str(file.relative_to(root)) if file.is_relative_to(root) else str(file)
    try:
        expected = read_expected(file)
        found, source = job_losses(baseline, log, cwd)
    except FileNotFoundError:
        on = card or "cpu"
        others = _of_other_cards(baseline, root)
        besides = f", and it was not compared with {', '.join(others)}" if others else ""
        way = f"`matrix baseline update {job} --from last` proposes {shown}"
        return Comparison(note=f"no baseline for {on} yet{besides}: {way}")
    except FormError as e:
        return Comparison([_cause(job, "unreadable", str(e))], baseline=file)
    except OSError as e:
        return Comparison([_cause(job, "unreadable", f"{shown} cannot be read: {e.strerror}")], baseline=file)
    if not expected:
        return Comparison([_cause(job, "unreadable", f"the baseline {shown} holds no loss")], baseline=file)
    found_in = _LOG if baseline.record is None else baseline.record
    wanted = [e for e in expected if not baseline.steps or e.step in baseline.steps]
    diffs = differences(
        found, expected, rtol=baseline.rtol, atol=baseline.atol, steps=baseline.steps, nan_equal=nan_equal
    )
    if not diffs:
        return Comparison(compared=len(wanted), baseline=file)
    first = diffs[0]
    bound = f", within rtol {baseline.rtol:g} atol {baseline.atol:g}" if baseline.rtol or baseline.atol else ""
    text = _sentence(diffs, len(wanted), found, names=(shown, found_in)) + bound
    line = first.got.line if first.got and source == log else None
    return Comparison([_cause(job, first.kind, text, line=line)], len(wanted), file)


def read_expected(file: Path) -> list[Loss]:
    """Return the losses of a baseline file: in its own form, or a record as `dsv4 train` writes it.

    Raises:
        FormError: it has neither form.
        OSError: it cannot be read.

    """
    first = next((line for line in lines_of(file) if line.strip()), "")
    try:
        return read_csv(lines_of(file)) if first.startswith("step,") else read_baseline(lines_of(file))
    except FormError as e:
        raise FormError(f"{file.name}, {e}") from None


def _sentence(diffs: list[Difference], total: int, found: list[Loss], names: tuple[str, str]) -> str:
    first, (shown, found_in) = diffs[0], names
    missing = [d for d in diffs if d.kind == "missing"]
    if first.kind == "not_in_baseline":
        return f"step {first.step} is to be compared, and the baseline {shown} does not have it"
    assert first.want is not None
    if first.got is None:
        if not found:
            return f"no loss was found in {found_in}; the baseline {shown} has {total}, the first at {first.want.where}"
        last = max(f.step for f in found)
        return (
            f"{first.want.where} is not in {found_in} (its last is step {last}): "
            f"{len(missing)} of {total} losses of the baseline {shown} are missing"
        )
    # A line of the log is the evidence line itself; a record is not part of the run's folder, so it is named here.
    at = "" if found_in == _LOG else f" ({found_in}:{first.got.line})"
    off = abs(first.got.value - first.want.value)
    by = f" (off by {off:.3g})" if math.isfinite(off) else ""
    differing = len(diffs) - len(missing)
    tail = f"; {len(missing)} more are missing" if missing else ""
    return (
        f"first diverging loss: {first.want.where} is {first.got.text}{at} where {shown}:{first.want.line} has "
        f"{first.want.text}{by}; {differing} of {total} differ{tail}"
    )


def _cause(job: str, kind: str, text: str, line: int | None = None) -> Cause:
    update = f"`matrix baseline update {job} --from last`"
    return witnessed(
        "loss_mismatch",
        text,
        rule="loss-baseline",
        about=f"{kind}\0{job}",
        line=line,
        fix=(
            f"If the losses are meant to change, run {update} and have the file reviewed; else see what changed.",
            f"若损失变化符合预期，请运行 {update} 并提交新基线供评审；否则请排查该步之前的改动。",
        ),
    )
