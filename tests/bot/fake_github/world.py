"""What the double remembers, and how tests put things there."""

from __future__ import annotations

import collections
import copy
import datetime as dt
import itertools
import threading


def now() -> str:
    return dt.datetime.now(dt.UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


class ApiError(Exception):
    """An answer that is an error."""

    def __init__(self, status, message, errors=None, headers=None):
        super().__init__(message)
        self.status, self.headers = status, headers or {}
        self.body = {"message": message, "documentation_url": "https://docs.github.com/rest", "status": str(status)}
        if errors:
            self.body["errors"] = errors


class World:
    """State, and views of it made of the document's own examples with fields replaced."""

    examples: dict
    base: str

    def __init__(self, full_name="octo/repo", actor="ci-bot[bot]"):
        self.full_name, self.actor = full_name, actor
        self.owner, self.name = full_name.split("/")
        self.lock, self.ids = threading.RLock(), itertools.count(1000)
        self.pulls, self.file_lists, self.comment_map = {}, {}, {}
        self.react = collections.defaultdict(list)
        self.perm, self.run_map, self.job_map, self.log_text = {}, {}, {}, {}
        self.checks, self.annots, self.arts = {}, collections.defaultdict(list), {}
        self.contents, self.issues, self.commits = {}, {}, {}
        self.page_max = 100
        self.app_key, self.token_seconds, self.tokens = None, 3600, []  # public key of an App, its tokens
        self.trees, self.inline_max = {}, 1 << 20

    # ---- seeding
    def _ex(self, example, /, **over):
        return {**copy.deepcopy(self.examples[example]["value"]), **over}

    def user(self, login):
        u = copy.deepcopy(self.examples["issue-comment"]["value"]["user"])
        u.update(login=login, id=sum(map(ord, login)), type="Bot" if login.endswith("[bot]") else "User")
        return u

    @property
    def repo_url(self):
        return f"{self.base}/repos/{self.full_name}"

    def add_pull(
        self, number, head_sha, *, title="Fix", author="octocat", files=(), fork=None, branch="topic", base="main"
    ):
        p = self._ex("pull-request", number=number, title=title, user=self.user(author), state="open", draft=False)
        p["requested_teams"] = []
        p["url"] = f"{self.repo_url}/pulls/{number}"
        p["issue_url"] = f"{self.repo_url}/issues/{number}"
        p["comments_url"] = p["issue_url"] + "/comments"
        head_repo = fork or self.full_name
        p["head"].update(sha=head_sha, ref=branch, label=f"{head_repo.split('/')[0]}:{branch}")
        p["head"]["repo"].update(full_name=head_repo, fork=fork is not None)
        p["base"].update(ref=base, sha="b" * 40)
        p["base"]["repo"].update(full_name=self.full_name)
        self.pulls[number], self.file_lists[number] = p, list(files)
        return p

    def push(self, number, head_sha):
        self.pulls[number]["head"]["sha"] = head_sha

    def add_run(self, head_sha, jobs, *, name="CI", event="pull_request", branch="topic", fork=None, conclusion=None):
        """Add a run. `jobs`: [(name, conclusion or None while it runs, log text)]."""
        rid = next(self.ids)
        self.run_map[rid] = {
            "head_sha": head_sha, "name": name, "event": event, "attempts": [], "branch": branch,
            "head_repo": fork or self.full_name, "conclusion": conclusion, "created": now(),
        }  # fmt: skip
        self.new_attempt(rid, jobs)
        return rid

    def new_attempt(self, rid, jobs):
        n, ids = len(self.run_map[rid]["attempts"]) + 1, []
        for job_name, conclusion, log in jobs:
            j = next(self.ids)
            self.job_map[j] = {"id": j, "run": rid, "attempt": n, "name": job_name, "conclusion": conclusion}
            self.log_text[j] = log
            ids.append(j)
        self.run_map[rid]["attempts"].append(ids)

    def finish(self, rid, results):
        """End jobs of the newest attempt. `results`: {name: (conclusion, log)}."""
        for j in self.run_map[rid]["attempts"][-1]:
            r = self.job_map[j]
            if r["conclusion"] is None and r["name"] in results:
                r["conclusion"], self.log_text[j] = results[r["name"]]

    def add_comment(self, number, body, user):
        c = next(self.ids)
        self.comment_map[c] = {"n": number, "body": body, "user": user, "at": now(), "up": now()}
        return c

    def add_artifact(self, rid, name, data):
        a = next(self.ids)
        v = self._ex("artifact-paginated")["artifacts"][0]
        v.update(id=a, name=name, size_in_bytes=len(data), expired=False, url=f"{self.repo_url}/actions/artifacts/{a}")
        v["archive_download_url"] = f"{self.repo_url}/actions/artifacts/{a}/zip"
        v["workflow_run"].update(id=rid, head_sha=self.run_map[rid]["head_sha"])
        self.arts[a] = (v, data)
        return a

    def comments_of(self, number, user=None):
        """Bodies of the comments on a pull request, oldest first."""
        return [c["body"] for c in self.comment_map.values() if c["n"] == number and user in (None, c["user"])]

    # ---- views
    def rollup(self, c):
        kinds = ("+1", "-1", "laugh", "confused", "heart", "hooray", "eyes", "rocket")
        counts = {k: sum(r["content"] == k for r in self.react[c]) for k in kinds}
        u = f"{self.repo_url}/issues/comments/{c}/reactions"
        return {"url": u, "total_count": sum(counts.values()), **counts}

    def job_view(self, j):
        r = self.job_map[j]
        run = self.run_map[r["run"]]
        return self._ex(
            "job", id=j, run_id=r["run"], run_attempt=r["attempt"], name=r["name"], conclusion=r["conclusion"],
            status="completed" if r["conclusion"] else "in_progress", url=f"{self.repo_url}/actions/jobs/{j}",
            run_url=f"{self.repo_url}/actions/runs/{r['run']}", head_sha=run["head_sha"], created_at=now(),
            html_url=f"https://github.com/{self.full_name}/actions/runs/{r['run']}/job/{j}",
            completed_at=now() if r["conclusion"] else None, workflow_name=run["name"],
        )  # fmt: skip

    def run_view(self, rid, attempt=None):
        r = self.run_map[rid]
        a = attempt or len(r["attempts"])
        ends = [self.job_map[j]["conclusion"] for j in r["attempts"][a - 1]]
        done = all(ends)
        conclusion = next((c for c in ("cancelled", "failure", "timed_out") if c in ends), "success") if done else None
        u = f"{self.repo_url}/actions/runs/{rid}"
        v = self._ex(
            "workflow-run", id=rid, name=r["name"], head_sha=r["head_sha"], event=r["event"], run_attempt=a,
            status="completed" if done else "in_progress", conclusion=r["conclusion"] or conclusion, url=u,
            jobs_url=u + "/jobs", logs_url=u + "/logs", cancel_url=u + "/cancel", rerun_url=u + "/rerun",
            artifacts_url=u + "/artifacts", html_url=f"https://github.com/{self.full_name}/actions/runs/{rid}",
            previous_attempt_url=f"{u}/attempts/{a - 1}" if a > 1 else None, head_branch=r["branch"],
            created_at=r["created"], pull_requests=[], path=f".github/workflows/{r['name'].lower()}.yml",
        )  # fmt: skip
        v["head_repository"]["full_name"] = r["head_repo"]
        v["head_repository"]["owner"]["login"] = r["head_repo"].split("/")[0]
        return v

    def comment_view(self, c):
        x = self.comment_map[c]
        return self._ex(
            "issue-comment", id=c, body=x["body"], user=self.user(x["user"]), created_at=x["at"], updated_at=x["up"],
            url=f"{self.repo_url}/issues/comments/{c}", issue_url=f"{self.repo_url}/issues/{x['n']}",
            html_url=f"https://github.com/{self.full_name}/pull/{x['n']}#issuecomment-{c}",
            reactions=self.rollup(c),
        )  # fmt: skip
