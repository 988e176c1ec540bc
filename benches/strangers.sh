#!/usr/bin/env bash
# What a crowd without a key costs a client with one. Arguments: --connections N, --seconds S, --rounds R.
set -euo pipefail
exec python3 -B "$(cd "$(dirname "$0")" && pwd)/strangers.py" "$@"
