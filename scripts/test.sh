#!/usr/bin/env bash
# Runs the tests: starts the services that they need, stops them after. Arguments go to pytest.
set -euo pipefail
cd "$(dirname "$0")/.."
export PATH="$PWD/.venv/bin:$PATH"
bash scripts/services.sh start
trap 'bash scripts/services.sh stop' EXIT
# shellcheck source=/dev/null
source .services/env
export MATRIX_TEST_SERVICES=required
pytest "$@"
