"""`matrix rules`: users write rules, and a bad one is refused with file, line and reason."""

import json
import subprocess
from pathlib import Path

import pytest
from click.testing import CliRunner

from matrix.commands.rules import SKELETON, command
from matrix.errors import UsageError
from matrix.triage.rule_docs import overview
from matrix.triage.rule_file import read_rule, read_rules
from matrix.triage.ruleset import load_rules, rule_files

GOOD = SKELETON.format(name="acme_store", slug="acme-store")
FIRST = "acme-store: cannot open (?P<path>\\S+)"


@pytest.fixture
def rules_dir(tmp_path, monkeypatch):
    (tmp_path / "matrix.yaml").write_text("")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    folder = tmp_path / ".matrix" / "rules"
    folder.mkdir(parents=True)
    return folder


def run(*args):
    done = CliRunner().invoke(command, args)
    return done.exit_code, done.output, done.exception


def check(folder, text):
    """Write a rule, check it, and give what is printed and raised."""
    (folder / "acme_store.yaml").write_text(text)
    code, output, error = run("check")
    return code, f"{output} {getattr(error, 'message', '')} {getattr(error, 'advice', '')}"


def test_the_rule_that_new_writes_passes_its_own_check(rules_dir):
    assert run("new", "acme_store", "--write")[0] == 0
    assert run("check")[:2] == (0, "1 rules, 1 patterns: good\n")
    assert "acme_store" in load_rules([rules_dir]).categories


def test_a_user_s_rule_joins_the_built_in_ones_and_names_a_log(rules_dir):
    (rules_dir / "acme_store.yaml").write_text(GOOD.replace("confidence: 0.9", "confidence: 0.95"))
    log = rules_dir.parent / "job.log"
    log.write_text("loading\nacme-store: cannot open shard-7\nerror: giving up\nexit status 3\n")
    done = subprocess.run(
        ["matrix", "triage", "--json", "--exit-code", "3", str(log)],
        capture_output=True,
        text=True,
        cwd=rules_dir.parent,
    )
    cause = json.loads(done.stdout)["logs"][0]["causes"][0]
    assert (cause["category"], cause["line"]) == ("acme_store", 2)


def test_a_user_may_add_a_wording_to_a_built_in_category(rules_dir):
    text = GOOD.replace("category: acme_store ", "category: disk_full ")
    (rules_dir / "disk_full.yaml").write_text(text)
    rules = load_rules([rules_dir])
    assert {p.category for p in rules.patterns if p.id == "acme-store-first"} == {"disk_full"}
    assert rules.categories["disk_full"].title["en"] == "The disk is full"
    assert run("check")[0] == 0


@pytest.mark.parametrize(
    ("old", "new", "reason"),
    [
        (FIRST, "(a+)+ acme-store: cannot open (?P<path>\\S+)", "a repeat inside a repeat"),
        (FIRST, "acme(?=-store: cannot open )-store: cannot open (?P<path>\\S+)", "prefilter: true"),
        (FIRST, "INFO (?P<path>\\w{2,20})", "hits the green log"),
        (FIRST, "[a-z]+ (?P<path>[a-z]+)", "too broad"),
        (FIRST, "acme.{0,9000}(?P<path>x)", "repeats more than"),
        (FIRST, "acme-store: cannot open (?P<path>\\S+", "not a regular expression"),
        (FIRST, "(?P<path>x*)", "matches the empty line"),
        ("about {path}", "about {shard}", "which pattern acme-store-first does not capture"),
        ('"▶ acme-store: cannot open shard-7"', '"▶ acme-store: opened shard-7"', "is not matched by any pattern"),
        ('"▶ acme-store: cannot open shard-7"', '"acme-store: cannot open shard-7"', "mark the one line"),
        ('- "acme-store: opened shard-7"', '- "acme-store: cannot open 2"', "no_match example is matched"),
        ("id: acme-store-first", "id: torch-cuda-oom", "is also in cuda_out_of_memory.yaml"),
        ("zh: 报告中的名称", "zh: the same in English", "no Chinese"),
        ("follows: []", "follows: [disk_ful]", "unknown category disk_ful"),
        ("role: cause", "rolle: cause", "rolle"),
        ("priority: 60", "priority: 600", "less than or equal to 100"),
        ("category: acme_store ", "category: acme_shop ", "in a file named acme_store"),
    ],
)
def test_a_bad_rule_is_refused_with_file_line_and_reason(rules_dir, old, new, reason):
    assert old in GOOD
    code, said = check(rules_dir, GOOD.replace(old, new, 1))
    assert code != 0
    assert reason in said
    assert "acme_store.yaml:" in said


