import random
from collections import Counter

import pytest

from benchmarks import verdicts, worlds
from matrix.history.attribute import DAY, Failure, Observation, attribute
from tests.matrix.history.simulate import HOUR, World, simulate

NOW = 100 * DAY


def at(hours, **kw):
    defaults = {"run": f"r{hours}", "job": "unit", "at": NOW + hours * HOUR, "passed": False, "signature": "s1"}
    o = defaults | kw
    if o["passed"]:
        o["signature"] = None
    return Observation(**o)


def base(hours, **kw):
    return at(hours, commit=kw.pop("commit", f"b{hours}"), **kw)


def other(hours, pr=2, author="bob", **kw):
    return at(hours, pr=pr, author=author, commit=f"o{hours}-{pr}", **kw)


MINE = at(0, commit="c1", base="b-1", pr=1, author="ann", changed=frozenset({"src/a.py"}))
GREEN_BASE = [base(h, passed=True) for h in range(-40, 0)]


def verdict(history, *, seen=MINE, category="worker_exception", **kw):
    return attribute(Failure(seen, category, **kw), history).value


def test_blocked_jobs_follow():
    assert verdict(GREEN_BASE, blocked_by=("sft",)) == "follows"


def test_a_gate_is_a_gate_whatever_history_says():
    assert verdict([other(-1)], category="gate_not_met") == "gate"


def test_nothing_known_cannot_be_told():
    assert verdict([]) == "cannot-tell"


def test_a_failure_that_names_a_changed_file_and_is_seen_nowhere_else_is_this_change():
    assert verdict(GREEN_BASE, files=frozenset({"src/a.py"})) == "this-change"


def test_the_same_without_a_passing_run_to_compare_with_cannot_be_told():
    assert verdict([], files=frozenset({"src/a.py"})) == "cannot-tell"


def test_a_failure_that_names_other_files_only_cannot_be_told():
    assert verdict(GREEN_BASE, files=frozenset({"src/b.py"})) == "cannot-tell"


def test_what_comes_back_on_every_push_over_a_day_is_this_change():
    pushes = [at(-h, commit=f"c{h}", pr=1, author="ann") for h in (20, 10)]
    assert verdict([*GREEN_BASE, *pushes]) == "this-change"


def test_two_tries_within_an_hour_are_one_observation():
    assert verdict([*GREEN_BASE, at(-1, commit="c1", pr=1, author="ann")]) == "cannot-tell"


def test_pass_and_fail_on_one_commit_is_flaky():
    assert verdict([at(-0.5, commit="c1", pr=1, passed=True)]) == "flaky"


def test_a_linter_is_never_flaky():
    assert verdict([at(-0.5, commit="c1", pr=1, passed=True)], category="lint_failure") == "cannot-tell"


def test_a_base_branch_that_fails_alike_at_the_merge_base_is_base():
    assert verdict([*GREEN_BASE[:-2], base(-2), base(-1)]) == "base"


def test_another_failure_in_between_hides_the_broken_base_and_does_not_mend_it():
    history = [*GREEN_BASE[:-4], base(-4), base(-3), base(-1, signature="outage")]
    assert verdict(history) == "base"


def test_a_base_branch_that_broke_after_the_merge_base_is_not_to_blame():
    later = [base(h, commit=f"later{h}") for h in (0.1, 0.2)]
    assert verdict([*GREEN_BASE, *later], files=frozenset({"src/a.py"})) != "base"


def test_a_single_failure_of_the_merge_base_is_base_where_the_job_never_failed_before_and_else_cannot_be_told():
    assert verdict([*GREEN_BASE[:-1], base(-1)]) == "base"
    assert verdict([base(-2, passed=True), base(-1)]) == "cannot-tell"
    assert verdict([base(-3), *(base(h, passed=True) for h in (-4, -2)), base(-1)]) == "flaky"


def test_what_comes_and_goes_in_other_pull_requests_is_flaky():
    history = [*GREEN_BASE, *(other(-h, pr=h) for h in (30, 60, 90))]
    assert verdict(history, category="test_assertion") == "flaky"


def test_many_jobs_that_fail_alike_at_one_time_are_infra():
    history = [*GREEN_BASE, *(other(-0.1 * k, pr=k, job=f"job{k}") for k in (3, 4, 5))]
    assert verdict(history, category="network_failure") == "infra"


def test_one_fresh_sighting_elsewhere_may_be_a_flake_or_an_outage():
    assert verdict([*GREEN_BASE, other(-1)]) == "cannot-tell"


def test_the_same_author_never_counts_as_unrelated():
    history = [*GREEN_BASE, *(other(-h, pr=h, author="ann") for h in (30, 60))]
    assert verdict(history, files=frozenset({"src/a.py"})) == "this-change"


def test_a_cherry_pick_of_the_same_files_never_counts_as_unrelated():
    picks = [other(-h, pr=h, changed=frozenset({"src/a.py"})) for h in (30, 60)]
    assert verdict([*GREEN_BASE, *picks], files=frozenset({"src/a.py"})) == "this-change"


