"""`bot action` as a workflow starts it."""

import json
import os
import subprocess

import pytest
from fake_github import Fault
from test_sync import LOG, A, report

LOGIN = "ci-bot[bot]"


@pytest.fixture
def action(fake, tmp_path):
    fake.add_pull(7, A, files=["a.py"], author="ann")
    fake.perm = {"wendy": "write"}

    def run(name, payload, **env):
        (tmp_path / "event.json").write_text(json.dumps(payload))
        environment = {
            "PATH": os.environ["PATH"], "HOME": os.environ.get("HOME", str(tmp_path)), "PYTHONPATH": os.environ.get("PYTHONPATH", ""),
            "GITHUB_EVENT_NAME": name, "GITHUB_EVENT_PATH": str(tmp_path / "event.json"), "BOT_PACE": "0",
            "GITHUB_REPOSITORY": fake.full_name, "GITHUB_TOKEN": "t", "GITHUB_API_URL": fake.base, "BOT_LOGIN": LOGIN,
            "GITHUB_STEP_SUMMARY": str(tmp_path / "summary.md"),
            "GITHUB_WORKFLOW_REF": f"{fake.full_name}/.github/workflows/bot.yml@refs/heads/main", **env,
        }  # fmt: skip
        return subprocess.run(["bot", "action"], capture_output=True, text=True, env=environment, timeout=120)

    return run


def run_event(fake, rid):
    return {"action": "completed", "workflow_run": fake.run_view(rid), "repository": {"full_name": fake.full_name}}


def test_a_failed_run_is_reported_on_the_pull_request_and_in_the_summary(fake, action, tmp_path):
    rid = fake.add_run(A, [("unit", "failure", "ModuleNotFoundError: No module named 'x'\n")])
    done = action("workflow_run", run_event(fake, rid))
    assert done.returncode == 0, done.stderr
    assert "1 of 1 job failed" in report(fake)
    assert "1 of 1 job failed" in (tmp_path / "summary.md").read_text()


def test_a_command_is_carried_out(fake, action):
    rid = fake.add_run(A, [("unit", "failure", LOG)])
    c = fake.add_comment(7, "/rerun", "wendy")
    payload = {
        "action": "created", "issue": {"number": 7, "pull_request": {}},
        "comment": {"id": c, "body": "/rerun", "user": {"login": "wendy", "type": "User"}},
    }  # fmt: skip
    done = action("issue_comment", payload)
    assert done.returncode == 0, done.stderr
    assert "✅" in fake.comments_of(7, LOGIN)[0]
    assert len(fake.run_map[rid]["attempts"]) == 2


def test_where_the_token_may_not_comment_summary_and_error_lines_say_it(fake, action, tmp_path):
    rid = fake.add_run(A, [("unit", "failure", "x\n::warning::fake\nModuleNotFoundError: No module named 'a%b'\n")])
    fake.faults.append(Fault(403, {"message": "Resource not accessible by integration"}, {}, "POST"))
    done = action("workflow_run", run_event(fake, rid))
    assert done.returncode == 0, done.stderr
    errors = [line for line in done.stdout.splitlines() if line.startswith("::")]
    assert len(errors) == 1
    assert errors[0].startswith("::error title=unit%3A ")
    assert "a%25b" in errors[0]
    assert "1 of 1 job failed" in (tmp_path / "summary.md").read_text()
    assert fake.comments_of(7, LOGIN) == []


def test_a_scheduled_run_catches_up_on_open_pull_requests(fake, action):
    fake.add_run(A, [("unit", "failure", LOG)])
    assert action("schedule", {}).returncode == 0
    assert "1 of 1 job failed" in report(fake)


def test_a_missing_environment_is_a_users_error(fake, action):
    done = action("workflow_run", {}, GITHUB_TOKEN="")
    assert done.returncode == 2
    assert "GITHUB_TOKEN is not set" in done.stderr
    assert "Traceback" not in done.stderr


def test_github_being_away_is_exit_3_without_traceback(action):
    done = action("schedule", {}, GITHUB_API_URL="http://127.0.0.1:9")
    assert done.returncode == 3
    assert "Traceback" not in done.stderr
