#!/usr/bin/env bash
# One table: Martlet beside what nginx, bare files and the memory limits of the design allow on this
# machine. Arguments: --quick leaves out the objects of several GiB; --rounds N, --seconds S.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)

if ! command -v nginx >/dev/null && [ ! -x /usr/sbin/nginx ]; then
    sudo=$([ "$(id -u)" = 0 ] || echo sudo)
    echo "installing: nginx" >&2
    $sudo apt-get update -qq
    $sudo apt-get install -y -qq --no-install-recommends nginx-light >&2
fi
exec python3 -B "$here/table.py" "$@"
