#!/usr/bin/env bash
# Tests of the server from outside: S3's semantics, bad input on bare sockets, kill -9.
# Arguments go to pytest.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
venv=${MARTLET_VENV:-$HOME/.cache/martlet/venv}
installed=$venv/.martlet-tests-s3

if ! cmp -s "$here/requirements.txt" "$installed"; then
    [ -x "$venv/bin/python" ] || python3 -m venv "$venv"
    "$venv/bin/pip" install --quiet --disable-pip-version-check -r "$here/requirements.txt"
    cp "$here/requirements.txt" "$installed"
fi
cd "$here"
exec "$venv/bin/python" -B -m pytest -p no:cacheprovider --rootdir "$here" "$@"
