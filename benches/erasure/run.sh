#!/bin/bash
# What erasure coding costs a core, beside another library: takes three minutes.
set -euo pipefail
cd "$(dirname "$0")/../.."
export CARGO_TARGET_DIR=${CARGO_TARGET_DIR:-$HOME/.cache/martlet/target}
cargo build --quiet --release --locked --package martlet-erasure --example measure_erasure

echo "$(nproc) cores, $(sed -n 's/^model name[^:]*: //p' /proc/cpuinfo | head -1)"
exec "$CARGO_TARGET_DIR/release/examples/measure_erasure"
