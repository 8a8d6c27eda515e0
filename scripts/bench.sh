#!/usr/bin/env bash
# Runs the benchmarks that need no other hardware and no peer, and prints the machine first. Takes about ten minutes when idle.
set -euo pipefail
cd "$(dirname "$0")/.."
export PATH="$PWD/.venv/bin:$PATH"
nproc
python --version
run() { echo; echo "== $*"; python "$@"; }
run benchmarks/overhead.py
run benchmarks/makespan.py
run benchmarks/verdicts.py --held-out --at-once
run benchmarks/history.py
for more in triage train_step parallel comments; do
  [ -f "benchmarks/$more.py" ] && run "benchmarks/$more.py"
done
