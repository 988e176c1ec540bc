#!/usr/bin/env bash
# Runs the loads that the distribution binary is optimised for, against a server of an instrumented binary.
#
# Usage: dist/train.sh BINARY FOLDER. Counts of the server and of the load generator lie in FOLDER afterwards.
# Each load runs for a fixed time; only the ratios of counts matter.
set -euo pipefail
binary=$1 counts=$2

work=$(mktemp -d "${TMPDIR:-/tmp}/martlet-train.XXXXXX")
server=
finish() {
  [ -z "$server" ] || kill "$server" 2>/dev/null || true
  [ -z "$server" ] || wait "$server" 2>/dev/null || true
  rm -rf "$work"
}
trap finish EXIT

port() { python3 -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])'; }
secret() { head -c 24 /dev/urandom | od -An -tx1 | tr -d ' \n'; }

# A key pair that lives as long as this run.
MARTLET_ROOT_ACCESS_KEY=TRAIN$(secret | cut -c1-15 | tr a-f A-F)
MARTLET_ROOT_SECRET_KEY=$(secret)
export MARTLET_ROOT_ACCESS_KEY MARTLET_ROOT_SECRET_KEY
export LLVM_PROFILE_FILE="$counts/%p-%m.profraw"
s3=$(port) admin=$(port)
MARTLET_DATA_DIR=$work/data MARTLET_S3_ADDRESS=127.0.0.1:$s3 MARTLET_ADMIN_ADDRESS=127.0.0.1:$admin \
  "$binary" server > "$work/log" 2>&1 &
server=$!
for _ in $(seq 600); do
  curl -sf "http://127.0.0.1:$admin/readyz" >/dev/null && break
  kill -0 "$server" 2>/dev/null || { cat "$work/log" >&2; exit 1; }
  sleep 0.1
done

load() { "$binary" bench --json --endpoint "http://127.0.0.1:$s3" --duration "${SECONDS_EACH:-5s}" "$@" >/dev/null; }
load --op get --size 4KiB --objects 4096
load --op get --size 4KiB --objects 4096 --presigned
load --op put --size 4KiB
load --op put --size 4KiB --chunked
load --op put --size 64KiB --objects 1000
load --op overwrite --size 1MiB --objects 200
load --op put --size 64MiB --concurrency 4 --objects 8
load --op get --size 64MiB --concurrency 4 --objects 4
load --op range --size 1MiB --object-size 64MiB --objects 4
load --op list --size 1KiB --objects 5000 --concurrency 4
load --op delete --size 1KiB --objects 20000
load --op mixed --size 16KiB --objects 1000

# Counts are written when a process ends.
kill -TERM "$server"
wait "$server" || true
server=
