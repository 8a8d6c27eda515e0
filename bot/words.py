"""The bot's own sentences in English and Chinese: the same facts, each written in its language."""

from __future__ import annotations

from collections.abc import Mapping

from bot.board import Board, all_rows
from bot.escape import Markdown
from matrix.records import Status, VerdictValue

LANGUAGES = ("en", "zh")

_W: Mapping[str, tuple[str, str]] = {
    "job": ("Job", "任务"),
    "happened": ("What happened, and what to do", "发生了什么，怎么办"),
    "todo": ("To do", "怎么办"),
    "whose": ("Is it this change?", "是本次改动引起的吗？"),
    "rerun": ("Re-run", "重跑"),
    "rerun_all_failed": ("Re-run all that failed", "重跑全部失败任务"),
    "command_line": ("on the command line", "命令行"),
    "commit": ("Commit", "提交"),
    "base": ("base", "基线"),
    "run": ("run", "运行"),
    "rank": ("rank", "rank"),
    "blocks": ("blocks", "阻塞了"),
    "drags": ("the cause of the failure of", "并导致失败"),
    "more_causes": ("Also", "另有"),
    "more_jobs": ("More jobs in the same state", "其余同类任务"),
    "more": ("more", "项未列出"),
    "others": ("Not from this change", "与本次改动无关"),
    "allowed": ("Allowed to fail", "允许失败"),
    "tests": ("Failing tests", "失败的测试"),
    "details": ("Evidence and log excerpts", "证据与日志片段"),
    "history": ("Earlier attempts", "此前的尝试"),
    "failed_then": ("failed", "失败"),
    "passed_then": ("passed", "通过"),
    "compared": ("Compared with", "对比对象"),
    "facts": ("Noted", "备注"),
    "follows_from_it": ("Follows from it", "由此引发"),
    "waiting": ("Not finished", "未结束"),
    "running": ("running", "运行中"),
    "queued": ("waiting", "排队中"),
    "place": ("place", "排位"),
    "wrong": ("Something wrong here? Comment", "诊断有误？请评论"),
    "or_react": ("or react with 👎; all commands:", "或点 👎；全部命令："),
    "log_later": (
        "The log is not available yet; this row is filled in when the run ends.",
        "日志尚不可用；运行结束后会补全此行。",
    ),
    "log_gone": (
        "The log is gone, so nothing can be said about the cause; a re-run writes a new one.",
        "日志已不存在，无法判断原因；重跑会生成新的日志。",
    ),
    "no_line": ("No line of the log shows a cause that a rule knows.", "日志中没有规则能识别的原因。"),
    "read_here": ("Start reading at the quoted line.", "请从引用的这一行读起。"),
    "read_end": ("Start reading at the end of the log.", "请从日志末尾读起。"),
    "cancelled_fix": ("It was cancelled; re-run it if its result is needed.", "任务已被取消；如需结果请重跑。"),
    "blocked_fix": (
        "Mend the job it waits for; nothing is wrong here.",
        "请先修复它所依赖的任务；此任务本身没有问题。",
    ),
    "quarantined": ("Does not count:", "不计入结果："),
    "error_fix": ("The tool or the host failed, not the code; re-run it.", "是工具或主机出错，而非代码；请重跑。"),
}

STATUS: Mapping[Status, tuple[str, str]] = {
    Status.FAILED: ("failed", "失败"),
    Status.TIMEOUT: ("timed out", "超时"),
    Status.CANCELLED: ("cancelled", "已取消"),
    Status.BLOCKED: ("blocked", "被阻塞"),
    Status.ERROR: ("tool error", "工具出错"),
    Status.PASSED: ("passed", "通过"),
    Status.SKIPPED: ("skipped", "跳过"),
    Status.RUNNING: ("running", "运行中"),
    Status.PENDING: ("waiting", "等待中"),
}

UNFINISHED = (Status.RUNNING, Status.PENDING)

VERDICT: Mapping[VerdictValue, tuple[str, str]] = {
    "this-change": ("from this change", "由本次改动引起"),
    "base": ("the base branch fails alike", "基线分支同样失败"),
    "infra": ("infrastructure", "基础设施问题"),
    "flaky": ("flaky", "偶发失败"),
    "follows": ("follows from another job", "由其他任务引起"),
    "gate": ("a gate; no code ran", "门禁；未运行代码"),
    "cannot-tell": ("cannot tell whose", "无法判断归属"),
}

