#!/usr/bin/env bash
# Reads in place beside other ways and other readers, on one server and on nodes behind limited links in network
# namespaces. Root is needed for the namespaces. `--help` lists the arguments.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)

missing=()
command -v ip >/dev/null && command -v tc >/dev/null || missing+=(iproute2)
command -v nginx >/dev/null || [ -x /usr/sbin/nginx ] || missing+=(nginx-light)
command -v fio >/dev/null || missing+=(fio)
if [ ${#missing[@]} -gt 0 ]; then
    sudo=$([ "$(id -u)" = 0 ] || echo sudo)
    echo "installing: ${missing[*]}" >&2
    $sudo apt-get update -qq
    $sudo apt-get install -y -qq --no-install-recommends "${missing[@]}" >&2
fi
exec python3 -B "$here/in_place.py" "$@"
