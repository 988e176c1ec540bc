#!/usr/bin/env bash
# What a crowd without a key costs a client with one. Arguments: --connections N, --seconds S, --rounds R, --pause S.
set -euo pipefail

if ! command -v openssl >/dev/null; then
    sudo=$([ "$(id -u)" = 0 ] || echo sudo)
    echo "installing: openssl" >&2
    $sudo apt-get update -qq
    $sudo apt-get install -y -qq --no-install-recommends openssl >&2
fi
exec python3 -B "$(cd "$(dirname "$0")" && pwd)/strangers.py" "$@"
