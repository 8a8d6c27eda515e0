"""The bot's answers to commands, as comments: how they are written and read back."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from bot.answers import Answer
from bot.commands import Command, canonical
from bot.escape import LIMIT, Markdown, cell_code
from bot.lifecycle import Comment

_HIDDEN = re.compile(r"<!-- (a=1;[0-9a-z_=;.-]*) -->\s*\Z")
_MARKER = re.compile(r"<!-- matrix-answer:(\d+) -->")


def answer_marker(command: int) -> str:
    """First line of the answer to a command: how a second delivery sees that it was answered."""
    return f"<!-- matrix-answer:{command} -->"


def user_digest(login: str) -> str:
    """Stands for a login in hidden state."""
    return hashlib.sha256(login.lower().encode()).hexdigest()[:12]


@dataclass(frozen=True, slots=True)
class Past:
    """An answer of ours that is there."""

    id: int  # of the answer
    command: int  # id of the comment with the command
    done: bool
    values: dict[str, str]
    corrections: tuple[dict[str, str], ...] = ()


def placeholder(command: int, claim: str) -> str:
    """Write the claim on a command: posted before anything is done, so that nothing is done twice."""
    return f"{answer_marker(command)}\n⏳\n\n<!-- a=1;done=0;claim={claim} -->"


def written(command: int, user: str, day: str, pairs: Sequence[tuple[Command, Answer]]) -> str:
    """Write the answer: one line a command, details below."""
    blocks = []
    for given, answer in pairs:
        first, _, rest = answer.text.partition("\n")
        said = cell_code(canonical(given)[:200])
        blocks.append(f"{'✅' if answer.ok else '❌'} {said} {first}" + (f"\n{rest}" if rest else ""))
    spent = sum(answer.spent for _, answer in pairs)
    state = f"a=1;done=1;u={user_digest(user)};d={day.replace('-', '')};n={spent}"
    extra = [answer.state for _, answer in pairs if answer.state]
    hidden = "".join(f"<!-- f=1;{one} -->\n" for one in extra if re.fullmatch(r"[0-9a-z_=;.-]+", one))
    text = Markdown("\n\n".join(blocks))
    body = f"{answer_marker(command)}\n{text}\n\n{hidden}<!-- {state} -->"
    if len(body.encode()) > LIMIT:  # each part is bounded; many long ones together are not
        return written(command, user, day, [(c, _first_line(a)) for c, a in pairs])
    return body


def _first_line(answer: Answer) -> Answer:
    return Answer(answer.ok, Markdown(answer.text.partition("\n")[0][:2000]), spent=answer.spent, state=answer.state)


def past_answers(comments: Iterable[Comment], login: str) -> list[Past]:
    """Our answers among the comments; a stranger's quote of the marker is none."""
    found = []
    for comment in comments:
        marker = _MARKER.match(comment.body)
        if comment.author != login or not marker:
            continue
        hidden = _HIDDEN.search(comment.body)
        corrections = tuple(_values(m) for m in re.findall(r"<!-- f=1;([0-9a-z_=;.-]+) -->", comment.body))
        values = _values(hidden[1]) if hidden else {}
        found.append(Past(comment.id, int(marker[1]), values.get("done") == "1", values, corrections))
    return found


def _values(text: str) -> dict[str, str]:
    return dict(part.partition("=")[::2] for part in text.split(";"))


def spent_today(past: Iterable[Past], user: str, day: str) -> int:
    """Re-runs that a user asked for on this day, by the answers that they got."""
    mine = (p.values for p in past if p.values.get("u") == user_digest(user))
    return sum(int(v.get("n") or 0) for v in mine if v.get("d") == day.replace("-", ""))
