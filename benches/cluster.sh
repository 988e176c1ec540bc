#!/usr/bin/env bash
# One table: a cluster of 4 nodes with 3 copies, all on this machine, with CPU seconds by role, and what
# a node's death does to those who are asking. Arguments: --rounds N, --seconds S, --skip-failover.
set -euo pipefail
exec python3 -B "$(cd "$(dirname "$0")" && pwd)/cluster.py" "$@"
