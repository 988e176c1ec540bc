#!/usr/bin/env bash
# Coded fragments beside copies on a cluster of six devices: CPU and pace, bytes read for ranges, space
# taken. Arguments: --rounds N, --seconds S, --ranges N.
set -euo pipefail
exec python3 -B "$(cd "$(dirname "$0")" && pwd)/erasure_cluster.py" "$@"