def test_a_revert_that_brings_an_old_break_back_is_this_change():
    broken = [base(-h) for h in (200, 190, 180)]
    mended = [base(-h, passed=True) for h in range(40, 1, -1)]
    victims = [other(-185, pr=9), other(-170, pr=10)]
    assert verdict([*broken, *victims, *mended, *GREEN_BASE], files=frozenset({"src/a.py"})) == "this-change"


def test_a_generic_signature_is_no_evidence_of_likeness():
    history = [*GREEN_BASE, *(other(-h, pr=h) for h in (30, 60, 90))]
    assert verdict(history, generic=True) == "cannot-tell"


def test_a_lost_runner_is_infra_by_its_nature_and_an_unknown_failure_is_not():
    assert verdict(GREEN_BASE, category="runner_lost") == "infra"
    assert verdict(GREEN_BASE, category="unknown") == "cannot-tell"


def test_every_verdict_that_is_given_says_what_was_compared():
    history = simulate(World(seed=3, pulls=40))
    for case in history.cases[:150]:
        assert attribute(case.failure, history.about(case.failure.seen)).compared


WORLDS = [
    World(seed=0),
    World(seed=21, flake_rates=(0.05, 0.3), outages=12, base_breaks=15, flaky_jobs=25),
    World(seed=22, authors=4, linked=0.5, retried=0.0),
    World(seed=23, days=7, jobs=20, reverts=20, base_breaks=20),
]


def figures(world, *, at_once, most):
    history = simulate(world)
    seen = Counter()
    for case in random.Random(0).sample(history.cases, most):
        known = history.about(case.failure.seen)
        if at_once:
            known = [o for o in known if o.at <= case.failure.seen.at]
        value = attribute(case.failure, known).value
        seen["all"] += 1
        if value != "cannot-tell":
            seen["given"] += 1
            seen["right"] += value == case.truth
        if value == "this-change":
            seen["blamed"] += 1
            seen["blamed rightly"] += case.truth == "this-change"
    return seen


def check(world, at_once, most):
    seen = figures(world, at_once=at_once, most=most)
    assert seen["right"] / seen["given"] >= 0.95
    assert seen["blamed rightly"] / seen["blamed"] >= 0.98
    assert seen["given"] / seen["all"] >= 0.85


@pytest.mark.parametrize("at_once", [True, False], ids=["when it happens", "in hindsight"])
def test_verdicts_on_a_made_history_are_right(at_once):
    check(World(seed=5, pulls=100, jobs=30), at_once, most=150)


@pytest.mark.soak
@pytest.mark.parametrize("at_once", [True, False], ids=["when it happens", "in hindsight"])
@pytest.mark.parametrize("world", WORLDS, ids=lambda w: f"seed {w.seed}")
def test_verdicts_on_many_made_histories_are_right(world, at_once):
    check(world, at_once, most=400)


def figures_of(world, *, at_once, most):
    return verdicts.figures(verdicts.judged(world, at_once=at_once, most=most))


@pytest.mark.parametrize("at_once", [True, False], ids=["when it happens", "in hindsight"])
def test_verdicts_in_a_repository_that_is_seldom_tested_and_often_broken_are_right(at_once):
    world = worlds.World("small", 7, pulls=50, jobs=15, base_every=5, breaks=8, outages=3, outage_scope="host")
    found = figures_of(world, at_once=at_once, most=120)
    assert found["accuracy"] >= 0.95
    assert found["mine"] >= 0.98
    assert found["given"] >= 0.8


@pytest.mark.soak
@pytest.mark.parametrize("world", [*worlds.TUNING, *worlds.HELD_OUT], ids=lambda w: w.name)
def test_verdicts_in_every_made_repository_are_right(world):
    found = figures_of(world, at_once=False, most=1000)
    assert found["accuracy"] >= 0.95
    assert found["mine"] >= 0.95
    assert found["given"] >= 0.85


def test_a_pull_request_that_forked_from_a_broken_base_is_no_flake_however_late_it_runs():
    broken = [base(h) for h in (-200, -199, -198)]
    mended = [base(h, passed=True) for h in range(-197, 0)]
    late = other(-30, base="b-199")  # more than two days after the fix
    brings_it_back = {"files": frozenset({"src/a.py"})}
    assert verdict([*broken, *mended, late], **brings_it_back) == "this-change"
    assert verdict([*broken, *mended, other(-30, base="b-100")], **brings_it_back) == "cannot-tell"


def test_what_a_linter_says_of_a_file_of_this_change_is_this_changes_whatever_it_says_elsewhere():
    history = [*GREEN_BASE, other(-3), other(-30)]
    assert verdict(history, category="lint_failure", files=frozenset({"src/a.py"})) == "this-change"
    assert verdict(history, category="lint_failure", files=frozenset({"src/b.py"})) == "cannot-tell"
    red_base = [*GREEN_BASE[:-2], base(-2), base(-1)]
    assert verdict(red_base, category="lint_failure", files=frozenset({"src/a.py"})) == "base"


