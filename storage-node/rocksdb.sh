#!/usr/bin/env bash
# Compiles RocksDB once, for every Cargo profile, and prints the folder of librocksdb.a.
#
# The source is that of the librocksdb-sys crate in Cargo.lock, so that header and library agree. Files
# are compiled in batches of BATCH: parsing RocksDB's headers once a batch instead of once a file takes
# a quarter of the time. The library lies in a folder named by all its inputs, so that a new version or
# flag compiles anew and an old one is found again. ROCKSDB_LIB_DIR, if set, names a library to use as is.
set -euo pipefail
cd "$(dirname "$0")/.."

BATCH=24
FLAGS=(-std=c++20 -O2 -fPIC -ffunction-sections -fdata-sections -w -include cstdint
  -DNDEBUG -DLZ4=1 -DHAVE_ALIGNED_NEW -DHAVE_UINT128_EXTENSION
  -DOS_LINUX -DROCKSDB_PLATFORM_POSIX -DROCKSDB_LIB_IO_POSIX -DROCKSDB_SCHED_GETCPU_PRESENT
  -DROCKSDB_AUXV_GETAUXVAL_PRESENT -DROCKSDB_FALLOCATE_PRESENT -DROCKSDB_RANGESYNC_PRESENT)
# RocksDB computes the CRC32C of its log in hardware: SSE 4.2 and PCLMUL are in every x86-64 server,
# the CRC and AES extensions in every ARM one.
machine=${ROCKSDB_MACHINE:-$(uname -m)}
case "$machine" in
  x86_64) FLAGS+=(-msse4.2 -mpclmul) ;;
  aarch64) FLAGS+=(-march=armv8-a+crc+aes+crypto) ;;
esac

# ROCKSDB_CXX and ROCKSDB_MACHINE name the compiler and the architecture of a build for another machine.
export compiler=${ROCKSDB_CXX:-c++}

if [ -n "${ROCKSDB_LIB_DIR:-}" ]; then
  echo "$ROCKSDB_LIB_DIR"
  exit
fi

cache=${MARTLET_CACHE:-$HOME/.cache/martlet}
cargo fetch --locked --quiet >&2
# The folder of a package's source, by name: cargo keeps the path of its manifest.
folder_of() {
  cargo metadata --locked --offline --format-version 1 --filter-platform "$(rustc -vV | sed -n 's/^host: //p')" |
    python3 -c 'import json, os, sys
print(next(os.path.dirname(p["manifest_path"]) for p in json.load(sys.stdin)["packages"] if p["name"] == sys.argv[1]))' "$1"
}
sys=$(folder_of librocksdb-sys)
lz4=$(folder_of lz4-sys)/liblz4/lib
key=$( { basename "$sys"; echo "$BATCH ${FLAGS[*]}"; "$compiler" --version; echo "$machine"; } | sha256sum | cut -c1-16)
out=$cache/rocksdb/$key
if [ -f "$out/librocksdb.a" ]; then
  echo "$out"
  exit
fi

work=$out.partial.$$
trap 'rm -rf "$work"' EXIT
mkdir -p "$work"
mapfile -t sources < <(grep -v '^util/build_version.cc$' "$sys/rocksdb_lib_sources.txt" | sed "s|^|$sys/rocksdb/|")
sources+=("$sys/build_version.cc")
batches=0
for ((i = 0; i < ${#sources[@]}; i += BATCH)); do
  printf '#include "%s"\n' "${sources[@]:i:BATCH}" > "$work/$(printf %02d $batches).cc"
  batches=$((batches + 1))
done
echo "compiling RocksDB, once: ${#sources[@]} files in $batches batches on $(nproc) cores" >&2
compile() {
  "$compiler" "${@:2}" -c "$1" -o "${1%.cc}.o" && echo "  RocksDB: $(basename "$1" .cc) done" >&2
}
export -f compile
printf '%s\0' "$work"/*.cc | xargs -0 -P "$(nproc)" -I{} bash -c 'compile "$@"' _ {} \
  "${FLAGS[@]}" -I"$sys" -I"$sys/rocksdb/include" -I"$sys/rocksdb" -I"$lz4"
ar crs "$work/librocksdb.a" "$work"/*.o
rm "$work"/*.cc "$work"/*.o
mv -T "$work" "$out" 2>/dev/null || [ -f "$out/librocksdb.a" ]
echo "$out"
