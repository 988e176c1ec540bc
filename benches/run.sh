#!/usr/bin/env bash
# One table: Martlet beside what nginx, fio, bare files and the memory limits of the design allow on this
# machine. Arguments: --only NAME takes one measure, --list names them, --full takes the long ones, --quick
# leaves out the objects of several GiB; --rounds N, --seconds S.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
. "$here/install.sh"

need nginx nginx-light
need fio fio
need openssl openssl
install_missing
exec python3 -B "$here/table.py" "$@"