def test_a_break_that_hits_several_jobs_is_no_outage_when_what_forked_before_it_passes():
    broken = [base(h, job=job) for h in (-6, -4, -2) for job in ("unit", "lint", "docs", "gpu")]
    older = [other(h, pr=40 - h, base="b-30", passed=True) for h in (-5, -4, -3, -1)]
    mine = at(0, commit="c1", base="b-2", pr=1, author="ann", changed=frozenset({"src/a.py"}))
    assert verdict([*GREEN_BASE[:30], *broken, *older], seen=mine) == "base"


def test_an_outage_of_one_host_is_infra_although_other_hosts_pass():
    sick = [other(-h / 4, pr=10 + h, host="h1", job=f"job{h % 3}") for h in range(1, 9)]
    sick += [other(-h / 4, pr=30 + h, host="h1") for h in range(1, 5)]
    well = [other(-h / 4, pr=50 + h, host="h2", passed=True) for h in range(1, 13)]
    mine = at(0, commit="c1", base="b-1", pr=1, author="ann", host="h1")
    assert verdict([*GREEN_BASE, *sick, *well], seen=mine, category="disk_full") == "infra"


def test_a_fault_that_was_merged_later_is_still_the_change_that_brought_it():
    merged = [base(h) for h in (30, 32, 34)]
    green = [base(h, passed=True) for h in range(1, 28)]
    assert verdict([*GREEN_BASE, *green, *merged], files=frozenset({"src/a.py"})) == "this-change"


def test_a_change_is_never_blamed_where_the_base_branch_failed_alike_last():
    history = [*(base(h, passed=True) for h in range(-10, -3)), base(-2)]
    mine = at(0, commit="c1", base="untested", pr=1, author="ann", changed=frozenset({"src/a.py"}))
    assert verdict(history, seen=mine, files=frozenset({"src/a.py"})) != "this-change"


def test_a_change_log_that_everybody_touches_relates_nobody():
    everybody = frozenset({"CHANGELOG.md"})
    flakes = [other(-h, pr=h, changed=everybody) for h in (30, 60, 90)]
    crowd = [other(-h, pr=100 + h, changed=everybody, passed=True) for h in range(1, 20)]
    mine = at(0, commit="c1", base="b-1", pr=1, author="ann", changed=frozenset({"CHANGELOG.md", "src/a.py"}))
    assert verdict([*GREEN_BASE, *flakes, *crowd], seen=mine, category="test_assertion") == "flaky"


def test_breaks_of_another_branch_are_not_the_base_of_this_one():
    release = [base(h, commit=f"rel{h}", branch="release") for h in (-3, -2, -1)]
    main = [base(h, passed=True, branch="main") for h in range(-40, 0)]
    assert verdict([*main, *release]) != "base"


def test_a_flake_that_only_this_change_has_in_a_file_of_its_own_is_said_to_come_with_it():
    again = at(-0.5, commit="c1", pr=1, passed=True)
    found = attribute(Failure(MINE, "test_assertion", frozenset({"src/a.py"})), [again, *GREEN_BASE])
    assert found.value == "flaky"
    assert "the flake may come with it" in " ".join(found.compared)


def test_a_lint_failure_that_passed_on_the_same_commit_and_comes_and_goes_is_never_called_flaky():
    history = [at(-0.5, commit="c1", pr=1, passed=True), *GREEN_BASE, *(other(-h, pr=h) for h in (30, 60, 90))]
    assert verdict(history, category="lint_failure") != "flaky"


def test_a_failure_that_nothing_could_classify_is_not_infra_however_many_pull_requests_have_another_one():
    others = [other(-h / 10, pr=h, signature=f"else{h}") for h in range(1, 9)]
    assert verdict([*GREEN_BASE, *others], category="unknown") == "cannot-tell"


@pytest.mark.parametrize("branch", ["feat9", None])
def test_no_evidence_calls_a_branch_of_its_own_or_an_unknown_one_the_base_branch(branch):
    def at(hour, *, passed, commit="c0"):
        return Observation(
            run=f"r{hour}", job="unit", at=hour * 3600.0, passed=passed, signature=None if passed else "s" * 16,
            commit=commit, base="b0" if branch else None, branch=branch,
        )  # fmt: skip

    for history in ([at(1, passed=True)], [at(h, passed=False, commit=f"c{h}") for h in range(1, 9)]):
        found = attribute(Failure(at(10, passed=False), "unknown"), history)
        assert not any("base branch" in said for said in found.compared if branch), found
        assert not any(", base branch" in said for said in found.compared), found
        assert found.value != "base" or branch is None


def test_a_push_to_the_trunk_that_names_its_base_is_a_run_of_the_base_branch():
    def at(hour, *, passed):
        return Observation(
            run=f"r{hour}", job="unit", at=hour * 3600.0, passed=passed, signature=None if passed else "s" * 16,
            commit=f"c{hour}", base=f"c{hour - 1}", branch="main",
        )  # fmt: skip

    history = [at(h, passed=h < 20) for h in range(1, 30)]
    assert attribute(Failure(at(30, passed=False), "unknown"), history).value == "base"
