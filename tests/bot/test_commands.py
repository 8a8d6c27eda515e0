import pytest
from hostile import mix
from hypothesis import given
from hypothesis import strategies as st
from rendering import problems

from bot.commands import VERBS, Command, parse, resolve, split
from bot.names import quote_name


def verbs(body):
    return [c.verb for c in parse(body)]


@pytest.mark.parametrize(
    ("body", "want"),
    [
        ("/rerun", Command("rerun")),
        ("/re-run all-failed", Command("rerun")),
        ("/rerun failed", Command("rerun")),
        ("/rerun all", Command("rerun", everything=True)),
        ("please\n/rerun qwen-sft lora\nthanks", Command("rerun", ("qwen-sft", "lora"))),
        ('/rerun "unit (3.11)" --times 5', Command("rerun", ("unit (3.11)",), times=5)),
        ("/rerun unit --times=3", Command("rerun", ("unit",), times=3)),
        ("/rerun “unit (3.11)”", Command("rerun", ("unit (3.11)",))),
        ("/RERUN unit\u2060-a", Command("rerun", ("unit-a",))),
        ("/explain", Command("explain")),
        ("/explain unit", Command("explain", ("unit",))),
        ("/compare main", Command("compare", ("main",))),
        (
            "/quarantine t/a.py::b[x] flaky since May",
            Command("quarantine", ("t/a.py::b[x]",), reason="flaky since May"),
        ),
        ("/cancel", Command("cancel")),
        ("/wrong unit category=oom_killed line=12", Command("wrong", ("unit",), category="oom_killed", line=12)),
        ("/help", Command("help")),
        ("   /help", Command("help")),
    ],
)
def test_what_is_a_command(body, want):
    assert parse(body) == [want]


@pytest.mark.parametrize(
    "body",
    [
        "> /rerun",
        "> quoted\n/rerun",  # GitHub shows this line inside the quote
        "```\n/rerun\n```",
        "~~~text\n/rerun\n~~~",
        "    /rerun",
        "\t/rerun",
        "`/rerun`",
        "`a\n/rerun\nb`",
        "``a\n/rerun`` b",
        "<!-- \n/rerun\n-->",
        "<details>\n/rerun\n</details>",
        "[a\n/rerun](http://e.invalid)",
        "- /rerun",
        "1. x\n\n   /rerun",
        "# /rerun",
        "| a |\n|---|\n| /rerun |",
        "try /rerun",
        "./rerun",
        "\\/rerun",
        "//rerun",
        "/usr/bin/rerun",
        "/lgtm",
        "/retest",
        "/ rerun",
        "",
        "<!--\n/rerun",
        "```\n/rerun",  # never closed
    ],
)
def test_what_is_none(body):
    assert parse(body) == []


@pytest.mark.parametrize(
    ("body", "says"),
    [
        ("/rerunn", "did you mean `/rerun`"),
        ("/explian x", "did you mean `/explain`"),
        ("/rerun x --times 0", "from 1 to 20"),
        ("/rerun x --times 99", "from 1 to 20"),
        ("/rerun x --times", "from 1 to 20"),
        ("/rerun --times 3", "wants the name"),
        ("/rerun x --force", "unknown option"),
        ("/compare", "write a branch"),
        ("/compare a..b", "write a branch"),
        ("/compare ../../etc", "write a branch"),
        ("/quarantine x", "a reason"),
        ("/wrong unit", "right category"),
        ("/wrong category=oom_killed", "right category"),
        ("/wrong unit category=oom line=0", "number of a line"),
    ],
)
def test_mistakes_are_answered(body, says):
    (command,) = parse(body)
    assert says in command.error


def test_several_commands_in_one_comment_and_each_once():
    assert verbs("/rerun\ntext\n/explain a\n/rerun") == ["rerun", "explain"]
    assert verbs("\n\n".join(f"/explain j{i}" for i in range(20))) == ["help"]
    assert "at most" in parse("\n\n".join(f"/explain j{i}" for i in range(20)))[0].error


NAMES = ["unit (3.11)", "unit (3.12)", "qwen-sft", "Integration test (H20, single card)", "lint"]


def test_names_with_spaces_need_no_quotes_and_case_does_not_count():
    words = split("Integration TEST (H20, single card) lint unit (3.11)")
    assert resolve(words, NAMES).names == (NAMES[3], "lint", "unit (3.11)")


def test_an_unknown_name_gets_the_nearest():
    resolved = resolve(["qwen-stf"], NAMES)
    assert resolved.names == ()
    assert resolved.unknown[0][1][0] == "qwen-sft"


@given(st.text(max_size=30).filter(str.strip))
def test_a_quoted_name_is_read_back(name):
    clean = " ".join("".join(c for c in name if c.isprintable()).split())
    if clean and '"' not in clean.translate({8220: '"', 8221: '"'}):
        (command,) = parse(f"/explain {quote_name(clean)}") or [Command("explain", (clean,))]
        assert len(command.words) == 1


@given(st.randoms(use_true_random=False))
def test_any_comment_is_read_without_error(chance):
    body = "\n".join(
        chance.choice([mix(chance), "/rerun x", f"/{chance.choice(list(VERBS))} {mix(chance)}"]) for _ in range(5)
    )
    for command in parse(body):
        assert command.verb in VERBS or command.error


def test_reading_is_not_slow_for_hostile_nesting():
    for piece in ("[", "*a ", "`", "> ", "<", "![", "/rerun `\n", "- "):
        parse(piece * 5000)


HOSTILE = (
    "@octo/team",
    "#12",
    "o/r#2",
    "https://e.invalid/x",
    "<img/src=x>",
    "![i](http://e.invalid/p.png)",
    "`@octocat`",
    "``#3``",
)


@pytest.mark.parametrize("word", HOSTILE)
@pytest.mark.parametrize(
    "line",
    [
        "/rerun --{}",
        "/rerun a --times {}",
        "/compare {}",
        "/wrong {} category={}",
        "/wrong a line={}",
        "/quarantine {}",
    ],
)
def test_what_is_said_of_a_mistake_acts_on_nobody(line, word):
    command = parse(line.replace("{}", word))[0]
    assert command.error
    assert not problems(f"❌ {command.error}")
