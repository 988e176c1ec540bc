#!/usr/bin/env bash
# Builds the binary for installation: link-time optimisation of all crates, guided by a profile of
# requests that an instrumented server answers. Prints the path of the binary as its last line.
# TRAIN_SECONDS (3) is the time that each kind of request is sent for.
set -euo pipefail
cd "$(dirname "$0")/.."

cache=${CARGO_TARGET_DIR:-$HOME/.cache/martlet/target}
target=$cache/dist-build
host=$(rustc -vV | sed -n 's/^host: //p')
work=$(mktemp -d)
server=
trap '[ -z "$server" ] || kill "$server" 2>/dev/null || true; rm -rf "$work"' EXIT

# Newest first: a tool reads the profiles of its own LLVM and of earlier ones.
find_profdata() {
  local sysroot
  sysroot=$(rustc --print sysroot)
  ls -d "$sysroot/lib/rustlib/$host/bin/llvm-profdata" /usr/lib/llvm-*/bin/llvm-profdata 2>/dev/null |
    sort -V | tail -1
}

# Flags for the target alone: build scripts and macros stay as they are.
build() {
  RUSTFLAGS="$1" cargo build --profile dist --locked --target "$host" --target-dir "$target/$2" >&2
}

profdata=$(find_profdata || true)
if [ -z "$profdata" ]; then
  echo "installing: llvm-19" >&2
  sudo=$([ "$(id -u)" = 0 ] || echo sudo)
  $sudo apt-get update -qq
  $sudo apt-get install -y -qq --no-install-recommends llvm-19 >&2
  profdata=$(find_profdata)
fi

echo "1/3: building the instrumented binary" >&2
build "-Cprofile-generate" instrumented
instrumented=$target/instrumented/$host/dist/martlet

echo "2/3: training" >&2
export LLVM_PROFILE_FILE="$work/raw/%m-%p.profraw"
export MARTLET_ROOT_ACCESS_KEY=MARTLETTRAINACCESS MARTLET_ROOT_SECRET_KEY=martlet-train-secret-key
free_port() {
  python3 -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])'
}
is_ready() {
  python3 -c "import urllib.request as r; r.urlopen('http://127.0.0.1:$admin/readyz')" 2>/dev/null
}
port=$(free_port)
admin=$(free_port)
"$instrumented" server --data-dir "$work/data" --s3-address "127.0.0.1:$port" \
  --admin-address "127.0.0.1:$admin" >"$work/server.log" 2>&1 &
server=$!
for _ in $(seq 100); do
  is_ready && break
  kill -0 "$server" || { cat "$work/server.log" >&2; exit 1; }
  sleep 0.2
done
train() {
  echo "   $*" >&2
  "$instrumented" bench --json --endpoint "http://127.0.0.1:$port" \
    --duration "${TRAIN_SECONDS:-3}s" "$@" >/dev/null
}
train --op get --size 4KiB --presigned
train --op get --size 4KiB
train --op put --size 4KiB --objects 1000
train --op put --size 4KiB --objects 1000 --signed-payload
train --op put --size 256KiB --objects 100
train --op get --size 256KiB
train --op range --size 1MiB --object-size 16MiB
train --op put --size 64MiB --concurrency 4 --objects 8
train --op get --size 64MiB --concurrency 4
train --op list
train --op delete
train --op mixed --size 16KiB
kill -TERM "$server"
wait "$server" || true
server=
"$profdata" merge -o "$work/martlet.profdata" "$work"/raw/*.profraw
# Cargo compares flags, not the profile: each profile gets a name of its own.
profile=$target/$(sha256sum "$work/martlet.profdata" | cut -c 1-16).profdata
mv "$work/martlet.profdata" "$profile"

echo "3/3: building the optimised binary" >&2
build "-Cprofile-use=$profile" optimised
mkdir -p "$cache/dist"
cp "$target/optimised/$host/dist/martlet" "$cache/dist/martlet"
echo "$cache/dist/martlet"
