"""The double's handlers: each returns data, or (data, status[, headers])."""

from __future__ import annotations

import base64
import copy
import datetime as dt
import hashlib
import io
import itertools
import re
import zipfile
from urllib.parse import urlencode

import jwt
from werkzeug.exceptions import NotFound

from fake_github.world import ApiError, World, now

R = "/repos/<owner>/<name>"
ROUTES = [
    ("POST", "/app/installations/<int:i>/access_tokens", "access_token"),
    ("GET", R, "repo"), ("GET", "/rate_limit", "rate"), ("GET", "/user", "user_me"),
    *((method, R + path, handler) for method, path, handler in [
        ("GET", "/pulls", "pulls_list"), ("POST", "/pulls", "pull_new"), ("GET", "/pulls/<int:n>", "pull"), ("GET", "/pulls/<int:n>/files", "files"),
        ("GET", "/issues", "issues_list"), ("POST", "/issues", "issue_new"),
        ("GET", "/issues/<int:n>", "issue"), ("PATCH", "/issues/<int:n>", "issue_edit"),
        ("GET", "/issues/<int:n>/comments", "comments"), ("POST", "/issues/<int:n>/comments", "comment_new"),
        ("GET", "/issues/comments", "all_comments"), ("GET", "/issues/comments/<int:c>", "comment"), ("PATCH", "/issues/comments/<int:c>", "comment_edit"),
        ("DELETE", "/issues/comments/<int:c>", "comment_del"),
        ("GET", "/issues/comments/<int:c>/reactions", "reactions"),
        ("POST", "/issues/comments/<int:c>/reactions", "react_new"),
        ("DELETE", "/issues/comments/<int:c>/reactions/<int:r>", "unreact"),
        ("GET", "/collaborators/<user>/permission", "permission"), ("GET", "/contents/<path:path>", "content"),
        ("PUT", "/contents/<path:path>", "content_put"), ("GET", "/git/blobs/<sha>", "blob"),
        ("POST", "/git/trees", "tree_new"), ("POST", "/git/commits", "commit_new"), ("POST", "/git/refs", "ref_new"),
        ("GET", "/commits/<ref>", "commit"), ("GET", "/commits/<ref>/pulls", "commit_pulls"),
        ("GET", "/actions/runs", "runs"), ("GET", "/actions/runs/<int:run>", "run"),
        ("GET", "/actions/runs/<int:run>/jobs", "jobs"), ("GET", "/actions/runs/<int:run>/artifacts", "artifacts"),
        ("GET", "/actions/runs/<int:run>/attempts/<int:a>", "attempt"),
        ("GET", "/actions/runs/<int:run>/attempts/<int:a>/jobs", "attempt_jobs"),
        ("GET", "/actions/runs/<int:run>/attempts/<int:a>/logs", "attempt_logs"),
        ("POST", "/actions/runs/<int:run>/cancel", "cancel"), ("POST", "/actions/runs/<int:run>/rerun", "rerun"),
        ("POST", "/actions/runs/<int:run>/rerun-failed-jobs", "rerun_failed"),
        ("GET", "/actions/jobs/<int:job>", "job"), ("GET", "/actions/jobs/<int:job>/logs", "job_logs"),
        ("POST", "/actions/jobs/<int:job>/rerun", "job_rerun"),
        ("GET", "/actions/artifacts/<int:art>/zip", "artifact_zip"),
        ("POST", "/check-runs", "check_new"), ("GET", "/check-runs/<int:k>", "check"),
        ("PATCH", "/check-runs/<int:k>", "check_edit"), ("GET", "/check-runs/<int:k>/annotations", "annotations"),
        ("GET", "/commits/<ref>/check-runs", "checks_for"),
    ]),
]  # fmt: skip


def invalid(resource, field, code, message=None):
    return ApiError(
        422, "Validation Failed", [{"resource": resource, "code": code, "field": field, "message": message or code}]
    )


def blob_sha(text):
    return hashlib.sha1(f"blob {len(text.encode())}\0{text}".encode(), usedforsecurity=False).hexdigest()


