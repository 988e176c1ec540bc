#!/usr/bin/env bash
# Builds the fuzz targets in FUZZ_DIR/target: stable rustc, LLVM's coverage counters, libFuzzer, no sanitizer.
# The target is named, so that build scripts and macros are built without counters.
set -euo pipefail
cd "$(dirname "$0")"

llvm_args=(
  -sanitizer-coverage-level=3
  -sanitizer-coverage-inline-8bit-counters
  -sanitizer-coverage-pc-table
  -sanitizer-coverage-trace-compares
)
flags="-Cpasses=sancov-module"
for arg in "${llvm_args[@]}"; do flags+=" -Cllvm-args=$arg"; done
host=$(rustc -vV | sed -n 's/^host: //p')
CARGO_TARGET_DIR="${FUZZ_DIR:?}/target" RUSTFLAGS="$flags" cargo build --release --locked --bins --target "$host"
mkdir -p "$FUZZ_DIR/bin"
for source in targets/*.rs; do
  name=$(basename "$source" .rs)
  ln -sfn "$FUZZ_DIR/target/$host/release/$name" "$FUZZ_DIR/bin/$name"
done