def test_a_slow_pattern_is_refused_with_the_time_of_a_hostile_line(rules_dir):
    slow = ".*.*.*.*acme-store: cannot open (?P<path>\\S+)"
    code, said = check(rules_dir, GOOD.replace(FIRST, slow))
    assert code != 0
    assert "on one hostile line" in said


def test_a_dangerous_rule_of_a_repository_is_not_even_loaded(rules_dir):
    (rules_dir / "acme_store.yaml").write_text(GOOD.replace(FIRST, "(a+)+ acme-store: cannot open (?P<path>\\S+)"))
    with pytest.raises(UsageError, match=r"acme_store\.yaml:\d+: .*a repeat inside a repeat"):
        load_rules([rules_dir])


def test_an_example_that_another_rule_claims_is_refused(rules_dir):
    text = GOOD.replace("cannot open shard-7", "cannot open shard-7: No space left on device")
    code, said = check(rules_dir, text.replace("priority: 60", "priority: 10"))
    assert code != 0
    assert "also claimed by no-space-left of disk_full" in said


@pytest.mark.parametrize(
    ("data", "where", "reason"),
    [
        (b"category: [", ":2:", "not YAML"),
        (b"- a\n- b\n", ":1:", "a rule file is a mapping"),
        (b"category: x\ntitle: \xff\n", ":2:", "not UTF-8"),
        (b"x" * 300_000, "", "a rule file may have"),
    ],
)
def test_a_file_that_is_no_rule_gets_one_line(tmp_path, data, where, reason):
    path = tmp_path / "x.yaml"
    path.write_bytes(data)
    with pytest.raises(UsageError) as caught:
        read_rule(path)
    assert reason in caught.value.message
    assert f"{path}{where}" in caught.value.message


def test_list_and_show_find_categories_and_patterns(rules_dir):
    assert "cuda_out_of_memory" in run("list")[1]
    rows = json.loads(run("list", "--json")[1])
    assert {"category", "title", "role", "patterns"} == set(rows[0])
    assert "显存不足" in run("show", "cuda_out_of_memory", "--language", "zh")[1]
    assert "torch-cuda-oom" in run("show", "torch-cuda-oom")[1]
    assert json.loads(run("show", "disk_full", "--json")[1])[0]["category"] == "disk_full"


def test_an_unknown_name_gets_the_nearest_one(rules_dir):
    error = run("show", "cuda_out_of_memori")[2]
    assert isinstance(error, UsageError)
    assert "cuda_out_of_memory" in error.advice


def test_new_refuses_bad_names_and_keeps_what_is_there(rules_dir):
    assert isinstance(run("new", "Acme-Store")[2], UsageError)
    assert run("new", "acme_store")[1] == GOOD
    run("new", "acme_store", "--write")
    assert isinstance(run("new", "acme_store", "--write")[2], UsageError)


def test_the_pages_of_the_repository_are_those_of_the_rules():
    docs = Path(__file__).parents[3] / "docs"
    rules = read_rules(rule_files())
    for name, language in (("categories.md", "en"), ("categories.zh.md", "zh")):
        assert (docs / name).read_text(encoding="utf-8") == overview(rules, language), f"run matrix rules docs: {name}"
