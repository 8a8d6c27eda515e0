"""A plan as matrices of GitHub Actions; cells run on runners of their own; their results become one run again."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from matrix.engine.actions import MAX_CELLS, artifact, cell, download, matrices, runner
from matrix.errors import UsageError
from matrix.plan.hosts import Card, Host, read_hosts
from matrix.spec.job import Cards, HandOff, Job
from matrix.spec.retry import RetryRule

HOSTS = [
    Host("small", (Card("0", "H20"),), labels=("self-hosted", "h20-1")),
    Host("big", tuple(Card(str(i), "H20") for i in range(8)), labels=("self-hosted", "h20-8")),
    Host("other", tuple(Card(str(i), "A100") for i in range(4)), labels=("self-hosted", "a100")),
    Host("nobody's", tuple(Card(str(i), "B200") for i in range(4))),
    Host("plain", labels=("self-hosted", "cpu")),
]


def job(name, *, cards=0, model=None, needs=(), produces=(), **more):
    made = tuple(HandOff(p, f"{p}.txt", "files") for p in produces)
    return Job(name, "s", ("true",), cards=Cards(cards, model), needs=tuple(needs), produces=made, **more)


@pytest.mark.parametrize(
    ("wish", "labels"),
    [
        ({"cards": 1}, ("self-hosted", "h20-1")),
        ({"cards": 2, "model": "H20"}, ("self-hosted", "h20-8")),
        ({"cards": 2}, ("self-hosted", "a100")),
        ({"cards": 4, "model": "A100"}, ("self-hosted", "a100")),
        ({}, ("self-hosted", "cpu")),
    ],
)
def test_a_job_goes_to_the_smallest_runner_that_has_its_cards(wish, labels):
    assert runner(job("a", **wish), HOSTS) == labels


@pytest.mark.parametrize("wish", [{"cards": 9}, {"cards": 1, "model": "B200"}, {"cards": 4, "nodes": 2}])
def test_a_job_without_a_fitting_runner_is_refused(wish):
    with pytest.raises(UsageError, match="a asks for"):
        runner(job("a", **wish), HOSTS)


def test_without_a_hosts_file_jobs_without_cards_go_to_githubs_own_runners():
    assert runner(job("a"), []) == ("ubuntu-latest",)


def test_labels_stand_in_the_hosts_file(tmp_path):
    file = tmp_path / "hosts.yaml"
    file.write_text("hosts: {gpu-3: {cards: 8, model: H20, labels: [self-hosted, h20]}, one: {labels: cpu}}")
    assert [host.labels for host in read_hosts(file)] == [("self-hosted", "h20"), ("cpu",)]


def test_waves_follow_the_hand_offs_and_given_ones_bind_nobody():
    jobs = [job("c", needs=["b"]), job("a", produces=["a"]), job("b", needs=["a"], produces=["b"]), job("d")]
    shape = {m.id: [c["job"] for c in m.cells] for m in matrices(jobs, [])}
    assert shape == {"wave1": ["a", "d"], "wave2": ["b"], "wave3": ["c"]}
    given = {m.id: [c["job"] for c in m.cells] for m in matrices(jobs, [], given=["a"])}
    assert given == {"wave1": ["a", "b", "d"], "wave2": ["c"]}


def test_no_matrix_has_more_cells_than_github_takes():
    found = matrices([job(f"j{i}") for i in range(600)], [])
    assert [(m.id, m.wave, len(m.cells)) for m in found] == [("wave1", 1, 256), ("wave1_2", 1, 256), ("wave1_3", 1, 88)]
    assert MAX_CELLS == 256


def test_in_a_wave_the_job_that_begins_the_longest_chain_comes_first():
    jobs = [job("quick"), job("first", produces=["w"]), job("long"), job("last", needs=["w"])]
    found = matrices(jobs, [], expected={"quick": 1.0, "first": 2.0, "long": 5.0, "last": 9.0})
    assert [[c["job"] for c in m.cells] for m in found] == [["first", "long", "quick"], ["last"]]


def test_a_cell_says_what_its_workflow_must_know():
    found = cell(job("b@tp=2", needs=["a", "x"], produces=["b"], timeout=90.0), ["a", "x"], [])
    assert found == {
        "job": "b@tp=2", "runs-on": ["ubuntu-latest"], "timeout-minutes": 12, "artifact": "b@tp=2",
        "download": "handoffs-{a,x}", "upload": True,
    }  # fmt: skip
    assert json.loads(json.dumps(found)) == found


def test_a_cell_has_time_to_try_again():
    policy = [RetryRule(categories=["port_in_use"], wait="30s", factor=2), RetryRule(retry=False)]
    again = cell(job("b", timeout=90.0, retries=2), [], [], policy)
    assert again["timeout-minutes"] == 16, "three times 90 s, pauses of 30 s and 60 s, ten minutes"


def test_the_example_workflow_uses_what_a_plan_gives():
    text = (Path(__file__).parents[3] / "examples" / "workflows" / "matrix-cells.yml").read_text()
    workflow = yaml.safe_load(text)
    found = {m.id for m in matrices([job("a", produces=["a"]), job("b", needs=["a"])], [])}
    assert set(workflow["jobs"]["plan"]["outputs"]) == found
    for wave in found:
        assert workflow["jobs"][wave]["strategy"]["matrix"] == f"${{{{ fromJSON(needs.plan.outputs.{wave}) }}}}"
    assert set(re.findall(r"matrix\.([\w-]+)", text)) - {"yml"} <= set(cell(job("a"), [], []))


def test_artifact_names_hold_no_forbidden_character_and_stay_apart():
    names = [artifact(n) for n in ("a/b", "a:b", 'a"b', "a-b", "ä b")]
    assert len(set(names)) == len(names)
    assert not any(set(name) & set('"/\\:<>|*?\r\n {},') for name in names)
    assert download(()) == ""
    assert download(["a"]) == "handoffs-a"


MATRIX = {
    "suites": {
        "s": {
            "jobs": {
                "make": {"command": "mkdir -p out/.hidden && echo 42 > out/n.txt && echo h > out/.hidden/h",
                         "produces": {"path": "out", "kind": "files"}},
                "use": {"command": 'grep 42 "$MATRIX_HANDOFF_MAKE/n.txt" && cat "$MATRIX_HANDOFF_MAKE/.hidden/h" > used.txt',
                        "needs": "make", "cards": 1, "produces": {"path": "used.txt", "kind": "files"}},
                "after": {"command": "true", "needs": "use"},
                "alone": {"command": "echo fine"},
            }
        }
    }
}  # fmt: skip


class Runners:
    """Runners with a checkout each, and the artifacts between them."""

    def __init__(self, folder):
        self.folder, self.artifacts = folder, folder / "artifacts"

    def matrix(self, where, *arguments, **env):
        root = self.folder / where
        root.mkdir(exist_ok=True)
        (root / "matrix.yaml").write_text(yaml.safe_dump(MATRIX, sort_keys=False))
        hosts = self.folder / "hosts.yaml"
        hosts.write_text("hosts: {gpu: {cards: 2, labels: [self-hosted, gpu]}}")
        command = [sys.executable, "-c", "from matrix.cli import main; main()", *arguments]
        env = {**os.environ, "MATRIX_LEASE_DIR": str(self.folder / "leases"), "MATRIX_HOSTS": str(hosts), **env}
        return subprocess.run(command, cwd=root, env=env, capture_output=True, text=True, timeout=120)

    def cell(self, cell, attempt=1, break_=False):
        """What the workflow does: download, run-job, upload."""
        root = self.folder / f"runner-{cell['artifact']}-{attempt}"
        inbox = root / "handoffs"
        for name in cell["download"].removeprefix("handoffs-").strip("{}").split(","):
            source = self.artifacts / f"handoffs-{name}"
            if name and source.is_dir():
                (inbox / source.name).mkdir(parents=True)
                for file in source.iterdir():
                    (inbox / source.name / file.name).write_bytes(file.read_bytes()[: -9000 if break_ else None])
        done = self.matrix(root.name, "run-job", cell["job"], "--cards", "2")
        for kind, name in (("run", f"run-{cell['artifact']}-{attempt}"), ("handoffs", f"handoffs-{cell['artifact']}")):
            if (root / "cell" / kind).is_dir():
                (root / "cell" / kind).rename(self.artifacts / name)
        return done


@pytest.fixture
def runners(tmp_path):
    (tmp_path / "artifacts").mkdir()
    return Runners(tmp_path)


def plan(runners):
    output = runners.folder / "output"
    output.write_text("")
    done = runners.matrix("planner", "plan", "--engine", "actions", "--github-output", GITHUB_OUTPUT=str(output))
    assert done.returncode == 0, done.stderr
    (runners.folder / "plan.json").write_text(done.stdout)
    # What `${{ fromJSON(needs.plan.outputs.wave1) }}` makes of it.
    outputs = dict(line.split("=", 1) for line in output.read_text().splitlines())
    return {name: json.loads(text)["include"] for name, text in outputs.items()}


def merged(runners):
    done = runners.matrix(
        "planner", "merge", str(runners.artifacts), "-o", "merged", "--plan", "../plan.json", "--json"
    )
    record = json.loads(done.stdout)
    folder = runners.folder / "planner" / "merged"
    assert (folder / "junit.xml").exists()
    assert (folder / "report.html").exists()
    assert json.loads((folder / "run.json").read_text()) == record
    for found in record["jobs"]:
        assert all((folder / a["log"]).is_file() for a in found["attempts"])
    return done.returncode, record, {j["name"]: (j["status"], len(j["attempts"])) for j in record["jobs"]}


def test_a_matrix_runs_over_runners_and_becomes_one_run(runners):
    waves = plan(runners)
    assert [[c["job"] for c in cells] for cells in waves.values()] == [["make", "alone"], ["use"], ["after"]]
    for cells in waves.values():
        for one in cells:
            done = runners.cell(one)
            assert done.returncode == 0, done.stderr
    code, record, ends = merged(runners)
    assert code == 0
    assert ends == dict.fromkeys(["make", "use", "after", "alone"], ("passed", 1))
    assert record["status"] == "passed"


def test_a_broken_hand_off_blocks_and_a_later_attempt_is_added(runners):
    waves = plan(runners)
    [make, _], [use], [after] = waves.values()
    runners.cell(make)
    blocked = runners.cell(use, break_=True)
    assert blocked.returncode == 1
    runners.cell(after)
    code, record, ends = merged(runners)
    assert ends == {"make": ("passed", 1), "use": ("blocked", 0), "after": ("blocked", 0), "alone": ("error", 0)}
    assert code == 3, "a job of the plan that never reported is the tool's fault, not a pass"
    use_record = record["jobs"][1]
    assert use_record["blocked_by"] == ["make"]
    assert "cannot be used" in use_record["reason"]
    assert record["jobs"][2]["blocked_by"] == ["make"]


def test_runs_of_two_commits_are_not_merged(runners):
    waves = plan(runners)
    runners.cell(waves["wave1"][1])
    [file] = runners.artifacts.rglob("run.json")
    record = json.loads(file.read_text())
    other = runners.artifacts / "other"
    other.mkdir()
    (other / "run.json").write_text(json.dumps({**record, "commit": "f" * 40}))
    done = runners.matrix("planner", "merge", str(runners.artifacts), "-o", "merged")
    assert done.returncode == 2
    assert "different commits" in done.stderr


def test_two_repositories_on_one_host_never_share_a_card(tmp_path):
    trace = tmp_path / "trace"
    for repository in ("a", "b"):
        (tmp_path / repository).mkdir()
        line = f"echo in >> {trace}; sleep 1; echo out >> {trace}"
        (tmp_path / repository / "matrix.yaml").write_text(
            yaml.safe_dump({"suites": {"s": {"jobs": {"j": {"command": line, "cards": 2}}}}})
        )
    env = {**os.environ, "MATRIX_LEASE_DIR": str(tmp_path / "leases")}
    command = [sys.executable, "-c", "from matrix.cli import main; main()", "run-job", "j", "--cards", "2"]
    started = [subprocess.Popen(command, cwd=tmp_path / r, env=env, stderr=subprocess.DEVNULL) for r in ("a", "b")]
    assert [child.wait(timeout=120) for child in started] == [0, 0]
    assert trace.read_text().split() == ["in", "out", "in", "out"]


def test_an_unknown_job_is_a_users_error(runners):
    done = runners.matrix("x", "run-job", "mak")
    assert done.returncode == 2
    assert "make" in done.stderr
