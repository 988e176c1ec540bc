#!/bin/bash
# Martlet's ring beside Swift's: what the builders make of the same clusters, and how fast a ring is.
# Arguments go to compare.py: --quick leaves the largest cluster out, which takes Swift minutes.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
repository=$(cd "$here/../.." && pwd)
export CARGO_TARGET_DIR=${CARGO_TARGET_DIR:-$HOME/.cache/martlet/target}
venv=$HOME/.cache/martlet/venv-swift

if ! "$venv/bin/python" -c 'import swift, numpy' 2>/dev/null; then
  python3 -m venv "$venv"
  "$venv/bin/pip" install --quiet swift==2.38.3 numpy setuptools
fi
cd "$repository"
cargo build --quiet --release --locked --package martlet
cargo build --quiet --release --locked --package martlet-ring --example measure_ring

echo "$(nproc) cores, $(sed -n 's/^model name[^:]*: //p' /proc/cpuinfo | head -1); Swift $("$venv/bin/pip" list 2>/dev/null | awk '$1 == "swift" { print $2 }')"
echo
"$CARGO_TARGET_DIR/release/examples/measure_ring"
echo
"$venv/bin/python" "$here/compare.py" --martlet "$CARGO_TARGET_DIR/release/martlet" "$@"
