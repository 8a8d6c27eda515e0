#!/usr/bin/env bash
# White space and byte-compilation of the files that this pull request changes (all files where there is no base).
set -euo pipefail
base=${MATRIX_BASE:-$(git rev-parse -q --verify HEAD~1 || git mktree </dev/null)}
echo "comparing with ${base:0:12}"
git diff --check "$base" -- .
git diff --name-only --relative --diff-filter=d "$base" -- '*.py' | tee /dev/stderr | xargs -r python -m compileall -q
echo "changed files are clean"
