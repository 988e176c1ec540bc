#!/usr/bin/env bash
# Costs of a device by the number of its objects. Arguments: --full, --objects N (repeatable), --devices N,
# --objects-a-device N, --churn-seconds S, --seconds S, --dir PATH.
set -euo pipefail
exec python3 -B "$(cd "$(dirname "$0")" && pwd)/scale.py" "$@"
