"""`/quarantine`: the change to the quarantine file, as a patch to apply or as a pull request."""

from __future__ import annotations

import datetime as dt
import difflib
import hashlib
import json
import re
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from bot.escape import Markdown, clean, code, excerpt, fence, link, prose
from bot.github import GitHubError
from bot.intents import OpenPull
from matrix.errors import UsageError
from matrix.history import quarantine

if TYPE_CHECKING:
    from bot.answers import Answer
    from bot.perform import Performer

QUARANTINE = quarantine.FILE.as_posix()
DAYS = 30  # after which the failures count again, unless somebody says otherwise in the file
_TEST = re.compile(r"[\w./:\[\]=, +-]{3,300}")


@dataclass(frozen=True, slots=True)
class Wish:
    """Whose test is to be quarantined why; `url` is where it was asked for."""

    test: str
    user: str
    reason: str
    url: str
    today: str  # 2026-12-01


@dataclass(frozen=True, slots=True)
class Change:
    """The file before and after."""

    old: str
    new: str
    expires: str


def change_for(wish: Wish, old: str) -> Change:
    """Add an entry to the text of the file, by hand, so that comments and order stay; what was made is read back.

    Raises:
        UsageError: no test id, in quarantine already, or the file cannot be read or added to.

    """
    if not _TEST.fullmatch(wish.test):
        raise UsageError("that is no test id: write it as pytest prints it, tests/a.py::test_b")
    entries = _read(old)
    if there := next((e for e in entries if e.test == wish.test and wish.today < e.expires), None):
        raise UsageError(f"{wish.test} is in {QUARANTINE} already, until {there.expires}")
    expires = (dt.date.fromisoformat(wish.today) + dt.timedelta(days=DAYS)).isoformat()
    reason = " ".join(clean(wish.reason).split())
    wanted = {"test": wish.test, "owner": wish.user, "reason": reason, "issue": wish.url, "expires": expires}
    new = _with(old, wanted)
    try:
        made = _read(new)
    except UsageError:
        made = ()
    if [e.test for e in made] != [*(e.test for e in entries), wish.test] or made[-1].expires != expires:
        raise UsageError(f"{QUARANTINE} is written in a way that I cannot add to; add the test by hand")
    return Change(old, new, expires)


def _read(text: str) -> tuple[quarantine.Entry, ...]:
    return quarantine.read(text.encode(), QUARANTINE).entries if text.strip() else ()


def _with(old: str, wanted: dict[str, str]) -> str:
    kept = re.sub(r"(?m)^quarantine:[ \t]*(\[[ \t]*\])?[ \t]*$", "quarantine:", old.rstrip()) or "quarantine:"
    before = re.findall(r"(?m)^( *)- ", kept)
    indent = before[-1] if before else "  "
    lines = [f"{key}: {json.dumps(value, ensure_ascii=False)}" for key, value in wanted.items()]
    return f"{kept}\n{indent}- " + f"\n{indent}  ".join(lines) + "\n"


def patch_text(change: Change) -> Markdown:
    """Answer with the change as a patch."""
    diff = difflib.unified_diff(
        change.old.splitlines(keepends=True), change.new.splitlines(keepends=True),
        f"a/{QUARANTINE}" if change.old else "/dev/null", f"b/{QUARANTINE}",
    )  # fmt: skip
    lines = (line if line.endswith("\n") else f"{line}\n\\ No newline at end of file\n" for line in diff)
    patch = fence(excerpt("".join(lines), 20_000), "diff")
    return Markdown(f"apply this with {code('git apply')}; it expires on {change.expires}\n\n{patch}")


def open_pull(wish: Wish, change: Change, base: str) -> OpenPull:
    """Say which pull request makes the change. What a stranger could have written stands in its body only, escaped."""
    digest = hashlib.sha256(wish.test.encode()).hexdigest()[:12]
    body = (
        f"{code(wish.test)}: {prose(wish.reason)}\n\nIts failures are shown and do not count until {change.expires}. "
        f"{code(wish.user)} asked for this {link(Markdown('here'), wish.url)}."
    )
    title = f"Quarantine a test until {change.expires}"
    return OpenPull(f"matrix-quarantine-{digest}", base, QUARANTINE, change.new, title, title, body)


def opened(performer: Performer, wanted: OpenPull, patch: Answer) -> Answer:
    """Open the pull request; where GitHub does not let us, the patch is the answer, with the reason."""
    try:
        url = performer.open_pull(wanted)
    except GitHubError as e:
        if e.status not in (403, 404, 409, 422):
            raise
        why = f"GitHub does not let me open a pull request ({e.status}), so "
        return replace(patch, text=Markdown(f"{why}{patch.text}"))
    number = Markdown(url.rpartition("/")[2])
    return replace(patch, text=Markdown(f"opened {link(Markdown(f'pull request {number}'), url)} with the change"))
