"""Checks of the repository and of what stands behind it: git, the matrix, the history, GitHub's token."""

from __future__ import annotations

import re
import shutil
import time
from datetime import date
from email.utils import parsedate_to_datetime
from pathlib import Path

from matrix.doctor.host import OVER_NETWORK, filesystem, root_of
from matrix.doctor.model import Finding, Place, State
from matrix.errors import MatrixError
from matrix.history.quarantine import load as load_quarantine
from matrix.history.remember import default_url
from matrix.history.store import open_store
from matrix.report.text import count
from matrix.run.own_cards import find_cards, whole_need
from matrix.spec.load import FILE_NAME, read
from matrix.triage.ruleset import check_own

_API = "https://api.github.com"


def git(place: Place) -> Finding:
    """Whether changed files and commits can be told."""
    if shutil.which("git") is None:
        return Finding("git", State.BAD, "not installed", "apt-get install git")
    version = place.ask("git", "--version").stdout.strip().removeprefix("git version ")
    at = place.ask("git", "rev-parse", "--is-shallow-repository")
    if at.returncode:
        owner = "dubious ownership" in at.stderr
        said = (
            "the repository belongs to another user, so git refuses it" if owner else "this folder is in no repository"
        )
        advice = f"git config --global --add safe.directory {root_of(place)}" if owner else "git init"
        return Finding("git", State.BAD if owner else State.WARNING, f"{version}; {said}", advice)
    if place.ask("git", "rev-parse", "--verify", "--quiet", "HEAD").returncode:
        return Finding("git", State.WARNING, f"{version}; no commit yet", "make one: verdicts compare commits")
    if at.stdout.strip() == "true":
        advice = "git fetch --unshallow; in GitHub Actions: fetch-depth: 0"
        return Finding("git", State.WARNING, f"{version}; a shallow clone: --changed-since may miss its base", advice)
    return Finding("git", State.OK, version)


def matrix(place: Place) -> Finding:
    """Whether the matrix can be read."""
    above = (place.cwd, *place.cwd.parents)
    path = next((p / FILE_NAME for p in above if (p / FILE_NAME).is_file()), None)
    if path is None:
        return Finding(
            "matrix", State.ABSENT, f"no {FILE_NAME} from {place.cwd} upward", "write a first one: matrix init"
        )
    try:
        spec = read(path)
    except MatrixError as e:
        return Finding("matrix", State.BAD, e.message.splitlines()[0], e.advice or "matrix list shows every mistake")
    said = f"{path}: {count(len(spec.jobs), 'job')}"
    have = _cards_here()
    if spec.pretend_cards or have is None or all(job.cards.count <= have for job in spec.jobs):
        return Finding("matrix", State.OK, said)
    some = count(sum(job.cards.count > have for job in spec.jobs), "job")
    cards = whole_need(spec.jobs)
    advice = f"to try it: matrix run --cards {cards} pretends them; a hosts file or --engine slurm has others"
    return Finding("matrix", State.WARNING, f"{said}; {some} with more cards than this host's {have}", advice)


def _cards_here() -> int | None:
    try:
        return len(find_cards(None, ()))
    except MatrixError:
        return None  # the checks of the cards say what is wrong


def rules(place: Place) -> Finding:
    """Whether the rules of triage that the repository has of its own can be used."""
    try:
        own = check_own(root_of(place))
    except MatrixError as e:
        return Finding(
            "rules", State.BAD, e.message.splitlines()[0], "until it is mended no run begins: matrix rules check"
        )
    said = f"{count(own, 'file')} of its own" if own else "the repository has none of its own"
    return Finding("rules", State.OK, said)


def quarantine(place: Place) -> Finding:
    """Whether tests in quarantine are past their day."""
    today = date.today().isoformat()  # noqa: DTZ011 -- the reader's day
    try:
        kept = load_quarantine(root_of(place))
    except MatrixError as e:
        advice = "until it is mended no run begins; docs/pytest.md shows an entry"
        return Finding("quarantine", State.BAD, e.message.splitlines()[0], advice)
    if not kept.entries:
        return Finding("quarantine", State.OK, "no test is in quarantine")
    expired = kept.expired(today)
    if expired:
        return Finding("quarantine", State.WARNING, f"{count(len(expired), 'test')} past its day",
                       "; ".join(e.over() for e in expired[:5]))  # fmt: skip
    return Finding("quarantine", State.OK, f"{count(len(kept.entries), 'test')}, none past its day")


