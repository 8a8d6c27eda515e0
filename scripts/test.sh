#!/usr/bin/env bash
# Runs the test suite; services that tests need are started by the tests' own script and stopped after.
set -euo pipefail
cd "$(dirname "$0")/.."
export PATH="$PWD/.venv/bin:$PATH"
bash scripts/services.sh start
trap 'bash scripts/services.sh stop' EXIT
pytest "$@"
