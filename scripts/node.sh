#!/usr/bin/env bash
# Installs what the tests take from npm into tests/node/node_modules: exact versions, no scripts, no lock file.
set -euo pipefail
cd "$(dirname "$0")/../tests/node"
stamp=node_modules/.stamp
exec 9>.lock
flock 9
if [ -f "$stamp" ] && cmp -s package.json "$stamp"; then exit 0; fi
if ! command -v npm >/dev/null; then
  echo "node: npm is missing; installing nodejs and npm"
  apt-get update -qq && apt-get install -y -qq --no-install-recommends nodejs npm >/dev/null
fi
npm install --silent --ignore-scripts --no-package-lock --no-audit --no-fund
cp package.json "$stamp"
