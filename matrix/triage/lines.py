"""One line of a log as people read it: the runner's timestamp, rank and process prefixes and logging heads taken apart."""

from __future__ import annotations

import re
from typing import NamedTuple

MAX_TEXT = 4000  # characters kept of one line


class Line(NamedTuple):
    """A cleaned line."""

    no: int  # 1-based, of the original
    text: str  # without escape codes, runner timestamp and rank prefix
    body: str  # text without a second timestamp and a logger's head
    stream: str  # who printed it: a rank or process prefix as written, "" for none
    rank: int | None
    level: str  # a logger's level, lower case, "" for none


_TIME = r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(?:[.,]\d+)?(?:Z|[+-]\d\d:?\d\d)?"
# What runners put before each line.
_RUNNER = re.compile(
    r"(?:"
    rf"[^\t\n]{{1,120}}\t[^\t\n]{{0,120}}\t\ufeff?{_TIME} ?"  # gh run view --log
    rf"|\ufeff?{_TIME} \d\d[OE][ +]?"  # GitLab with timestamps
    rf"|{_TIME} std(?:out|err) [FP] "  # Kubernetes
    r"|\ufeff?\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3,9}Z ?"  # GitHub Actions, Azure
    r"|\[\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z\] ?"  # Jenkins
    r"|\[\d\d:\d\d:\d\d(?:\.\d+)?\](?:[ \t]|$)|\d\d:\d\d:\d\d(?:\.\d+)?(?:\t|  ?|$)"  # TeamCity, Jenkins' older timestamps
    r"|[A-Z][a-z]{2} [ \d]\d \d\d:\d\d:\d\d (?:[\w.-]+ [\w./-]+\[\d+\]: )?"  # syslog
    r")"
)
_ISO_ONE = re.compile(rf"\[?{_TIME}\]?:?(?: |$)")
_ISO = re.compile(rf"\[?{_TIME}\]?:? ?(?=\S|$)")
# Who printed it. The number, where there is one, is the rank.
_RANK = re.compile(
    r"(?:"
    r"(?P<nemo>[\w.-]+/\d+ )?\[(?P<a>rank|default|Rank |rank |RANK |worker |trainer)(?P<r1>\d+)\]:? ?"
    r"|\[(?P<mpi>\d+),(?P<r2>\d+)\]<std(?:out|err)>: ?"
    r"|\((?P<ray>[\w.<>-]+ pid=\d+(?:, ip=[\d.]+)?)\) ?"
    r"|\((?P<proc>[A-Za-z][\w-]*?(?:[_ ](?:rank|TP|DP|PP)?[_ ]?(?P<r3>\d+))?(?: pid=\d+)?)\) (?=\S)"
    r"|(?P<internal>INTERNALERROR>) ?|(?P<box>[│╷╵|]) (?=\S)"
    r"|(?P<srun>\d{1,4}): (?=\S|$)"
    r"|(?:rank|Rank|worker)[ _]?(?P<r4>\d+)\s?[:|>]\s?"
    r"|(?P<compose>[\w.-]+-\d+|[\w.-]+) +\| (?=\S|$)"
    r"|(?P<buildkit>#\d{1,4}) (?:\d+\.\d{1,3} |(?=(?:ERROR|CANCELED|DONE|CACHED)\b|\[))"
    r")"
)
_GLOG = re.compile(r"(?:\[rank\d+\]:)?(?P<level>[IWEFVD])\d{4} \d\d:\d\d:\d\d\.\d+ +\d+ [\w./<>-]+:\d+\] ?")
_LOGGER = re.compile(
    r"(?:\[[\w .:,/-]{1,60}\] ?){0,4}"
    r"[\[(<|]?\s?(?P<level>TRACE|DEBUG|INFO|NOTICE|WARNING|WARN|ERROR|CRITICAL|FATAL|SEVERE"
    r"|debug|info|warning|warn|error|critical|fatal)\s?[\])>|]?[:\s|-]"
)
_GLOG_LEVEL = {"I": "info", "W": "warning", "E": "error", "F": "fatal", "V": "debug", "D": "debug"}


def clean(no: int, raw: bytes, *, iso: bool = False) -> Line:
    """Take a raw line (escape codes already out) apart; `iso`: the runner begins each line with an ISO time."""
    if b"\r" in raw:
        raw = _last_drawn(raw)
    return split(no, raw[: 4 * MAX_TEXT].decode("utf-8", "replace").rstrip().replace("\x00", "")[:MAX_TEXT], iso=iso)


def begins_with_time(lines: list[bytes]) -> bool:
    """True if nearly all of a log's first lines begin with an ISO time: then the runner writes it, not the program."""
    full = [line for line in lines if line.strip()]
    dated = sum(_ISO.match(line[:60].decode("utf-8", "replace")) is not None for line in full)
    return len(full) >= 3 and dated >= 0.9 * len(full)


def split(no: int, text: str, *, iso: bool = False) -> Line:
    """Take a decoded line apart: runner's prefix, rank, logger."""
    found = _RUNNER.match(text) or (_ISO_ONE.match(text) if iso else None)
    if found:
        text = text[found.end() :]
    stream, rank, text = _rank(text)
    body, level = text, ""
    if body[:1] in "0123456789[" and (found := _ISO.match(body)):
        body = body[found.end() :]
        if not stream:
            stream, rank, body = _rank(body)
    if found := _GLOG.match(body):
        body = body[found.end() :]
        # glog's signal handler prints its dump at whatever level its writer was given (Paddle: W)
        dying = body.startswith("*** SIG")
        return Line(no, text, body, stream, rank, "fatal" if dying else _GLOG_LEVEL[found["level"]])
    if body[:1] in "[(<|TDINWECFSdiwecf" and (found := _LOGGER.match(body)):
        level = found["level"].lower()
    elif body is not text and (found := re.match(r"[^:\n]{0,80}?\b(DEBUG|INFO|WARNING|ERROR|CRITICAL)\b", body)):
        level = found[1].lower()
    return Line(no, text, body, stream, rank, "warning" if level == "warn" else level)


def _rank(text: str) -> tuple[str, int | None, str]:
    if text[:1] not in _STARTS or not (found := _RANK.match(text)):
        return "", None, text
    groups = found.groupdict()
    if groups["box"]:
        return "", None, text[found.end() :]
    if groups["compose"] and not re.search(r"(?:rank|worker|node|trainer|-\d+$)", groups["compose"]):
        return "", None, text
    if groups["proc"] and not groups["r3"] and "pid=" not in groups["proc"]:
        return "", None, text
    if groups["buildkit"]:
        return groups["buildkit"], None, text[found.end() :]
    number = groups["r1"] or groups["r2"] or groups["r3"] or groups["r4"] or groups["srun"]
    return found[0].strip(), int(number) if number else None, text[found.end() :]


_STARTS = frozenset("[(0123456789rRwntI│╷╵") | frozenset("abcdefghijklmnopqrstuvwxyz")


def _last_drawn(raw: bytes) -> bytes:
    """What a terminal would show of a line redrawn with carriage returns; the runner's timestamp before it is kept."""
    parts = [p for p in raw.split(b"\r") if p.strip()]
    return parts[-1] if parts else b""
