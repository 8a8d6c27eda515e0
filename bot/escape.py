"""Makes outside text (log lines, titles, branch names, test ids) safe inside a GitHub comment.

Every function takes text by strangers and returns `Markdown`, the only type that a template prints. Rules and why, in
short: a fence or
inline code must be longer than what it holds; a table cell wants `<code>` and entities since parsers differ on a
backslash before a
pipe; mentions and references are found after entities are decoded, so their tokens are broken by a word joiner;
hidden characters go.
"""

from __future__ import annotations

import functools
import re
import unicodedata
from urllib.parse import quote

from matrix.masking import mask

LIMIT = 60_000  # UTF-8 bytes, of the comment and of each field of a check run
_WJ = "\u2060"  # word joiner: no width, no line break
_ANSI = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)|[@-Z\\-_])")
_TIMESTAMP = re.compile(r"^\ufeff?\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d+Z ?", re.MULTILINE)
# Cc control, Cf format (bidi, zero-width, tags), Cs surrogate, Co private use, Cn unassigned
_HIDDEN = frozenset({"Cc", "Cf", "Cs", "Co", "Cn"})
_BLANK = "\u2028\u2029\u0085\u3164\u115f\u1160\uffa0\u2800"  # look like nothing


class _Visible(dict[int, str]):
    """A translation table that learns: hidden characters become nothing, odd blanks a blank, all else itself."""

    def __missing__(self, key: int) -> str:
        c = chr(key)
        kept = " " if c in _BLANK else c if c in "\n\t\r" or unicodedata.category(c) not in _HIDDEN else ""
        self[key] = kept
        return kept


_VISIBLE = _Visible()


class Markdown(str):
    """Text that may stand in a comment as it is: written by us, or escaped by this module."""

    __slots__ = ()


@functools.lru_cache(maxsize=1024)  # the comment is tried with several limits over the same texts
def clean(text: str) -> str:
    """Take out terminal codes, control and invisible characters, runner timestamps and credentials; fold progress
    bars.
    """
    text = text.encode("utf-8", "replace").decode("utf-8")
    text = _ANSI.sub("", text).replace("\r\n", "\n")
    if "\r" in text:
        text = "\n".join(line.rstrip("\r").rsplit("\r", 1)[-1] for line in text.split("\n"))
    text = text.translate(_VISIBLE)
    return mask(_TIMESTAMP.sub("", text))


def _line(text: str) -> str:
    return re.sub(r"\s+", " ", clean(text)).strip()


def _longest_run(text: str) -> int:
    return max((len(run) for run in re.findall("`+", text)), default=0)


def fence(text: str, lang: str = "text") -> Markdown:
    """Make a fenced block that no content can close; wants a blank line before and after it."""
    text = clean(text).strip("\n")
    ticks = "`" * max(3, _longest_run(text) + 1)
    return Markdown(f"{ticks}{lang}\n{text}\n{ticks}")


def code(text: str) -> Markdown:
    """Inline code on one line, outside tables and raw HTML."""
    text = _line(text) or " "
    ticks = "`" * (_longest_run(text) + 1)
    pad = " " if "`" in (text[0], text[-1]) else ""
    return Markdown(f"{ticks}{pad}{text}{pad}{ticks}")


def cell_code(text: str) -> Markdown:
    """Code in a table cell or inside raw HTML."""
    return Markdown(f"<code>{html_text(text)}</code>")


def is_own(text: str) -> bool:
    """Tell for the id of a run of `matrix`, whose form nothing has that GitHub links inside of code."""
    return re.fullmatch(r"[0-9]{8}-[0-9]{6}-[0-9a-f]{4}", text) is not None