def database(place: Place) -> Finding:
    """Whether the history can be opened and written."""
    folder = root_of(place) / ".matrix"
    url = default_url(folder, place.env)
    file = url.removeprefix("sqlite:///") if url.startswith("sqlite:///") else None
    if file is not None and not Path(file).exists():
        return Finding("history", State.ABSENT, "nothing is remembered yet", "the first matrix run makes it")
    if file is not None and filesystem(Path(file)) in OVER_NETWORK:
        said = f"{file} is on a network disk, where SQLite's write-ahead log does not work"
        return Finding("history", State.BAD, said, "set MATRIX_HISTORY to a local file or to PostgreSQL")
    try:
        store = open_store(url)
        with store.begin() as c:
            runs = c.exec_driver_sql("SELECT count(*) FROM runs").scalar_one()
        store.close()
    except MatrixError as e:
        advice = e.advice or "see whether the database runs; until then results wait in .matrix/spool"
        return Finding("history", State.BAD, _without_password(e.message), _without_password(advice))
    waiting = len(list((folder / "spool").glob("*.json")))
    said = f"{store.engine.dialect.name}, {count(runs, 'run')}" + (
        f", {waiting} more wait to be sent" if waiting else ""
    )
    return Finding(
        "history", State.WARNING if waiting else State.OK, said, "sent with the next run" if waiting else None
    )


def token(place: Place) -> Finding:
    """Whether GitHub's token works, and what it may do."""
    name = next((n for n in ("GITHUB_TOKEN", "GH_TOKEN", "BOT_TOKEN") if place.env.get(n)), None)
    if name is None:
        said = "no GITHUB_TOKEN: comments are shown with --dry-run only"
        return Finding("GitHub token", State.ABSENT, said, "set GITHUB_TOKEN for `bot`")
    import requests  # noqa: PLC0415 -- slow to load, and seldom needed

    base = place.env.get("GITHUB_API_URL", _API).rstrip("/")
    headers = {"Authorization": f"Bearer {place.env[name]}", "Accept": "application/vnd.github+json"}
    try:
        limits = requests.get(f"{base}/rate_limit", headers=headers, timeout=place.limit)
    except requests.RequestException as e:
        return Finding("GitHub token", State.UNKNOWN, f"{base} cannot be reached: {type(e).__name__}")
    if limits.status_code == 401:
        return Finding("GitHub token", State.BAD, f"${name} is refused: expired or wrong", "make a new one")
    if limits.status_code != 200:
        return Finding("GitHub token", State.UNKNOWN, f"{base} answers {limits.status_code}")
    parts = [f"${name} is taken"]
    off = _clock_off(limits.headers.get("Date"))
    if off > 120:
        return Finding("GitHub token", State.BAD, f"the clock is {off:.0f} s off GitHub's", "start a time service")
    scopes = limits.headers.get("X-OAuth-Scopes")
    wanted = scopes is None or {"repo", "public_repo"} & {s.strip() for s in scopes.split(",")}
    if not wanted:
        said = f"${name} has the scopes {scopes or 'none'!r}, and the bot needs repo (or public_repo)"
        return Finding("GitHub token", State.BAD, said, "give it that scope; or use a fine-grained token")
    if scopes:
        parts.append(f"scopes {scopes}")
    repository = place.env.get("GITHUB_REPOSITORY") or _origin(place)
    if repository:
        answer = requests.get(f"{base}/repos/{repository}", headers=headers, timeout=place.limit)
        if answer.status_code != 200:
            said = f"${name} cannot see {repository} ({answer.status_code})"
            return Finding("GitHub token", State.BAD, said, "give it access to the repository")
        rights = answer.json().get("permissions") or {}
        may = "write" if rights.get("push") else "read only"
        parts.append(f"{repository}: {may}" if rights else f"{repository}: in sight")
        if rights and not rights.get("push"):
            advice = "the bot needs pull-requests: write and actions: write"
            return Finding("GitHub token", State.WARNING, "; ".join(parts), advice)
    return Finding("GitHub token", State.OK, "; ".join(parts))


def _clock_off(date: str | None) -> float:
    try:
        return abs(parsedate_to_datetime(date or "").timestamp() - time.time())
    except ValueError:
        return 0.0


def _origin(place: Place) -> str | None:
    done = place.ask("git", "config", "--get", "remote.origin.url")
    match = re.search(r"github\.com[:/]([\w.-]+/[\w.-]+?)(\.git)?$", done.stdout.strip())
    return match[1] if match else None


def _without_password(text: str) -> str:
    return re.sub(r"://([^:/@\s]+):[^@\s]+@", r"://\1:***@", text)
