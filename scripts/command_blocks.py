"""Lists the blocks of commands in README and docs: run by the tests, or not and why.

A block of commands is fenced as `bash`, behind a comment that says what becomes of it:

    <!-- run -->            the tests run it, after the blocks before it on the page, in one folder
    <!-- run: exit 1 -->    the same, and it must end with this code
    <!-- not run: why -->   nobody runs it
    <!-- file: NAME -->     before a block of another language: the tests write it to this file
    <!-- setup: COMMANDS --> commands that the tests run first and readers need not see
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from markdown_it import MarkdownIt

ROOT = Path(__file__).parents[1]
_MARK = re.compile(r"<!--\s*(?P<word>run|not run|file|setup)(?::\s*(?P<rest>.*?))?\s*-->", re.DOTALL)
_EXIT = re.compile(r"exit (\d)")


@dataclass(frozen=True, slots=True)
class Block:
    """A block; `what` is run, not run, file, setup or unmarked, `rest` what its mark says further."""

    page: str
    line: int
    what: str
    rest: str
    code: str
    language: str

    @property
    def exit_code(self) -> int:
        """The code with which a block must end."""
        found = _EXIT.fullmatch(self.rest)
        return int(found[1]) if found else 0

    @property
    def problem(self) -> str | None:
        """What is wrong with how the block is written."""
        if self.what == "setup":
            return None
        if not self.language:
            return "a block without a language: fence it as bash, yaml, python, json or text"
        if self.language in ("sh", "shell", "console"):
            return "write ```bash"
        if self.language != "bash":
            return None if self.what in ("file", "unmarked") else "only bash is run"
        if self.what == "not run" and len(self.rest) < 10:
            return "say why it is not run"
        if self.what not in ("run", "not run") or (self.what == "run" and self.rest and not _EXIT.fullmatch(self.rest)):
            return "write <!-- run -->, <!-- run: exit 1 --> or <!-- not run: why --> before it"
        return None


def pages(root: Path = ROOT) -> list[Path]:
    """List the pages that people read: in the top folder, in docs, beside examples. Generated ones have no commands."""
    found = [
        *root.glob("*.md"),
        *root.glob("docs/*.md"),
        *root.glob("examples/*/*.md"),
        *root.glob("benchmarks/**/*.md"),
    ]
    return sorted(p for p in found if not p.name.startswith("categories"))


def blocks(page: Path, root: Path = ROOT) -> Iterator[Block]:
    """Yield the blocks of a page, in order, fenced and indented ones alike."""
    name = page.relative_to(root).as_posix()
    what, rest = "unmarked", ""
    for token in MarkdownIt().parse(page.read_text(encoding="utf-8")):
        line = token.map[0] + 1 if token.map else 0
        if token.type == "html_block":
            found = _MARK.fullmatch(token.content.strip())
            what, rest = (found["word"], found["rest"] or "") if found else ("unmarked", "")
            if what == "setup":
                yield Block(name, line, what, "", rest + "\n", "bash")
                what = "unmarked"
        elif token.type in ("fence", "code_block"):
            language = token.info.split()[0] if token.info.split() else ""
            yield Block(name, line, what, rest, token.content, language)
            what, rest = "unmarked", ""
        elif token.nesting >= 0 and token.type != "inline":
            what, rest = "unmarked", ""


def main() -> None:
    """Print each block of commands and the totals; exit 1 where one is not written as it should be."""
    found = [b for page in pages() for b in blocks(page)]
    wrong = [f"{b.page}:{b.line}: {b.problem}" for b in found if b.problem]
    commands = [b for b in found if b.language == "bash" and b.what != "setup"]
    for b in commands:
        print(f"{b.page}:{b.line}: {b.what}{': ' + b.rest if b.rest else ''}")
    ran = sum(b.what == "run" for b in commands)
    print(f"{len(commands)} blocks of commands: {ran} run by the tests, {len(commands) - ran} not run")
    if wrong:
        sys.exit("\n".join(wrong))


if __name__ == "__main__":
    main()