_LINKED: tuple[tuple[re.Pattern[str], str], ...] = (
    (re.compile(r"@(?=\w)"), "@" + _WJ),  # @user, @org/team, owner/repo@commit, mail
    (re.compile(r"#(?=\w)"), "#" + _WJ),  # #12, owner/repo#12
    (re.compile(r"(?i)(GH-)(?=\d)"), r"\1" + _WJ),
    (re.compile(r"(?i)\b(https?|ftp|mailto|xmpp):"), r"\1:" + _WJ),
    (re.compile(r"(?i)(https?|ftp|mailto|xmpp):(?!" + _WJ + ")"), r"\1:" + _WJ),  # glued to a word before it
    (re.compile(r"(?i)(www)\."), r"\1" + _WJ + "."),
    (re.compile(r":(?=[+\w-]+:)"), ":" + _WJ),  # :emoji:
)
_COMMIT = re.compile(r"(?a)\b[0-9a-fA-F]{7,40}\b")


def _unlink(text: str) -> str:
    """Break whatever GitHub links or pings once it has decoded entities."""
    for pattern, to in _LINKED:
        text = pattern.sub(to, text)
    # Every six digits: a break after only the first six would leave a shorter commit id.
    return _COMMIT.sub(lambda m: _WJ.join(re.findall(".{1,6}", m[0])), text)


def prose(text: str) -> Markdown:
    """Outside text as plain words in a paragraph or a table cell."""
    text = _unlink(_line(text))
    for raw, entity in (("&", "&amp;"), ("<", "&lt;"), (">", "&gt;"), ("\\", "&#92;"), ("|", "&#124;")):
        text = text.replace(raw, entity)
    text = re.sub(r"([`*_{}\[\]()~$^!:])", r"\\\1", text)
    text = re.sub(r"(?<!&)#", r"\\#", text)
    if text[:1] in ("-", "+", "="):  # a list or a heading's underline at a line start
        return Markdown("\\" + text)
    return Markdown(re.sub(r"^(\d+)(?=\.|\\\))", r"\1" + _WJ, text))


_HTML = {"&": "&amp;", "<": "&lt;", ">": "&gt;", '"': "&quot;", "'": "&#39;"} | {
    c: f"&#{ord(c)};" for c in "`*_[]|~\\$^:!{}"
}


def sentence(text: str) -> Markdown:
    """Words in which pairs of backticks mean code, as the rule pages write them; every part is escaped by its kind."""
    parts = re.split(r"`([^`]+)`", _line(text))
    shown = [cell_code(part) if n % 2 else _words(part) for n, part in enumerate(parts)]
    return Markdown("".join(shown))


def _words(part: str) -> str:
    """Prose that keeps the blanks at its ends, which part it from code beside it."""
    if not part.strip():
        return part
    before, after = part[: len(part) - len(part.lstrip())], part[len(part.rstrip()) :]
    return f"{before}{prose(part)}{after}"


def html_text(text: str) -> Markdown:
    """Text inside raw HTML (`<summary>`, `<code>`): one line, entities, tokens broken."""
    return Markdown("".join(_HTML.get(c, c) for c in _unlink(_line(text))))


def link(label: Markdown, url: str) -> Markdown:
    """Make a link that we built: only http(s), every character that Markdown or HTML reads is percent-encoded.

    Raises:
        ValueError: the address is not an absolute http(s) one.

    """
    if not re.match(r"https?://[\w.:\[\]-]+(?:/|$)", url):
        raise ValueError(f"not an http(s) address: {url[:80]!r}")
    return Markdown(f"[{label}]({quote(url, safe=':/?#@&=%+,;.~-_')})")


def shorten(text: str, limit: int) -> str:
    """At most `limit` characters of one line, keeping its beginning and the more telling end."""
    text = _line(text)
    if len(text) <= limit:
        return text
    head = max(1, (limit - 3) * 2 // 3)
    tail = limit - 3 - head
    return f"{text[:head]} … {text[-tail:] if tail > 0 else ''}".rstrip()


def excerpt(text: str, limit: int) -> str:
    """At most `limit` UTF-8 bytes of a block: a third from its head, the rest from its tail."""
    raw = clean(text).encode()
    if len(raw) <= limit:
        return raw.decode()
    note = "\n… [cut] …\n"
    room = max(0, limit - len(note.encode()))
    head = raw[: room // 3].decode(errors="ignore")
    tail = raw[len(raw) - (room - room // 3) :].decode(errors="ignore")
    return head + note + tail
