import io
import re
from html.parser import HTMLParser

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from matrix.report import github
from matrix.report.view import view

anything = st.text(st.characters(exclude_categories=[]), max_size=80)
HOSTILE = ["</code>", "`", "|", "\n\n", "@you", "#1", "![](x)", "<img src=x>", "</pre>"]
pieces = st.lists(st.sampled_from(HOSTILE) | anything, max_size=6).map("".join)


def unescaped(line: str) -> tuple[str, str, str]:
    """Read a workflow command as GitHub's runner does: name, title, message."""
    m = re.fullmatch(r"::(\w+) title=([^,:]*)::(.*)", line)
    assert m, line
    codes = (("%0D", "\r"), ("%0A", "\n"), ("%3A", ":"), ("%2C", ","), ("%25", "%"))
    parts = [m[2], m[3]]
    for code, character in codes:
        parts = [part.replace(code, character) for part in parts]
    return m[1], parts[0], parts[1]


def test_each_failure_is_one_annotation_and_allowed_ones_warn(runs, tmp_path):
    out = io.StringIO()
    github.write(runs.cascade(), tmp_path, {"GITHUB_ACTIONS": "true"}, out)
    commands = [unescaped(line) for line in out.getvalue().splitlines()]
    assert [(level, title) for level, title, _ in commands] == [
        ("error", "qwen-sft: handoff_missing"),
        ("error", "qwen3vl-fsdp: rank_abort_teardown"),
        ("warning", "flaky: failed"),
    ]
    assert "blocked by this: qwen-lora, qwen-eval" in commands[0][2]
    assert "matrix rerun 20261201-093011-7f3a qwen-sft" in commands[0][2]


def test_outside_of_github_nothing_is_written(runs, tmp_path):
    out = io.StringIO()
    github.write(runs.cascade(), tmp_path, {}, out)
    assert out.getvalue() == ""


def test_the_summary_is_appended_to_its_file(runs, tmp_path):
    target = tmp_path / "summary.md"
    target.write_text("before\n")
    github.write(runs.cascade(), tmp_path, {"GITHUB_STEP_SUMMARY": str(target)})
    text = target.read_text()
    assert text.startswith("before\n## failed")
    assert text.count("<tr>") == 8


@given(anything, anything)
def test_a_command_is_one_line_and_read_back_as_it_was_meant(message, title):
    line = github.command("error", message, title=title)
    assert "\n" not in line
    assert "\r" not in line
    assert len(line.splitlines()) == 1
    assert unescaped(line) == ("error", github.plain(title), github.plain(message))


class Text(HTMLParser):
    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.tags: list[str] = []

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        assert not attrs


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(pieces)
def test_hostile_text_stays_text_in_the_summary(runs, tmp_path, text):
    log = tmp_path / "logs" / "x" / "1.log"
    log.parent.mkdir(parents=True, exist_ok=True)
    log.write_text("</pre>\n" + text, errors="replace")

    def page(value):
        cause = runs.cause("unknown", value, 1, fix={"en": value or "f"})
        return github.summary(view(runs.run_of(runs.job("x", "failed", cause, failing_tests=[value])), tmp_path))

    hostile, plain = Text(), Text()
    hostile.feed(page(text))
    plain.feed(page("plain"))
    assert hostile.tags == plain.tags
    outside = re.sub(r"<pre>.*?</pre>", "", page(text), flags=re.DOTALL)
    assert not re.search(r"[`@\[]|!\[", outside)


def test_the_summary_stays_within_what_github_takes(runs, tmp_path):
    log = tmp_path / "logs" / "x" / "1.log"
    log.parent.mkdir(parents=True)
    log.write_text(("火" * 600 + "\n") * 60)
    jobs = []
    for n in range(400):
        job = runs.job("x", "failed", *[runs.cause("unknown", "t", 10, end_line=40)] * 3)
        job.name = f"j{n}"
        jobs.append(job)
    text = github.summary(view(runs.run_of(*jobs), tmp_path))
    assert len(text.encode()) < 1 << 20
    assert re.search(r"\d+ more failures are in the report", text)