class Api(World):
    """Handlers, named `h_` and the route's name."""

    blob: str
    remaining: int

    def h_access_token(self, q, i):
        """A token of the App's installation, for who signed with its key."""
        try:
            jwt.decode(q.headers["Authorization"].removeprefix("Bearer "), self.app_key, algorithms=["RS256"])
        except jwt.InvalidTokenError:
            raise ApiError(401, "A JSON web token could not be decoded") from None
        ends = dt.datetime.now(dt.UTC) + dt.timedelta(seconds=self.token_seconds)
        token = f"ghs_{next(self.ids)}"
        self.tokens.append(token)
        return {
            "token": token,
            "expires_at": ends.strftime("%Y-%m-%dT%H:%M:%SZ"),
            "permissions": {"issues": "write"},
        }, 201

    def h_repo(self, q):
        v = self._ex("full-repository-default-response", full_name=self.full_name, name=self.name, url=self.repo_url)
        v["language"] = None
        v["default_branch"] = "main"
        for k in ("source", "parent", "template_repository"):
            v.pop(k, None)
        return v

    def h_user_me(self, q):
        return self._ex("private-user-response-with-public-profile-information", login=self.actor)

    def h_rate(self, q):
        r = {"limit": 5000, "remaining": self.remaining, "reset": 4102444800, "used": 5000 - self.remaining}
        return {"resources": {"core": r, "search": r}, "rate": r}

    # ---- pull requests, issues, comments
    def h_pull(self, q, n):
        return self.pulls[n]

    def h_pulls_list(self, q):
        found = [
            p for p in self.pulls.values()
            if q.args.get("head") in (None, p["head"]["label"]) and q.args.get("state", "open") in ("all", p["state"])
        ]  # fmt: skip
        return self._page(q, [self._simple(p) for p in found])

    def h_pull_new(self, q):
        branch = q.json["head"]
        if not any(b == branch for b, _ in self.contents):
            raise invalid("PullRequest", "head", "invalid")
        n = next(self.ids)
        made = self.add_pull(
            n, f"{n:040x}", title=q.json["title"], author=self.actor, branch=branch, base=q.json["base"]
        )
        made["body"] = q.json["body"]
        return made, 201

    def _simple(self, p):
        v = copy.deepcopy(self._ex0("pull-request-simple-items")[0])
        v.update({k: p[k] for k in ("number", "url", "state", "title", "user", "head", "base")})
        v["requested_teams"] = []
        return v

    def _ex0(self, name):
        return self.examples[name]["value"]

    def h_commit_pulls(self, q, ref):
        return self._page(q, [self._simple(p) for p in self.pulls.values() if p["head"]["sha"] == ref])

    def h_files(self, q, n):
        base = self._ex0("diff-entry-items")[0]
        return self._page(q, [{**base, "filename": f} for f in self.file_lists[n]])

    def _issue_view(self, n):
        v = self._ex("issue", number=n, url=f"{self.repo_url}/issues/{n}")
        if n in self.issues:
            x = self.issues[n]
            v.update(title=x["title"], body=x["body"], state=x["state"], user=self.user(self.actor))
            v.pop("pull_request", None)
        return v

    def h_issue(self, q, n):
        return self._issue_view(n)

    def h_issues_list(self, q):
        wanted = [n for n, x in self.issues.items() if q.args.get("state", "open") in ("all", x["state"])]
        if who := q.args.get("creator"):
            wanted = [n for n in wanted if who == self.actor]
        return self._page(q, [self._issue_view(n) for n in wanted])

    def h_issue_new(self, q):
        n = next(self.ids)
        self.issues[n] = {"title": q.json["title"], "body": q.json.get("body", ""), "state": "open"}
        return self._issue_view(n), 201

    def h_issue_edit(self, q, n):
        self.issues[n].update({k: v for k, v in q.json.items() if k in ("title", "body", "state")})
        return self._issue_view(n)

    def h_comments(self, q, n):
        return self._page(q, [self.comment_view(c) for c, x in self.comment_map.items() if x["n"] == n])

    def _body(self, q):
        body = q.json["body"]
        if len(body.encode()) > 262144:
            raise invalid("IssueComment", "data", "unprocessable", "Body is too long (maximum is 65536 characters)")
        if not body.strip():
            raise invalid("IssueComment", "body", "missing_field")
        return body

    def h_comment_new(self, q, n):
        if n not in self.pulls and n not in self.issues:
            raise NotFound
        return self.comment_view(self.add_comment(n, self._body(q), self.actor)), 201

    def h_all_comments(self, q):
        found = [c for c, x in self.comment_map.items() if x["up"] >= q.args.get("since", "")]
        return self._page(q, [self.comment_view(c) for c in found])

    def h_comment(self, q, c):
        return self.comment_view(c)

    def h_comment_edit(self, q, c):
        if self.comment_map[c]["user"] != self.actor:
            raise ApiError(403, "Resource not accessible by integration")
        self.comment_map[c].update(body=self._body(q), up=now())
        return self.comment_view(c)

    def h_comment_del(self, q, c):
        del self.comment_map[c]
        return None, 204

    def h_reactions(self, q, c):
        _ = self.comment_map[c]
        return self._page(q, [r for r in self.react[c] if q.args.get("content") in (None, r["content"])])

    def add_reaction(self, c, content, user):
        r = {"id": next(self.ids), "node_id": "R_x", "user": self.user(user), "content": content, "created_at": now()}
        self.react[c].append(r)
        return r

    def h_react_new(self, q, c):
        _ = self.comment_map[c]
        for r in self.react[c]:
            if r["content"] == q.json["content"] and r["user"]["login"] == self.actor:
                return r, 200
        return self.add_reaction(c, q.json["content"], self.actor), 201

    def h_unreact(self, q, c, r):
        self.react[c] = [x for x in self.react[c] if x["id"] != r]
        return None, 204

    def h_permission(self, q, user):
        role = self.perm.get(user, "read")
        u = self.user(user) | {"permissions": dict.fromkeys(("pull", "triage", "push", "maintain", "admin"), False)}
        u["role_name"] = role
        return {"permission": {"maintain": "write", "triage": "read"}.get(role, role), "role_name": role, "user": u}

    def h_content(self, q, path):
        text = self.contents[(q.args.get("ref", "main"), path)]
        v = self._ex("content-file-response-if-content-is-a-file", path=path, name=path.rsplit("/", 1)[-1])
        v.update(
            content=base64.encodebytes(text.encode()).decode(), encoding="base64", size=len(text), sha=blob_sha(text)
        )
        if len(text.encode()) > self.inline_max:
            v.update(content="", encoding="none")
        return v

    def h_content_put(self, q, path):
        key = (q.json.get("branch", "main"), path)
        if not any(branch == key[0] for branch, _ in self.contents):
            raise ApiError(404, f"Branch {key[0]} not found")
        if key in self.contents and q.json.get("sha") != blob_sha(self.contents[key]):
            raise ApiError(409, f"{path} does not match {q.json.get('sha')}")
        self.contents[key] = base64.b64decode(q.json["content"]).decode()
        v = self._ex("file-commit-example-for-updating-a-file")
        v["content"].update(path=path, name=path, sha=blob_sha(self.contents[key]))
        return v

    def h_blob(self, q, sha):
        text = next((t for t in self.contents.values() if blob_sha(t) == sha), None)
        if text is None:
            raise NotFound
        content = base64.encodebytes(text.encode()).decode()
        return self._ex(
            "blob", content=content, encoding="base64", sha=sha, size=len(text), url=f"{self.repo_url}/git/blobs/{sha}"
        )

    def h_tree_new(self, q):
        sha = f"{next(self.ids):040x}"
        self.trees[sha] = {e["path"]: e["content"] for e in q.json["tree"]}
        return self._ex("git-tree", sha=sha, url=f"{self.repo_url}/git/trees/{sha}"), 201

    def h_commit_new(self, q):
        sha = f"{next(self.ids):040x}"
        self.trees[sha] = self.trees[q.json["tree"]]
        return self._ex("git-commit", sha=sha, url=f"{self.repo_url}/git/commits/{sha}"), 201

    def h_ref_new(self, q):
        branch = q.json["ref"].removeprefix("refs/heads/")
        if any(b == branch for b, _ in self.contents):
            raise ApiError(422, "Reference already exists")
        sha = q.json["sha"]
        files = self.trees.get(sha) or {p: t for (b, p), t in self.contents.items() if self.commits.get(b) == sha}
        self.contents |= {(branch, path): text for path, text in (files or {"README.md": ""}).items()}
        self.commits[branch] = sha
        v = self._ex("git-ref", ref=q.json["ref"], url=f"{self.repo_url}/git/{q.json['ref']}")
        v["object"].update(sha=q.json["sha"])
        return v, 201

    def h_commit(self, q, ref):
        sha = self.commits.get(ref, ref if re.fullmatch("[0-9a-f]{40}", ref) else None)
        if sha is None:
            raise ApiError(422, f"No commit found for SHA: {ref}")
        return self._ex("commit", sha=sha, files=[])

    # ---- runs
    def h_runs(self, q):
        rs = [
            self.run_view(i) for i, r in reversed(self.run_map.items())
            if q.args.get("head_sha") in (None, r["head_sha"]) and q.args.get("event") in (None, r["event"])
            and q.args.get("branch") in (None, r["branch"])
        ]  # fmt: skip
        s = q.args.get("status")
        return self._page(q, [r for r in rs if s in (None, r["status"], r["conclusion"])], "workflow_runs")

    def h_run(self, q, run):
        return self.run_view(run)

    def h_attempt(self, q, run, a):
        return self.run_view(run, a)

    def h_jobs(self, q, run):
        attempts = self.run_map[run]["attempts"]
        ids = list(itertools.chain(*attempts)) if q.args.get("filter") == "all" else attempts[-1]
        return self._page(q, [self.job_view(j) for j in ids], "jobs")

    def h_attempt_jobs(self, q, run, a):
        return self._page(q, [self.job_view(j) for j in self.run_map[run]["attempts"][a - 1]], "jobs")

    def h_job(self, q, job):
        return self.job_view(job)

    def _rerun(self, rid, pick):
        v = self.run_view(rid)
        if v["status"] != "completed":
            raise ApiError(403, "This workflow is already running")
        last = [self.job_map[j] for j in self.run_map[rid]["attempts"][-1]]
        if not any(pick(j) for j in last):
            raise ApiError(403, "This workflow run has no failed jobs")
        if len(self.run_map[rid]["attempts"]) > 50:
            raise ApiError(403, "This workflow run has been re-run too many times")
        self.new_attempt(
            rid,
            [(j["name"], None, "") if pick(j) else (j["name"], j["conclusion"], self.log_text[j["id"]]) for j in last],
        )
        return {}, 201

    def h_rerun(self, q, run):
        return self._rerun(run, lambda j: True)

    def h_rerun_failed(self, q, run):
        return self._rerun(run, lambda j: j["conclusion"] not in ("success", "skipped"))

    def h_job_rerun(self, q, job):
        return self._rerun(self.job_map[job]["run"], lambda j: j["name"] == self.job_map[job]["name"])

    def h_cancel(self, q, run):
        if self.run_view(run)["status"] == "completed":
            raise ApiError(409, "Cannot cancel a workflow run that is completed.")
        for j in self.run_map[run]["attempts"][-1]:
            if self.job_map[j]["conclusion"] is None:
                self.job_map[j]["conclusion"] = "cancelled"
        return {}, 202

    # ---- logs and artifacts, behind a redirect to another host
    def h_job_logs(self, q, job):
        if self.job_map[job]["conclusion"] is None or self.log_text.get(job) is None:
            raise NotFound
        return None, 302, {"Location": f"{self.blob}/job/{job}?sig=x"}

    def h_attempt_logs(self, q, run, a):
        if any(self.job_map[j]["conclusion"] is None for j in self.run_map[run]["attempts"][a - 1]):
            raise NotFound
        return None, 302, {"Location": f"{self.blob}/logs/{run}-{a}?sig=x"}

    def h_artifacts(self, q, run):
        return self._page(q, [v for v, _ in self.arts.values() if v["workflow_run"]["id"] == run], "artifacts")

    def h_artifact_zip(self, q, art):
        _ = self.arts[art]
        return None, 302, {"Location": f"{self.blob}/artifact/{art}?sig=x"}

    def blob_of(self, kind, ident):
        if kind == "job":
            return self.log_text[int(ident)].encode()
        if kind == "artifact":
            return self.arts[int(ident)][1]
        run, a = map(int, ident.split("-"))
        out = io.BytesIO()
        with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as z:
            for i, j in enumerate(self.run_map[run]["attempts"][a - 1]):
                if (text := self.log_text.get(j)) is None:
                    continue
                name = re.sub(r"[/:]", "", self.job_map[j]["name"])[:90]
                z.writestr(f"{i}_{name}.txt", "set up\n" + text)
                z.writestr(f"{name}/1_Set up job.txt", "set up\n")
                z.writestr(f"{name}/2_Run tests.txt", text)
        return out.getvalue()

    # ---- check runs
    def _check_out(self, k, q):
        d, o = q.json, q.json.get("output") or {}
        for f in ("summary", "text"):
            if len((o.get(f) or "").encode()) > 65535:
                raise invalid("CheckRun", f, "custom", f"{f} exceeds a maximum bytesize of 65535")
        blank = {"blob_href": "https://github.com/x", "title": None, "raw_details": None}
        self.annots[k] += [{**blank, "start_column": None, "end_column": None, **a} for a in o.get("annotations", [])]
        c = self.checks[k]
        fields = (
            "name",
            "status",
            "conclusion",
            "details_url",
            "external_id",
            "head_sha",
            "started_at",
            "completed_at",
        )
        c.update({f: d[f] for f in fields if f in d})
        if d.get("conclusion"):
            c["status"], c["completed_at"] = "completed", d.get("completed_at") or now()
        c["output"].update({f: o[f] for f in ("title", "summary", "text") if f in o})
        c["output"]["annotations_count"] = len(self.annots[k])
        return c

    def h_check_new(self, q):
        k = next(self.ids)
        u = f"{self.repo_url}/check-runs/{k}"
        out = {
            "title": None,
            "summary": None,
            "text": None,
            "annotations_count": 0,
            "annotations_url": u + "/annotations",
        }
        self.checks[k] = self._ex(
            "check-run", id=k, url=u, status="queued", conclusion=None, completed_at=None, pull_requests=[], output=out
        )
        return self._check_out(k, q), 201

    def h_check(self, q, k):
        return self.checks[k]

    def h_check_edit(self, q, k):
        return self._check_out(k, q)

    def h_annotations(self, q, k):
        return self._page(q, self.annots[k])

    def h_checks_for(self, q, ref):
        name = q.args.get("check_name")
        found = [c for c in self.checks.values() if c["head_sha"] == ref and name in (None, c["name"])]
        return self._page(q, found, "check_runs")

    def _page(self, q, items, key=None):
        per, page = min(int(q.args.get("per_page", 30)), self.page_max), int(q.args.get("page", 1))
        part, last = items[(page - 1) * per : page * per], max(1, -(-len(items) // per))

        def link(p, rel):
            query = urlencode({**q.args.to_dict(), "per_page": per, "page": p})
            return f'<{self.base}{q.path}?{query}>; rel="{rel}"'

        headers = {"Link": ", ".join([link(page + 1, "next"), link(last, "last")])} if page < last else {}
        return ({"total_count": len(items), key: part} if key else part), 200, headers
