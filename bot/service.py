"""One core for both ways in: takes an event, looks at GitHub, and has done what is to be done."""

from __future__ import annotations

import datetime as dt
import logging
import secrets
from collections.abc import Callable, MutableMapping
from dataclasses import dataclass, field, replace
from urllib.parse import quote

from bot.answers import Answer, Context, answer, job_digest
from bot.board import Board
from bot.commands import Command, parse
from bot.comment import compose
from bot.conversation import Past, answer_marker, past_answers, placeholder, spent_today, written
from bot.escape import Markdown, prose
from bot.events import CommandEvent, Event, JobEvent, PullEvent, RunEvent
from bot.facts import Facts, find_pulls, gather
from bot.facts_board import board_of_facts
from bot.feedback import Keeper, comment_url, keep
from bot.github import GitHub, GitHubError
from bot.intents import Edit, Issue, OpenPull, React, Reply, Rerun, Unreact
from bot.judging import judge_facts
from bot.listening import corrections, poll, votes_on
from bot.logs import Diagnose, diagnose_log
from bot.perform import Performer, comments_on, comments_since
from bot.policy import PATH, Policy, denial, parse_policy
from bot.quarantining import QUARANTINE, opened
from bot.runs import Pull, Run, job_of, pull_of, run_of
from bot.sync import pull_lock, sync
from matrix.errors import UsageError
from matrix.records import Status

log = logging.getLogger("bot")
WANTS_LOGS = frozenset({"explain", "wrong", "rerun"})


def today() -> str:
    """Return the day in UTC, as budgets count it."""
    return dt.datetime.now(dt.UTC).date().isoformat()


