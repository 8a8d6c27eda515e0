from html.parser import HTMLParser

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from matrix.report import html

anything = st.text(st.characters(exclude_categories=[]), max_size=60)
pieces = st.lists(
    st.sampled_from(
        [
            "<script>",
            "</pre>",
            "</style>",
            '"',
            "'",
            "&lt;",
            "<!--",
            "]]>",
            "{{ 7*7 }}",
            "{% raw %}",
            "javascript:alert(1)",
        ]
    )
    | anything,
    max_size=8,
).map("".join)


class Shape(HTMLParser):
    """Records tags, attributes and text as a browser would see them."""

    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.tags: list[str] = []
        self.links: list[str] = []
        self.names: set[str] = set()
        self.text = ""

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        self.names |= {k for k, _ in attrs}
        self.links += [v for k, v in attrs if k in ("href", "src")]

    def handle_data(self, data):
        self.text += data


def shape(page: str) -> Shape:
    parser = Shape()
    parser.feed(page)
    parser.close()
    return parser


def run_with(runs, tmp_path, text):
    log = tmp_path / "logs" / "x" / "1.log"
    log.parent.mkdir(parents=True, exist_ok=True)
    log.write_text("a\nb\n" + " ".join(text.splitlines()) + "\n", errors="replace", newline="\n")
    job = runs.job(
        "x",
        "failed",
        runs.cause("unknown", text, 3, fix={"en": text.replace("`", "") or "f"}),
        suite=text,
        reason=text or "r",
        failing_tests=[text],
    )
    job.facts.append(runs.Fact(key=text, value=[text], source=text or "s"))
    return runs.run_of(job, host=text, commit=text or "c")


def test_the_page_tells_failures_what_they_block_and_the_way_to_run_again(runs, tmp_path):
    path = html.write(runs.cascade(), tmp_path)
    text = " ".join(shape(path.read_text()).text.split())
    for part in (
        "failed: 2 failed, 2 blocked, 1 passed, 1 skipped, 1 allowed to fail of 7 jobs",
        "Could not run because of this: qwen-lora, qwen-eval",
        "matrix rerun 20261201-093011-7f3a qwen3vl-fsdp",
        "Destroy the process group before the exit.",
        "training_finished: True logs/qwen3vl-fsdp/1.log:2",
        "tests/a.py::test_b[bf16]",
    ):
        assert part in text, part


def test_backticks_of_a_fix_become_code_and_nothing_else(runs, tmp_path):
    cause = runs.cause("unknown", "t", 1, fix={"en": "set `a<b>` & go"})
    page = html.render(runs.run_of(runs.job("x", "failed", cause)), tmp_path)
    assert "set <code>a&lt;b&gt;</code> &amp; go" in page


def test_a_run_going_on_and_an_empty_run_have_a_page(runs, tmp_path):
    going = runs.run_of(runs.job("a", "running"), runs.job("b", "pending", ran=False), status="running", ended=None)
    assert "not ended" in html.render(going, tmp_path)
    assert "no job of 0 jobs" in html.render(runs.run_of(), tmp_path)


def test_links_stay_inside_the_run_folder_and_quote_odd_names(runs, tmp_path):
    job = runs.job("x", "failed")
    job.attempts[0].log = 'logs/a b"#?<x>/1.log'
    links = shape(html.render(runs.run_of(job), tmp_path)).links
    assert set(links) == {"logs/a%20b%22%23%3F%3Cx%3E/1.log"}


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(pieces)
def test_hostile_text_changes_nothing_but_text(runs, tmp_path, text):
    page = html.render(run_with(runs, tmp_path, text), tmp_path)
    seen, plain = shape(page), shape(html.render(run_with(runs, tmp_path, "plain"), tmp_path))
    assert seen.tags == plain.tags
    assert seen.names == plain.names
    assert seen.links == plain.links
    page.encode()
    assert seen.text.count("{{ 7*7 }}") >= text.count("{{ 7*7 }}")
