#!/usr/bin/env bash
# One table: Martlet beside what nginx, fio, bare files and the memory limits of the design allow on this
# machine. Arguments: --only NAME takes one measure, --list names them, --full takes the long ones, --quick
# leaves out the objects of several GiB; --rounds N, --seconds S.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)

missing=()
command -v nginx >/dev/null || [ -x /usr/sbin/nginx ] || missing+=(nginx-light)
command -v fio >/dev/null || missing+=(fio)
command -v openssl >/dev/null || missing+=(openssl)
if [ ${#missing[@]} -gt 0 ]; then
    sudo=$([ "$(id -u)" = 0 ] || echo sudo)
    echo "installing: ${missing[*]}" >&2
    $sudo apt-get update -qq
    $sudo apt-get install -y -qq --no-install-recommends "${missing[@]}" >&2
fi
exec python3 -B "$here/table.py" "$@"
