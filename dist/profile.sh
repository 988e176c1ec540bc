#!/usr/bin/env bash
# Trains the build of the packages: an instrumented binary serves the requests of benches/train.py.
#
# Usage: MARTLET_CACHE=FOLDER dist/profile.sh. Writes MARTLET_CACHE/pgo/martlet-HASH.profdata in place of earlier
# ones, for `make dist-binary`. HASH begins the SHA-256 of its bytes: builds that the profile guides depend on its
# path, and so on its bytes. Needs a free port 9800, 6 GB below MARTLET_CACHE, and an llvm-profdata of the
# compiler's LLVM: rustup's component llvm-tools, or Debian's package llvm-N.
set -euo pipefail
cache=$(realpath -m "${MARTLET_CACHE:?the folder for the profile}")
cd "$(dirname "$0")/.."
folder=$cache/pgo
triple=$(rustc -vV | sed -n 's/^host: //p')
llvm=$(rustc -vV | sed -n 's/^LLVM version: \([0-9]*\).*/\1/p')

tool() { # Prints the path of llvm-profdata, if there is one.
  local path
  for path in "$(rustc --print sysroot)/lib/rustlib/$triple/bin/llvm-profdata" "/usr/lib/llvm-$llvm/bin/llvm-profdata"; do
    if [ -x "$path" ]; then echo "$path"; return; fi
  done
}
profdata=$(tool)
if [ -z "$profdata" ]; then
  { command -v rustup >/dev/null && rustup component add llvm-tools >&2; } || {
    sudo=$([ "$(id -u)" = 0 ] || echo sudo)
    $sudo apt-get update -qq && $sudo apt-get install -y -qq --no-install-recommends "llvm-$llvm" >&2
  } || true
  profdata=$(tool)
fi
if [ -z "$profdata" ]; then
  echo "no llvm-profdata of LLVM $llvm: run 'rustup component add llvm-tools', or install Debian's llvm-$llvm" >&2
  exit 1
fi

rm -rf "$folder/raw"
mkdir -p "$folder/raw"
# With a target of its own, neither build scripts nor macros are instrumented.
RUSTFLAGS="-Cprofile-generate=$folder/raw" cargo build --release --locked --bin martlet \
  --target "$triple" --target-dir "$folder/target"
MARTLET_BIN=$folder/target/$triple/release/martlet python3 -B benches/train.py
new=$folder/profdata.new
"$profdata" merge --failure-mode=all -o "$new" "$folder/raw"
hash=$(sha256sum "$new" | cut -c 1-16)
rm -rf "$folder"/martlet*.profdata "$folder/raw"
mv "$new" "$folder/martlet-$hash.profdata"
ls -l "$folder/martlet-$hash.profdata"
