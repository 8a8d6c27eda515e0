#!/usr/bin/env bash
# Plays a pull request: a repository of its own, in which the base branch runs green and is remembered, then the pull request
# (examples/model_pr) fails the way the original report's did. Leaves run folders, page and comment in out/demo.
set -euo pipefail
cd "$(dirname "$0")/.."
export PATH="$PWD/.venv/bin:$PATH"
top=$PWD
out=$top/out/demo
rm -rf "$out"
mkdir -p "$out"
cp -r examples/model_pr "$out/model_pr"
cp -r examples/model_pr_base/. "$out/model_pr/"
cd "$out/model_pr"
rm -rf output .matrix
git() { command git -c user.name=demo -c user.email=demo@localhost "$@"; }
export MATRIX_REPOSITORY=example/model_pr

git init -q -b main
git add --all
git commit -qm "Base branch"
echo "demo: the base branch"
matrix run || { echo "demo: the base branch was expected to be green" >&2; exit 3; }

git checkout -q -b pull-request
cp -r "$top/examples/model_pr/." .
git add --all
git commit -qm "Block masks for sparse attention, pipeline stages for the MoE model"
export MATRIX_BASE MATRIX_PR=4623 MATRIX_AUTHOR=contributor
MATRIX_BASE=$(git rev-parse main)
rm -rf output
echo "demo: the pull request"
matrix run && status=0 || status=$?
if [ "$status" != 1 ]; then
  echo "demo: the pull request was expected to fail (exit 1); it ended with $status" >&2
  exit 3
fi
run=$(basename "$(ls -d .matrix/runs/*/ | tail -1)")
bot comment ".matrix/runs/$run" --dry-run --lang both -o "$out/comment.md"
cat <<TEXT

The pull request failed, as it should: its faults are real.
  run folder  out/demo/model_pr/.matrix/runs/$run
  page        out/demo/model_pr/.matrix/runs/$run/report.html
  comment     out/demo/comment.md
Ask further:
  export PATH="\$PWD/.venv/bin:\$PATH"; cd out/demo/model_pr; matrix show $run qwen-sft
TEXT
