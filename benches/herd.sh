#!/usr/bin/env bash
# Many readers of one object at once, with and without shared windows, and bursts of more requests than a
# proxy has turns. `--help` lists the arguments.
set -euo pipefail
exec python3 -B "$(cd "$(dirname "$0")" && pwd)/herd.py" "$@"
