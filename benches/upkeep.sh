#!/usr/bin/env bash
# What keeping a cluster whole costs: a rebalance under load, and the repair of a wiped device, paced and
# not. Arguments: --gib N, --seconds S.
set -euo pipefail
exec python3 -B "$(cd "$(dirname "$0")" && pwd)/upkeep.py" "$@"
