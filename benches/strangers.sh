#!/usr/bin/env bash
# What a crowd without a key costs a client with one. Arguments: --connections N, --seconds S, --rounds R, --pause S.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
. "$here/install.sh"

need openssl openssl
install_missing
exec python3 -B "$here/strangers.py" "$@"
