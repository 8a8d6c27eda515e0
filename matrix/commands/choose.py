"""What `list`, `plan` and `run` share: which spec, which jobs, which hosts."""

from __future__ import annotations

import socket
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import click

from matrix.errors import UsageError
from matrix.host.gpus import discover, pretended
from matrix.plan.hosts import Card, Host, hosts_file, read_hosts
from matrix.spec.job import Job
from matrix.spec.load import FILE_NAME, Spec, read
from matrix.spec.select import Choice, changed_files, select

F = TypeVar("F", bound=Callable[..., Any])


def job_options(command: F) -> F:
    """Add SPEC, --only, --tag, --changed-since, --handoff and --cards; the values go to `choose`."""
    for option in (
        click.option("--cards", metavar="N", help="Pretend so many cards (or MODEL:N), for hosts without."),
        click.option(
            "--handoff", "handoffs", multiple=True, metavar="NAME=PATH", help="Take a hand-off from here; repeatable."
        ),
        click.option("--changed-since", metavar="REV", help="Only jobs that the changes since REV concern."),
        click.option("--tag", "tags", multiple=True, help="Only jobs with this tag; repeatable."),
        click.option(
            "--only", multiple=True, metavar="NAME...", help="Only these jobs: names, globs, suites or tag:NAME."
        ),
        click.argument("args", nargs=-1, metavar="[SPEC]"),
    ):
        command = option(command)
    return command


@dataclass(frozen=True, slots=True)
class Chosen:
    """The jobs of a command, chosen or not, and what they may run on."""

    spec: Spec
    choices: tuple[Choice, ...]
    handoffs: dict[str, str]

    @property
    def jobs(self) -> list[Job]:
        """The chosen ones, in the order of the matrix."""
        return [choice.job for choice in self.choices if choice.selected]


def choose(
    args: Sequence[str],
    only: Sequence[str],
    tags: Sequence[str],
    changed_since: str | None,
    handoffs: Sequence[str],
    *,
    hosts: Sequence[Host] | None = None,
) -> Chosen:
    """Read the spec and choose jobs by the options of `job_options`.

    Raises:
        SpecError: the spec has mistakes, or asks for more than any of the `hosts` has.
        UsageError: an option fits nothing.

    """
    path, more = split_targets(args, names_allowed=bool(only))
    spec = read(Path(path) if path else None, hosts=hosts)
    names = split_names([*only, *more], spec.jobs)
    changed = changed_files(spec.root, changed_since) if changed_since else None
    given = parse_handoffs(handoffs)
    return Chosen(spec, tuple(select(spec, only=names, tags=tags, changed=changed, handoffs=list(given))), given)


def split_targets(targets: Sequence[str], *, names_allowed: bool) -> tuple[str | None, list[str]]:
    """Tell the matrix file from names that follow --only: a file or a folder with a matrix is no name.

    Raises:
        UsageError: more than one file, or a name where none is asked for.

    """
    specs = [t for t in targets if t.endswith((".yaml", ".yml")) or (Path(t) / FILE_NAME).is_file() or "/" in t]
    names = [t for t in targets if t not in specs]
    if names and not names_allowed:
        if specs or len(names) > 1:
            raise UsageError(f"{names[-1]!r} is no matrix file", f"to choose jobs, write --only {' '.join(names)}")
        return names[0], []
    if len(specs) > 1:
        raise UsageError(f"two matrix files: {specs[0]} and {specs[1]}", "name one")
    return (specs[0] if specs else None), names


def parse_handoffs(texts: Sequence[str]) -> dict[str, str]:
    """Read NAME=PATH of --handoff; paths become absolute.

    Raises:
        UsageError: not of that form.

    """
    found = {}
    for text in texts:
        name, sign, path = text.partition("=")
        if not (name and sign and path):
            raise UsageError(f"--handoff {text}: write NAME=PATH, such as --handoff qwen-pt=output/qwen-pt")
        found[name] = str(Path(path).expanduser().absolute())
    return found


def split_names(wishes: Sequence[str], jobs: Sequence[Job]) -> list[str]:
    """Let `a,b` name two jobs, unless a suite is called that."""
    suites = {job.suite for job in jobs}
    parts = [[wish] if wish in suites else wish.split(",") for wish in wishes]
    return [part.strip() for some in parts for part in some if part.strip()]


@dataclass(frozen=True, slots=True)
class Site:
    """The hosts that are known here, the one that plans are for, and where that is from."""

    hosts: tuple[Host, ...]
    source: str
    problem: str | None = None

    def host(self, name: str | None, jobs: Sequence[Job]) -> Host:
        """Find the host to plan for: the named one, this one, or the first on which all the jobs can run."""
        if name is not None:
            for host in self.hosts:
                if host.name == name:
                    return host
            raise UsageError(f"no host {name!r}", f"there are {', '.join(host.name for host in self.hosts)}")
        here = [host for host in self.hosts if host.name.split(".")[0] == socket.gethostname().split(".")[0]]
        fitting = [host for host in self.hosts if all(host.fits(job.cards) for job in jobs)]
        return (here or fitting or sorted(self.hosts, key=lambda host: -len(host.cards)))[0]


def site(cards: str | None = None) -> Site:
    """Say which hosts and cards there are: `--cards`, the site's file, or what this host really has.

    Raises:
        UsageError: the hosts file or `--cards` is wrong.

    """
    if cards is not None:
        return Site((_this_host(pretended(cards)),), f"--cards {cards}")
    path = hosts_file()
    if path is not None:
        return Site(tuple(read_hosts(path)), str(path))
    found = discover()
    return Site((_this_host(found.cards),), "the cards of this host", found.problem)


def _this_host(cards: Sequence[Any]) -> Host:
    return Host(socket.gethostname(), tuple(Card(card.uuid, card.model) for card in cards))
