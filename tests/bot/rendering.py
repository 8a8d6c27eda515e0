"""Renders a comment as GitHub would (its own Markdown library, then a sanitiser) and finds what is live in it but was
not asked for.
"""

from __future__ import annotations

import html
import json
import re
import shutil
import subprocess
import tempfile
from pathlib import Path

import cmarkgfm
import nh3
from cmarkgfm.cmark import Options

ROOT = Path(__file__).parents[2]
NODE = ROOT / "tests" / "node"
OPTIONS = Options.CMARK_OPT_UNSAFE | Options.CMARK_OPT_HARDBREAKS | Options.CMARK_OPT_GITHUB_PRE_LANG
TAGS = {
    "h1",
    "h2",
    "h3",
    "h4",
    "h5",
    "h6",
    "br",
    "b",
    "i",
    "strong",
    "em",
    "a",
    "pre",
    "code",
    "img",
    "tt",
    "div",
    "ins",
    "del",
    "sup",
    "sub",
    "p",
    "ol",
    "ul",
    "table",
    "thead",
    "tbody",
    "tfoot",
    "blockquote",
    "dl",
    "dt",
    "dd",
    "kbd",
    "q",
    "samp",
    "var",
    "hr",
    "ruby",
    "rt",
    "rp",
    "li",
    "tr",
    "td",
    "th",
    "s",
    "strike",
    "summary",
    "details",
    "caption",
    "figure",
    "figcaption",
    "abbr",
    "cite",
    "dfn",
    "mark",
    "small",
    "span",
    "time",
    "wbr",
    "input",
    "picture",
    "source",
}
ATTRIBUTES = {
    "*": {"align", "alt", "title", "width", "height", "open", "colspan", "rowspan", "lang", "dir"},
    "a": {"href"},
    "img": {"src"},
    "input": {"type", "checked", "disabled"},
}
CHROMIUM_FLAGS = (
    *("--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--hide-scrollbars"),
    *("--disable-background-networking", "--disable-component-update", "--disable-sync"),
)
LIVE = re.compile(
    r"(?a)(?<![\w/`])@[A-Za-z0-9][\w-]*|(?<![\w&])(?:[\w.-]+/[\w.-]+)?#\d+\b|\bGH-\d+\b|\b[0-9a-f]{7,40}\b|https?://|\bwww\.\w"
)


def to_html(markdown: str) -> str:
    raw = cmarkgfm.github_flavored_markdown_to_html(markdown, options=OPTIONS)
    return nh3.clean(
        raw, tags=TAGS, attributes=ATTRIBUTES, url_schemes={"http", "https", "mailto"}, link_rel="nofollow"
    )


def problems(markdown: str, allowed_links: tuple[str, ...] = ()) -> list[str]:
    """Links, images and tokens that GitHub would act on. Like its filters, looks at text nodes outside code and
    links.
    """
    page = to_html(markdown)
    found = [
        f"link {url}"
        for url in map(html.unescape, re.findall(r'<a[^>]*href="([^"]*)"', page))
        if not url.startswith(allowed_links or ("\0",))
    ]
    found += [f"image {url}" for url in re.findall(r'<img[^>]*src="([^"]*)"', page)]
    if page.count("<details") != page.count("</details>"):
        found.append("unbalanced details")
    text = re.sub(r"<(pre|code|a)\b.*?</\1>", " ", page, flags=re.DOTALL)
    return found + [f"live {m}" for m in LIVE.findall(html.unescape(re.sub(r"<[^>]+>", "\n", text)))]


def install_node() -> None:
    subprocess.run(["bash", str(ROOT / "scripts" / "node.sh")], check=True, timeout=280)


def second_opinion(texts: list[str]) -> list[list[str]]:
    """What remark, a parser by other people, finds live in each text."""
    done = subprocess.run(
        ["node", str(NODE / "oracle.mjs")],
        input=json.dumps(texts),
        capture_output=True,
        text=True,
        check=True,
        timeout=280,
    )
    return json.loads(done.stdout)


def page_of(markdown: str, theme: str, *, opened: bool = False) -> str:
    """A page with the comment in a box of GitHub's width and style. The page runs nothing and fetches nothing."""
    css = (NODE / "node_modules" / "github-markdown-css" / f"github-markdown-{theme}.css").read_text()
    body = to_html(markdown)
    if opened:
        body = body.replace("<details>", "<details open>")
    background = "#0d1117" if theme == "dark" else "#ffffff"
    return f"""<!doctype html><html lang="en"><head><meta charset="utf-8">
<meta name="viewport" content="width=device-width">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'unsafe-inline'; img-src data:">
<style>{css}
body{{margin:8px;background:{background}}} .box{{max-width:860px;border:1px solid #8884;border-radius:6px;padding:16px}}
.markdown-body{{font-size:14px}}</style></head>
<body><div class="box"><article class="markdown-body">{body}</article></div></body></html>"""


def chromium(page: Path, *arguments: str, width: int = 940, height: int = 1200) -> str:
    """Run headless Chromium on a page; returns its stdout."""
    program = shutil.which("chromium") or shutil.which("chromium-browser")
    assert program, "chromium is missing: bash scripts/services.sh start"
    with tempfile.TemporaryDirectory() as profile:
        done = subprocess.run(
            [
                program,
                *CHROMIUM_FLAGS,
                f"--user-data-dir={profile}",
                f"--window-size={width},{height}",
                *arguments,
                page.as_uri(),
            ],
            capture_output=True,
            text=True,
            timeout=120,
            check=True,
        )
    return done.stdout