NOTES: Mapping[str, tuple[str, str]] = {
    "spec-from-base": (
        "This pull request changes the matrix, rules or policy; for a fork they are read from the base branch.",
        "本 PR 修改了矩阵、规则或命令策略；来自 fork 时一律以基线分支上的版本为准。",
    ),
    "artifact-refused": (
        "A result archive was refused as unsafe; the rows come from the logs.",
        "某个结果压缩包因不安全而被拒绝；各行内容来自日志。",
    ),
    "artifact-of-pr": (
        "Some rows come from a result file that the pull request's own run wrote.",
        "部分行来自本 PR 自身运行所写的结果文件。",
    ),
    "budget": (
        "Not every log was read: the request budget of this event was used up.",
        "未读取全部日志：本次事件的请求配额已用完。",
    ),
}


def word(key: str, language: str) -> Markdown:
    """One of our own words."""
    return Markdown(_W[key][LANGUAGES.index(language)])


def pick(pair: tuple[str, str], language: str) -> Markdown:
    """Return the language's half of a pair."""
    return Markdown(pair[LANGUAGES.index(language)])


class Tally:
    """The counts that the verdict line states."""

    def __init__(self, board: Board) -> None:
        must = [row for row in all_rows(board.rows) if not row.allowed]
        self.failed = sum(r.status in (Status.FAILED, Status.TIMEOUT, Status.ERROR) for r in must)
        self.blocked = sum(r.status is Status.BLOCKED for r in must)
        self.cancelled = sum(r.status is Status.CANCELLED for r in must)
        self.allowed = sum(r.allowed for r in all_rows(board.rows))
        self.passed = board.counts.get(Status.PASSED, 0)
        self.skipped = board.counts.get(Status.SKIPPED, 0)
        self.running = board.counts.get(Status.RUNNING, 0)
        self.pending = board.counts.get(Status.PENDING, 0)
        self.total = board.total


def nth(attempt: int, language: str) -> Markdown:
    """Which attempt, in words."""
    return Markdown(f"attempt {attempt}" if language == "en" else f"第 {attempt} 次尝试")


ICON = {"red": "❌", "pending": "⏳", "green": "✅", "grey": "⚪", "none": "⚠️"}


def _en(t: Tally, colour: str) -> str:
    if colour == "none":
        return "Nothing ran, which counts as a failure"
    if colour == "green":
        line = "The one job passed" if t.total == 1 else f"All {t.passed} jobs passed"
        if t.allowed:
            line = f"{t.passed} of {t.total} jobs passed"
    else:
        parts = [f"{t.failed} of {t.total} job{'s' * (t.total != 1)} failed"] if t.failed else []
        parts += (
            [f"{t.blocked} blocked by {'them' if t.failed > 1 else 'it' if t.failed else 'others'}"]
            if t.blocked
            else []
        )
        parts += [f"{t.cancelled} cancelled"] if t.cancelled else []
        parts += [f"{t.passed} passed"]
        line = ", ".join(parts)
    parts = [f"{t.allowed} failed that may" if t.allowed else ""]
    parts += [f"{t.running} running" if t.running else "", f"{t.pending} waiting" if t.pending else ""]
    parts += [f"{t.skipped} not selected" if t.skipped else ""]
    return "; ".join([line, *filter(None, parts)])


def _zh(t: Tally, colour: str) -> str:
    if colour == "none":
        return "没有任何任务运行，按失败处理"
    if colour == "green":
        line = f"{t.total} 个任务中 {t.passed} 个通过" if t.allowed else f"{t.passed} 个任务全部通过"
    else:
        parts = [f"{t.total} 个任务中 {t.failed} 个失败"] if t.failed else [f"共 {t.total} 个任务"]
        parts += [f"{t.blocked} 个因此被阻塞"] if t.blocked else []
        parts += [f"{t.cancelled} 个被取消"] if t.cancelled else []
        parts += [f"{t.passed} 个通过"]
        line = "，".join(parts)
    parts = [f"{t.allowed} 个允许失败的任务失败" if t.allowed else ""]
    parts += [f"{t.running} 个运行中" if t.running else "", f"{t.pending} 个等待中" if t.pending else ""]
    parts += [f"{t.skipped} 个未被选中" if t.skipped else ""]
    return "；".join([line, *filter(None, parts)])


def verdict_line(board: Board, language: str) -> Markdown:
    """Return the first thing that is read: how many of how many, with an icon."""
    colour = board.colour
    say = _en if language == "en" else _zh
    return Markdown(f"{ICON[colour]} {say(Tally(board), colour)}")


def whose_line(board: Board, language: str) -> Markdown:
    """Count of each verdict over the rows, so that 'is it mine?' is answered before any row is read."""
    rows = [row for row in board.rows if not row.allowed]
    counted = [(v, sum(row.verdict == v for row in rows)) for v in VERDICT]
    return Markdown(" · ".join(f"{pick(VERDICT[v], language)}: {n}" for v, n in counted if n))
