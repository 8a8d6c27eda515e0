#!/usr/bin/env bash
# Makes the virtual environment named by $1 with everything that demo, tests and linters need.
set -euo pipefail
venv=${1:-.venv}
python=${PYTHON:-python3}
if ! "$python" -c 'import sys; sys.exit(not (3, 11) <= sys.version_info[:2] <= (3, 13))' 2>/dev/null; then
  echo "setup: needs Python 3.11, 3.12 or 3.13; '$python' is not one of them. Try: make setup PYTHON=python3.12" >&2
  exit 2
fi
if ! "$python" -c 'import venv, ensurepip' 2>/dev/null; then
  echo "setup: the venv module is missing; installing python3-venv"
  apt-get update -qq && apt-get install -y -qq python3-venv >/dev/null
fi
[ -x "$venv/bin/python" ] || "$python" -m venv "$venv"
"$venv/bin/python" -m pip install -qq --disable-pip-version-check --constraint constraints.txt --editable '.[train,postgres,dev]'
bash scripts/node.sh
echo "setup: ready in $venv"
