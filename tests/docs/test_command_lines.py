"""Every command line of ours in README and docs is one that the commands take: verbs, options, numbers of arguments."""

import importlib
import importlib.util
import re
import shlex
import sys
from pathlib import Path

import click
import pytest

from bot.cli import cli as bot_cli
from dsv4.cli import cli as dsv4_cli
from matrix.cli import cli as matrix_cli

ROOT = Path(__file__).parents[2]
PROGRAMS = {"matrix": matrix_cli, "bot": bot_cli, "dsv4": dsv4_cli}

_spec = importlib.util.spec_from_file_location("command_blocks_of_lines", ROOT / "scripts/command_blocks.py")
command_blocks = importlib.util.module_from_spec(_spec)
sys.modules["command_blocks_of_lines"] = command_blocks
_spec.loader.exec_module(command_blocks)

_INLINE = re.compile(r"(?<!`)`((?:matrix|bot|dsv4) [a-z][^`\n]*)`")
_NAMES = {"matrix report"}  # of other things than commands: a check run
_END = {"|", "||", "&&", ";", ">", ">>", "<", "&", "2>", "2>&1"}


def words(line):
    """The words of a command, up to where the shell goes on with something else."""
    try:
        found = shlex.split(line, comments=True)
    except ValueError:
        found = line.split()
    out = []
    for word in found:
        if word in _END or word.startswith((">", "2>")):
            break
        out.append(word.rstrip(";"))
        if word.endswith(";"):
            break
    return out


def lines_of(page):
    """(line number, words, whether the whole command is written there) of each command line on a page."""
    for block in command_blocks.blocks(page):
        if block.language != "bash":
            continue
        code = block.code.replace("\\\n", " ")
        for line in re.split(r"\n|&&|\|\||\$\(", re.sub(r"<<'?(\w+)'?\n.*?\n\1\n", "\n", code, flags=re.DOTALL)):
            said = words(line.strip().removeprefix("if "))
            if said and said[0] in PROGRAMS:
                yield block.line, said, True
    for n, line in enumerate(page.read_text(encoding="utf-8").splitlines(), 1):
        for found in _INLINE.finditer(line):
            if found[1] in _NAMES:
                continue
            yield n, words(re.sub(r"[][]", " ", found[1].replace("...", ""))), False


def find(said):
    """The command that a line calls, its name and the words behind it; in place of a command, what is wrong (or None)."""
    command, rest, name = PROGRAMS[said[0]], said[1:], said[0]
    while isinstance(command, click.Group):
        if not rest or rest[0] in ("-h", "--help", "--version") or rest[0].isupper() or "|" in rest[0]:
            return None, name, []  # such as `matrix COMMAND --help`
        name = f"{name} {rest[0]}"
        command, rest = command.get_command(click.Context(command), rest[0]), rest[1:]
        if command is None:
            return f"no command {name}", name, []
    return command, name, rest


def complaint(said, *, whole=True):
    """What is wrong with a command line; None if it is one that the command takes. In prose arguments may be left out."""
    command, name, rest = find(said)
    if not isinstance(command, click.Command):
        return command
    options = {o: p for p in command.params if isinstance(p, click.Option) for o in (*p.opts, *p.secondary_opts)}
    passes_on = command.context_settings.get("ignore_unknown_options")
    plain, at = 0, 0
    while at < len(rest):
        word = rest[at]
        at += 1
        if not word.startswith("-") or word == "-":
            plain += 1
            continue
        if word in ("-h", "--help") or (passes_on and word.partition("=")[0] not in options):
            return None
        option = options.get(word.partition("=")[0])
        if option is None:
            return f"{name} has no option {word}"
        if not option.is_flag and "=" not in word:
            if at == len(rest) and whole:
                return f"{word} wants a value"
            at += 1
    return count_of_arguments(command, name, plain, whole)


def count_of_arguments(command, name, plain, whole):
    arguments = [p for p in command.params if isinstance(p, click.Argument)]
    most = 999 if any(a.nargs == -1 for a in arguments) else sum(a.nargs for a in arguments)
    least = sum(max(a.nargs, 1) for a in arguments if a.required)
    if plain > most:
        return f"{name} takes {most} arguments, not {plain}"
    return f"{name} wants {least} arguments, not {plain}" if whole and plain < least else None


PAGES = command_blocks.pages()


def test_the_pages_are_full_of_command_lines():
    assert sum(1 for page in PAGES for _ in lines_of(page)) > 150


@pytest.mark.parametrize("page", PAGES, ids=lambda p: p.relative_to(ROOT).as_posix())
def test_every_command_line_of_a_page_is_one_that_the_command_takes(page):
    wrong = [
        f"{page.relative_to(ROOT)}:{n}: {' '.join(said)}: {why}"
        for n, said, whole in lines_of(page)
        if (why := complaint(said, whole=whole))
    ]
    assert not wrong, "\n".join(wrong)


def examples(command, path):
    if isinstance(command, click.Group):
        for name in command.list_commands(click.Context(command)):
            yield from examples(command.get_command(click.Context(command), name), f"{path} {name}")
    for found in re.finditer(r"Example: (.*)", command.help or ""):
        yield path, found[1]


@pytest.mark.parametrize("program", PROGRAMS)
def test_every_verb_has_an_example_that_it_takes(program):
    found = list(examples(PROGRAMS[program], program))
    assert found
    wrong = [f"{path}: {text}" for path, text in found for said in [ours(text)] if said is None or complaint(said)]
    assert not wrong, "\n".join(wrong)
    verbs = importlib.import_module(f"{program}.cli").VERBS
    shown = [text.partition(f": {program} ")[2] for _, text in verbs.values()]
    assert all(shown)
    wrong = [why for text in shown if (why := complaint([program, *words(text)]))]
    assert not wrong, "\n".join(wrong)


def ours(text):
    """The part of an example that is a command of ours, behind what it may read from."""
    part = text.rpartition("| ")[2]
    said = words(part)
    return said if said and said[0] in PROGRAMS else None


@pytest.mark.parametrize(
    ("line", "why"),
    [
        ("matrix rnu", "no command"),
        ("matrix run --card 2", "no option --card"),
        ("matrix run --cards", "wants a value"),
        ("matrix init a b", "takes 1"),
        ("matrix triage", "wants 1"),
        ("matrix rules shwo disk_full", "no command matrix rules shwo"),
        ("dsv4 align a", "wants 2"),
        ("bot --dry", "no command bot --dry"),
    ],
)
def test_a_line_that_no_command_takes_is_found(line, why):
    assert why in complaint(words(line))
