#!/usr/bin/env bash
# Round trips with real S3 clients against a server of their own.
# Arguments are names of clients; none means all of them. `--list` says which there are, and
# `--prepare` installs them without running them.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
exec python3 -B "$here/run.py" "$@"
