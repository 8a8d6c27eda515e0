"""Who may give which command: by permission on the repository and a policy file read from the base branch."""

from __future__ import annotations

from typing import Literal

import yaml
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from bot.commands import Command
from bot.escape import Markdown, code
from matrix.errors import UsageError

PATH = ".github/matrix-bot.yaml"
Level = Literal["none", "read", "write", "admin"]
_RANK = {"none": 0, "read": 1, "triage": 1, "write": 2, "maintain": 2, "admin": 3}
NEWCOMERS = frozenset({"NONE", "FIRST_TIMER", "FIRST_TIME_CONTRIBUTOR", "MANNEQUIN"})


class _Model(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class Rule(_Model):
    """Who may give one kind of command."""

    permission: Level = Field("write", description="On the repository, at least.")
    author: bool = Field(False, description="The pull request's author may as well.")


class Policy(_Model):
    """The whole policy; without a file these values hold."""

    commands: dict[str, Rule] = Field(default_factory=dict, description="Command -> who may give it.")
    trusted: tuple[str, ...] = Field((), description="Logins that count as having write permission.")
    approved_label: str = Field(
        "ok-to-test", description="A newcomer's pull request wants this label before its author may re-run."
    )
    reruns_per_user_per_day: int = Field(30, ge=0, description="Over all pull requests; admins have no limit.")
    quarantine_pull_request: bool = Field(
        False, description="/quarantine opens a pull request with its change, instead of answering with a patch."
    )
    languages: tuple[Literal["en", "zh"], ...] = Field(("en", "zh"), description="Of the comment, in this order.")
    ignore_workflows: tuple[str, ...] = Field((), description="Names or paths of workflows that are not reported.")

    def rule(self, command: Command) -> tuple[str, Rule]:
        """Return the name of the rule for a command, and the rule."""
        name = command.verb
        if name == "rerun":
            name = "rerun-all" if command.everything else "rerun-times" if command.times > 1 else "rerun"
        return name, self.commands.get(name, DEFAULTS[name])


DEFAULTS = {
    "help": Rule(permission="none"),
    "explain": Rule(permission="read", author=True),
    "compare": Rule(permission="read", author=True),
    "rerun": Rule(author=True),
    "rerun-all": Rule(),
    "rerun-times": Rule(),
    "wrong": Rule(author=True),
    "quarantine": Rule(),
    "cancel": Rule(),
}


def parse_policy(text: str | None) -> Policy:
    """Read the file's text; None means that there is none.

    Raises:
        UsageError: not YAML, an unknown key or a wrong value, with the line where YAML knows it.

    """
    if text is None:
        return Policy()
    try:
        data = yaml.safe_load(text)
    except yaml.YAMLError as e:
        mark = getattr(e, "problem_mark", None)
        where = f":{mark.line + 1}" if mark else ""
        raise UsageError(f"{PATH}{where}: not YAML: {getattr(e, 'problem', e)}") from None
    try:
        policy = Policy.model_validate(data or {})
    except ValidationError as e:
        first = e.errors()[0]
        raise UsageError(f"{PATH}: {'.'.join(map(str, first['loc']))}: {first['msg']}") from None
    if unknown := set(policy.commands) - set(DEFAULTS):
        raise UsageError(f"{PATH}: commands.{min(unknown)}: no such command", f"there are {', '.join(DEFAULTS)}")
    return policy


def denial(
    policy: Policy,
    command: Command,
    *,
    user: str,
    permission: str,
    is_author: bool,
    association: str,
    labels: frozenset[str],
    spent: int,
) -> Markdown | None:
    """Why this user may not give this command now; None if they may.

    `permission`: the user's on the repository. `spent`: re-runs that they asked for today.
    """
    name, rule = policy.rule(command)
    rank = max(_RANK.get(permission, 0), 2 if user in policy.trusted else 0)
    if rank < _RANK[rule.permission]:
        if not (rule.author and is_author):
            whom = " or the author of the pull request" if rule.author else ""
            return Markdown(f"`/{name}` wants {rule.permission} permission{whom}")
        if name == "rerun" and association in NEWCOMERS and policy.approved_label not in labels:
            label = code(policy.approved_label)
            return Markdown(f"a maintainer must add the label {label} first, since you are new here")
    if command.verb == "rerun" and rank < 3 and spent >= policy.reruns_per_user_per_day:
        used = f"your {policy.reruns_per_user_per_day} re-runs of today are used up"
        return Markdown(f"{used}; they count over all pull requests, until midnight UTC")
    return None
