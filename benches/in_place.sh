#!/usr/bin/env bash
# Reads in place beside other ways and other readers, on one server and on nodes behind limited links in network
# namespaces. Root is needed for the namespaces. `--help` lists the arguments.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
. "$here/install.sh"

# Readers alone need none of the packages, and neither does the help.
parts=() previous=
for argument in "$@"; do
    case $argument in
        -h | --help) exec python3 -B "$here/in_place.py" --help ;;
        --only=*) parts+=("${argument#--only=}") ;;
    esac
    [ "$previous" != --only ] || parts+=("$argument")
    previous=$argument
done
if [ "$(printf '%s\n' "${parts[@]}" | sort -u)" != readers ]; then
    need ip iproute2
    need tc iproute2
    need nginx nginx-light
    need fio fio
    install_missing
fi
exec python3 -B "$here/in_place.py" "$@"
