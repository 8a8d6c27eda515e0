"""Pieces of hostile text, mixed at random: what a log, a title or a branch name could hold to act on GitHub in our
name.
"""

import random

PIECES = (
    "@octocat", "@o/team", "#1", "o/r#2", "GH-3", "gh-4", "o/r@deadbeef1", "https://e.invalid/x", "www.e.invalid",
    "ftp://e.invalid",
    "xhttps://e.invalid", "mailto:a@b.invalid", "xmpp:a@b.invalid", "x@y.invalid", "<https://e.invalid>",
    "user@host:/path",
    "a13fcde3f809a011edff0a22", "deadbeef", "0123456", "`", "``", "```", "````", "~~~", "|", "\\", "\\`", "\\|",
    "\n", "\n\n", "\r",
    " ", "\t", "    ", "<b>", "</details>", "<details>", "</summary>", "</code>", "</pre>", "<!--", "-->",
    "<!DOCTYPE", "<![CDATA[",
    "<script>", "<img src=x>", "![i](http://e.invalid/p.png)", "[x](javascript:a)", "[x]: http://e.invalid", "[^1]",
    "[ ]", "*", "_", "**",
    "# h", "- ", "1. ", "1) ", "+ ", "> ", ">", "> [!NOTE]", "&lt;", "&#64;octocat", "&", "$", "$$", "$`", ":tada:",
    "\x1b[31m",
    "\x1b]8;;http://e.invalid\x07", "\u202e", "\u200b", "@\u200boctocat", "\u2028", "\u2066", "\U000e0041", "\ufeff",
    "\ud800", "\x00",
    "a", "é", "修复", "deadbeef修复", "---", "===", "^", "0", "{{", "{%", "<!-- matrix-report:v1 -->", "##[group]",
)  # fmt: skip


def mix(chance: random.Random, most: int = 9) -> str:
    """A text of up to `most` pieces."""
    return "".join(chance.choice(PIECES) for _ in range(chance.randint(1, most)))
