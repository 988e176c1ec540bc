#!/usr/bin/env bash
# Builds the distribution binary twice: instrumented, then optimised by what a benchmark's load executed.
#
# Usage: dist/optimize.sh. Prints the path of the binary. The profile `dist` is the same in both builds:
# symbol names, by which the counts are found again, depend on the profile.
set -euo pipefail
cd "$(dirname "$0")/.."

target=${CARGO_TARGET_DIR:-$HOME/.cache/martlet/target}
host=$(rustc -vV | sed -n 's/^host: //p')
work=$target/pgo
rm -rf "$work"
mkdir -p "$work/counts"

# Rust has no llvm-profdata of its own in a minimal toolchain: the newest of the system's is taken.
profdata=$(compgen -c llvm-profdata | sort -u -t- -k3 -n | tail -1)
[ -n "$profdata" ] || { echo "llvm-profdata is missing: install Debian's package llvm-19 or newer" >&2; exit 1; }

build() { # FLAGS TARGET_DIR
  RUSTFLAGS=$1 CARGO_TARGET_DIR=$2 cargo build --profile dist --locked --target "$host" --bin martlet >&2
}

echo "optimize: building with counters" >&2
build "-Cprofile-generate=$work/counts" "$target/pgo-counting"

echo "optimize: running the load" >&2
dist/train.sh "$target/pgo-counting/$host/dist/martlet" "$work/counts"
"$profdata" merge -o "$work/merged.profdata" "$work"/counts/*.profraw
# cargo compiles again only if a flag changes: the name holds the content.
counts=$work/$(sha256sum "$work/merged.profdata" | cut -c1-16).profdata
mv "$work/merged.profdata" "$counts"

echo "optimize: building with the counts" >&2
build "-Cprofile-use=$counts" "$target/pgo-optimised"
mkdir -p "$target/dist"
cp "$target/pgo-optimised/$host/dist/martlet" "$target/dist/martlet"
echo "$target/dist/martlet"
