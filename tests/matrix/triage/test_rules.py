"""Every built-in rule stands by its own examples, alone and beside all others."""

import subprocess
import sys
from pathlib import Path

import pytest

from matrix.triage import rule_check
from matrix.triage.rule_file import read_rules
from matrix.triage.rule_model import fields
from matrix.triage.ruleset import BUILTIN, fill, load_rules, rule_files

RULES = read_rules(rule_files())
DATA = Path(__file__).parents[2] / "data" / "triage"
each_rule = pytest.mark.parametrize("rule", RULES, ids=lambda r: r.category)


def test_every_category_that_reports_may_name_has_a_rule():
    assert set((DATA / "categories.txt").read_text().split()) <= {r.category for r in RULES}
    assert sum(len(r.patterns) for r in RULES) >= 150


@each_rule
def test_examples_are_claimed_by_their_own_rule_only(rule):
    others = [r for r in RULES if r is not rule]
    assert [f"{p.reason}: {p.word}" for p in rule_check.check_examples(rule, others)] == []


@each_rule
def test_patterns_are_neither_explosive_nor_shapeless(rule):
    assert [p.reason for p in rule_check.check_shape(rule)] == []


@each_rule
def test_no_pattern_hits_a_log_of_a_job_that_passed(rule):
    assert [p.reason for p in rule_check.check_green(rule, rule_check.green_logs())] == []


@pytest.mark.soak
def test_every_pattern_is_quick_on_hostile_lines_and_fit_for_hyperscan():
    assert rule_check.hyperscan_refuses([p for r in RULES for p in r.patterns]) == []
    assert [(p.id, took) for p, took in rule_check.slow_patterns(RULES)] == []


@each_rule
def test_fix_is_one_sentence_and_every_word_in_braces_is_filled(rule):
    loaded = load_rules()
    for pattern in loaded.patterns:
        if pattern.category == rule.category:
            for language, text in loaded.fix(pattern, {}).items():
                assert "{" not in text, (pattern.id, language)
                assert "?" not in text, (pattern.id, language)


def test_sentences_in_the_two_languages_use_the_same_captures():
    differ = [
        p.id for r in RULES for p in r.patterns for text in [p.fix or r.fix] if fields(text.en) != fields(text.zh)
    ]
    assert differ == []


def test_a_long_capture_is_cut_and_an_alternative_group_stands_in():
    rules = load_rules()
    pattern = next(p for p in rules.patterns if p.id == "hf-404-url")
    text = rules.fix(pattern, {"repo_2": "x" * 500})["en"]
    assert "x" * 100 in text
    assert "x" * 200 not in text


def test_captures_are_never_evaluated():
    assert fill("see {path}", {"path": "{0.__class__} {path}"}, {}) == "see {0.__class__} {path}"


def test_taking_a_category_away_leaves_the_others():
    rules = load_rules()
    less = rules.without("cuda_out_of_memory")
    assert "cuda_out_of_memory" not in less.categories
    assert len(less.categories) == len(rules.categories) - 1
    assert less.digest != rules.digest


def test_patterns_come_by_descending_priority():
    priorities = [p.priority for p in load_rules().patterns]
    assert priorities == sorted(priorities, reverse=True)


def test_rules_are_read_again_when_the_cache_is_absent_or_broken(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    first = load_rules()
    for cached in (tmp_path / "matrix").iterdir():
        cached.write_text("[")
    assert load_rules() == first


def test_rules_load_without_yaml_once_they_are_cached(tmp_path):
    code = "import sys; from matrix.triage.ruleset import load_rules; load_rules(); print('yaml' in sys.modules)"
    env = {"XDG_CACHE_HOME": str(tmp_path), "PATH": "/usr/bin:/bin", "PYTHONPATH": str(BUILTIN.parents[2])}
    runs = [subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=env) for _ in range(2)]
    assert [r.stdout.strip() for r in runs] == ["True", "False"]