@dataclass
class Bot:
    """The bot for one repository."""

    github: GitHub
    login: str
    diagnose: Diagnose = diagnose_log
    cache: MutableMapping[int, str] = field(default_factory=dict)
    ignore: frozenset[str] = frozenset()  # the bot's own workflows
    day: Callable[[], str] = today
    boards_seen: list[Board] = field(default_factory=list)  # also of what could not be written
    keeper: Keeper | None = None  # of feedback
    history: str | None = None  # URL of the database that verdicts come from

    def handle(self, event: Event) -> list[Board]:
        """Do what one event asks for; returns the boards that were brought up to date.

        Raises:
            GitHubError: GitHub refused or is away: the event is to be delivered again.

        """
        match event:
            case CommandEvent():
                with pull_lock(self.github.repository, event.number):
                    return self._command(event)
            case PullEvent(number):
                return [self._update(self._pull(number))]
            case JobEvent(run, _):
                data = self.github.find(f"/actions/runs/{run}")
                return self._run(run_of(data)) if data else []
            case RunEvent(run):
                return self._run(run)

    def listen(self) -> None:
        """Take up the votes on reports: GitHub tells nobody of a reaction, so they are asked for now and then."""
        if self.keeper:
            poll(self.github, self.login, self.keeper, self._policy_or_default)

    # ---- reports

    def _pull(self, number: int) -> Pull:
        return pull_of(self.github.get(f"/pulls/{number}"), self.github.repository)

    def _gather(self, pull: Pull, policy: Policy, *, read_logs: bool = True) -> Facts:
        ignore = self.ignore | frozenset(policy.ignore_workflows)
        facts = gather(self.github, pull, ignore=ignore, diagnose=self.diagnose, cache=self.cache, read_logs=read_logs)
        if self.history and read_logs:
            judge_facts(facts, self.github.repository, self.history)
        return facts

    def _update(self, pull: Pull) -> Board:
        policy = self._policy_or_default(pull)
        with pull_lock(self.github.repository, pull.number):
            performer = Performer(self.github, self.login)

            def look() -> Facts:
                facts = self._gather(self._pull(pull.number), policy)
                self.boards_seen = [board_of_facts(facts, web=f"https://github.com/{self.github.repository}")]
                return facts

            return self._sync(performer, pull, policy, look)

    def _sync(self, performer: Performer, pull: Pull, policy: Policy, look: Callable[[], Facts]) -> Board:
        if self.keeper is None:
            return sync(performer, pull.number, look, policy.languages)
        listen = votes_on(self.github, self.login, self.keeper, pull, policy)
        return sync(performer, pull.number, look, policy.languages, listen=listen)

    def _run(self, run: Run) -> list[Board]:
        if run.path in self.ignore or run.event in ("workflow_run", "issue_comment"):
            return []
        if run.event in ("push", "schedule") and run.completed:
            self._branch(run)
        boards = []
        for pull in find_pulls(self.github, run):
            boards.append(self._update(pull))
            self._continue_probes(pull, run)
        return boards

    def _branch(self, run: Run) -> None:
        """One issue about the default branch: opened when it is red, updated, closed when it is green."""
        repository = self.github.get(f"/repos/{self.github.repository}")
        if run.branch != repository.get("default_branch"):
            return
        pull = Pull(0, run.head, run.head, run.branch, "", fork=False, open=True)
        facts = self._gather(pull, self._policy_or_default(pull))
        facts.runs = [r for r in facts.runs if r.event in ("push", "schedule")]
        board = replace(board_of_facts(facts, web=f"https://github.com/{self.github.repository}"), commands=False)
        title = f"CI is red on {run.branch}"
        if board.colour == "red":
            Performer(self.github, self.login).perform(0, [Issue(title, compose(board, ("en", "zh")))])
        elif board.colour == "green":
            Performer(self.github, self.login).perform(0, [Issue(title, None)])

    def _policy(self, pull: Pull) -> Policy:
        """Return the policy on the base branch: a pull request cannot change the rules that it is judged by."""
        return parse_policy(self._file(PATH, pull.base_ref))

    def _policy_or_default(self, pull: Pull) -> Policy:
        try:
            return self._policy(pull)
        except UsageError as e:
            log.warning("%s", e.message)
            return Policy()

    def _file(self, path: str, ref: str) -> str | None:
        import base64  # noqa: PLC0415 - only here

        data = self.github.find(f"/contents/{path}", ref=ref)
        if not isinstance(data, dict) or data.get("encoding") != "base64":
            return None
        return base64.b64decode(data.get("content") or "").decode("utf-8", "replace")

    # ---- commands

    def _command(self, event: CommandEvent) -> list[Board]:
        performer = Performer(self.github, self.login)
        comments = comments_on(self.github, event.number)
        past = past_answers(comments, self.login)
        there = next((c for c in comments if c.id == event.comment), None)
        commands = parse(there.body if there else "")  # as it reads now: it may have been edited, or deleted
        if not commands:
            return []
        if before := [p for p in past if p.command == event.comment]:
            if not before[0].done:
                self._finish_interrupted(performer, event, before[0])
            return []
        performer.perform(event.number, [React(event.comment, "eyes")])
        claim = self._claim(performer, event)
        if claim is None:
            return []
        pairs, facts = self._answer_all(performer, event, commands)
        body = written(event.comment, event.user, self.day(), pairs)
        good = all(a.ok for _, a in pairs)
        if self.keeper:
            keep(self.keeper, corrections(self.github, event.number, event.comment, pairs, facts))
        performer.perform(event.number, [Edit(claim, body)])
        done = React(event.comment, "rocket" if good else "confused")
        performer.perform(event.number, [done, Unreact(event.comment, "eyes")])
        if facts and any(isinstance(i, Rerun) for _, a in pairs if a.ok for i in a.intents):
            pull = facts.pull
            policy = self._policy_or_default(pull)
            self._sync(performer, pull, policy, lambda: self._gather(self._pull(pull.number), policy))
        return []

    def _claim(self, performer: Performer, event: CommandEvent) -> int | None:
        """Post the answer's comment before acting; None if another delivery was first."""
        claim = secrets.token_hex(8)
        performer.perform(event.number, [Reply(event.number, placeholder(event.comment, claim))])
        answers = past_answers(comments_on(self.github, event.number), self.login)
        claims = sorted((c for c in answers if c.command == event.comment), key=lambda c: c.id)
        mine = next((c for c in claims if c.values.get("claim") == claim), None)
        if mine is None or claims[0].id == mine.id:
            return mine.id if mine else None
        self.github.delete(f"/issues/comments/{mine.id}")  # another delivery, on another host, was first
        return None

    def _finish_interrupted(self, performer: Performer, event: CommandEvent, claim: Past) -> None:
        """Make a delivery died between its claim and its answer: say so. Acting again might act twice."""
        text = "❌ interrupted; look at the runs, and comment again if nothing was started"
        body = f"{answer_marker(event.comment)}\n{text}\n\n<!-- a=1;done=1 -->"
        performer.perform(event.number, [Edit(claim.id, body), React(event.comment, "confused")])

    def _answer_all(
        self, performer: Performer, event: CommandEvent, commands: list[Command]
    ) -> tuple[list[tuple[Command, Answer]], Facts | None]:
        raw = self.github.get(f"/pulls/{event.number}")
        pull = pull_of(raw, self.github.repository)
        labels = frozenset(label["name"] for label in raw.get("labels") or [])
        permission = (self.github.find(f"/collaborators/{event.user}/permission") or {}).get("permission", "none")
        try:
            policy = self._policy(pull)
        except UsageError as e:
            return [(c, Answer(False, Markdown(prose(e.message)))) for c in commands], None
        spent = self._spent(event.user) if any(c.verb == "rerun" for c in commands) else 0
        facts: Facts | None = None
        pairs: list[tuple[Command, Answer]] = []
        for command in commands:
            refused = command.error or denial(
                policy, command, user=event.user, permission=permission, is_author=event.user == pull.author,
                association=pull.association, labels=labels, spent=spent,
            )  # fmt: skip
            if refused:
                pairs.append((command, Answer(False, refused)))
                continue
            logs = any(c.verb in WANTS_LOGS for c in commands)
            facts = facts or self._gather(pull, policy, read_logs=logs)
            made = answer(command, self._context(command, event, facts, pull))
            made = self._act(performer, event.number, facts, made)
            spent += made.spent if made.ok else 0
            pairs.append((command, made))
        return pairs, facts

    def _spent(self, user: str) -> int:
        """Re-runs that a user asked for today, on whatever pull request: a second one is no way round the budget."""
        answers = past_answers(comments_since(self.github, self.day()), self.login)
        return spent_today(answers, user, self.day())

    def _context(self, command: Command, event: CommandEvent, facts: Facts, pull: Pull) -> Context:
        board = board_of_facts(facts, web=f"https://github.com/{self.github.repository}")
        url = comment_url(self.github.repository, event.number, event.comment)
        context = Context(facts, board, event.user, self.day(), url)
        if command.verb == "quarantine":
            opens = self._policy_or_default(pull).quarantine_pull_request
            return replace(context, quarantine=self._file(QUARANTINE, pull.base_ref) or "", opens_pull=opens)
        if command.verb == "compare" and command.words:
            ref = command.words[0]
            try:
                sha = str(self.github.get(f"/commits/{quote(ref, safe='')}")["sha"])
            except GitHubError as e:
                if e.status in (404, 422):
                    return context
                raise
            other = gather(
                self.github, Pull(0, sha, sha, ref, "", fork=False, open=True), ignore=self.ignore, read_logs=False
            )
            return replace(context, other=other, other_ref=ref)
        return context

    def _act(self, performer: Performer, number: int, facts: Facts, made: Answer) -> Answer:
        """Carry out an answer's intents, unless the head moved since the facts were gathered."""
        if not made.ok or not made.intents:
            return made
        head = self._pull(number).head
        if head != facts.pull.head:
            return Answer(False, Markdown(f"the head moved to <code>{head[:10]}</code>; comment again"))
        try:
            for intent in made.intents:
                if isinstance(intent, OpenPull):
                    return opened(performer, intent, made)
                performer.perform(number, [intent])
        except GitHubError as e:
            return Answer(
                False, Markdown(prose(f"GitHub refused: {e.status or 'no answer'} {e.message.rpartition(': ')[2]}"))
            )
        return made

    # ---- flake probes

    def _continue_probes(self, pull: Pull, run: Run) -> None:
        """`/rerun NAME --times N`: start the next try when one has ended, until the attempt that was aimed at."""
        if not run.completed or run.attempt < 2:
            return
        past = past_answers(comments_on(self.github, pull.number), self.login)
        for correction in (values for p in past for values in p.corrections if "probe" in values):
            for target in correction["probe"].split("_"):
                run_id, _, rest = target.partition(".")
                aim, _, digest = rest.partition(".")
                if run_id != str(run.id) or not aim.isdecimal() or run.attempt >= int(aim):
                    continue
                jobs = [job_of(j) for j in self.github.pages(f"/actions/runs/{run.id}/jobs", "jobs", filter="latest")]
                for job in jobs:
                    if job_digest(job.name) == digest and job.status is not Status.RUNNING:
                        Performer(self.github, self.login).perform(
                            pull.number, [Rerun(run.id, run.attempt, "job", job.id)]
                        )
                        return
