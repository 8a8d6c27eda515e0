"""Cuts GitHub's OpenAPI document down to the operations that the bot uses, with every component that they reach.

Usage: reduce_openapi.py api.github.com.json tests/data/github/openapi.json.gz
The document is in the npm package @octokit/openapi (generated/api.github.com.json).
"""

from __future__ import annotations

import gzip
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

REPO = "/repos/{owner}/{repo}"
PATHS = [
    REPO,
    "/app/installations/{installation_id}/access_tokens",
    "/rate_limit",
    "/user",
    *(
        REPO + path
        for path in (
            "/actions/artifacts/{artifact_id}/{archive_format}",
            "/actions/jobs/{job_id}",
            "/actions/jobs/{job_id}/logs",
            "/actions/jobs/{job_id}/rerun",
            "/actions/runs",
            "/actions/runs/{run_id}",
            "/actions/runs/{run_id}/artifacts",
            "/actions/runs/{run_id}/attempts/{attempt_number}",
            "/actions/runs/{run_id}/attempts/{attempt_number}/jobs",
            "/actions/runs/{run_id}/attempts/{attempt_number}/logs",
            "/actions/runs/{run_id}/cancel",
            "/actions/runs/{run_id}/jobs",
            "/actions/runs/{run_id}/rerun",
            "/actions/runs/{run_id}/rerun-failed-jobs",
            "/check-runs",
            "/check-runs/{check_run_id}",
            "/check-runs/{check_run_id}/annotations",
            "/collaborators/{username}/permission",
            "/commits/{commit_sha}/pulls",
            "/commits/{ref}",
            "/commits/{ref}/check-runs",
            "/contents/{path}",
            "/git/blobs/{file_sha}",
            "/git/commits",
            "/git/refs",
            "/git/trees",
            "/issues",
            "/issues/comments",
            "/issues/comments/{comment_id}",
            "/issues/comments/{comment_id}/reactions",
            "/issues/comments/{comment_id}/reactions/{reaction_id}",
            "/issues/{issue_number}",
            "/issues/{issue_number}/comments",
            "/pulls",
            "/pulls/{pull_number}",
            "/pulls/{pull_number}/files",
        )
    ),
]


def references(node: Any) -> Iterator[str]:
    """Every `$ref` below a node."""
    if isinstance(node, dict):
        for key, value in node.items():
            if key == "$ref" and isinstance(value, str):
                yield value
            else:
                yield from references(value)
    elif isinstance(node, list):
        for value in node:
            yield from references(value)


def reduce(full: dict[str, Any], paths: list[str]) -> dict[str, Any]:
    """Return the document with only these paths and what they need."""
    missing = [path for path in paths if path not in full["paths"]]
    if missing:
        sys.exit(f"not in the document: {', '.join(missing)}")
    reduced = {k: v for k, v in full.items() if k in ("openapi", "info", "servers")}
    reduced["paths"] = {path: full["paths"][path] for path in paths}
    components: dict[str, dict[str, Any]] = {}
    todo = list(references(reduced["paths"]))
    while todo:
        _, _, kind, name = todo.pop().split("/", 3)
        if name not in components.setdefault(kind, {}):
            components[kind][name] = full["components"][kind][name]
            todo += references(components[kind][name])
    return reduced | {"components": components}


def main(source: str, target: str) -> None:
    """Read the full document, write the reduced one."""
    document = reduce(json.loads(Path(source).read_bytes()), PATHS)
    text = json.dumps(document, ensure_ascii=False, sort_keys=True, separators=(",", ":"))
    Path(target).write_bytes(gzip.compress(text.encode(), mtime=0))
    print(len(document["paths"]), "paths", {k: len(v) for k, v in document["components"].items()})


if __name__ == "__main__":
    main(*sys.argv[1:])
