"""The documentation as a site: it builds without a warning, its links lead somewhere, its search finds."""

import contextlib
import functools
import http.server
import json
import os
import re
import shutil
import subprocess
import sys
import threading
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest

from matrix.triage.ruleset import rule_files
from tests.matrix.page.pages import look_at
from tests.once import made_once

ROOT = Path(__file__).parents[2]


def build(folder):
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", str(folder / "site")]
    env = os.environ | {"PYTHONPATH": str(ROOT), "NO_MKDOCS_2_WARNING": "1"}
    done = subprocess.run(command, cwd=ROOT, env=env, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


@pytest.fixture(scope="session")
def site(tmp_path_factory):
    return made_once(tmp_path_factory, "docs-site", build) / "site"


class Links(HTMLParser):
    """What a page refers to, and what may be referred to in it."""

    def __init__(self, text):
        super().__init__()
        self.links, self.names = [], set()
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        for name, value in attrs:
            if name == "id" or (name == "name" and tag == "a"):
                self.names.add(value)
            elif name in ("href", "src") and value:
                self.links.append(value)


def dead_links(site):
    pages = {p: Links(p.read_text(encoding="utf-8")) for p in site.rglob("*.html") if p.name != "404.html"}
    for page, found in pages.items():
        for link in found.links:
            parts = urlsplit(link)
            if parts.scheme in ("http", "https", "mailto", "data"):
                if parts.scheme.startswith("http") and not parts.hostname:
                    yield page, link
                continue
            target = (page.parent / unquote(parts.path)).resolve() if parts.path else page
            target = target / "index.html" if target.is_dir() else target
            anchor = unquote(parts.fragment)
            if not target.is_file() or (anchor and anchor not in pages[target].names | {"__skip"}):
                yield page, link


def test_every_link_of_the_site_leads_somewhere(site):
    assert list(dead_links(site)) == []


def test_links_between_files_of_the_repository_lead_somewhere_too():
    """As they are read without the site."""
    generated = re.compile(r"reference/[a-z]+\.md|categories/\w+\.md")
    for page in [*ROOT.glob("*.md"), *ROOT.glob("docs/*.md"), *ROOT.glob("examples/*/*.md")]:
        for link in re.findall(r"\]\(([^)#\s]+)(?:#[^)]*)?\)", page.read_text(encoding="utf-8")):
            if not re.match(r"[a-z]+:", link) and not generated.fullmatch(link):
                assert (page.parent / link).exists(), f"{page.name}: {link}"


def test_reference_pages_tell_every_command_key_and_category(site):
    commands = (site / "reference/commands/index.html").read_text()
    for verb in ("matrix run", "matrix doctor", "matrix rules new", "bot score", "dsv4 align"):
        assert f"<code>{verb}</code>" in commands, verb
    for page, keys in {
        "keys": ("pretend_cards", "retries", "allow_failure", "rtol"),
        "hosts": ("cpu_jobs", "labels"),
        "policy": ("approved_label", "reruns_per_user_per_day"),
        "quarantine": ("expires", "owner"),
        "rules": ("prefilter", "false_positives"),
    }.items():
        text = (site / f"reference/{page}/index.html").read_text()
        rows = [re.findall(r"<td>(.*?)</td>", row, re.DOTALL) for row in re.findall(r"<tr>(.*?)</tr>", text, re.DOTALL)]
        rows = [row for row in rows if row]
        assert {f"<code>{key}</code>" for key in keys} <= {row[0] for row in rows}
        assert [row[0] for row in rows if not row[1] or not row[3]] == [], f"{page}: keys without kind or meaning"
    names = {Path(str(f)).stem for f in rule_files()}
    assert {p.parent.name for p in site.glob("categories/*/index.html")} == names
    text = (site / "categories/checkpoint_missing_file/index.html").read_text()
    for part in (
        "What to do",
        "model_0020.pth",
        "Lines that are left alone",
        "../handoff_missing/",
        "hf-no-file-named",
    ):
        assert part in text, part


@contextlib.contextmanager
def served(folder):
    class Quiet(http.server.SimpleHTTPRequestHandler):
        def log_message(self, *_):
            pass

    handler = functools.partial(Quiet, directory=str(folder))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}/"
        server.shutdown()


PAGES = ("", "categories/handoff_missing/", "reference/keys/", "tutorial/")


def test_the_search_of_the_site_finds_in_a_browser_and_nothing_is_in_anybodys_way(site):
    program = shutil.which("chromium") or shutil.which("chromium-browser")
    assert program, "chromium is missing: bash scripts/services.sh start"
    with served(site) as url:
        order = {"chromium": program, "url": url, "words": ["quarantine", "handoff_missing", "approved_label"]}
        done = subprocess.run(
            ["node", "search.mjs", json.dumps(order)],
            capture_output=True,
            text=True,
            cwd=ROOT / "tests/node",
            timeout=120,
        )
        assert done.returncode == 0, done.stderr
        seen = look_at([url + page for page in PAGES], looks=[("light", 1280), ("dark", 390)])
    found = json.loads(done.stdout)
    assert any("pytest/" in link for link in found["quarantine"])
    assert any("categories/handoff_missing/" in link for link in found["handoff_missing"])
    assert any("reference/policy/" in link for link in found["approved_label"])
    assert [(s["url"], s["scheme"], s["violations"]) for s in seen if s["violations"] or s["wide"]] == []
    assert found["elsewhere"] == [], "the site fetches from other hosts"
