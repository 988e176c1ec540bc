#!/usr/bin/env bash
# keep.sh [TARGET…]: minimises seeds, kept inputs and those of FUZZ_DIR/corpus into fuzz/corpus: at most
# FILES_MAX inputs and BYTES_MAX bytes of each target, of all sizes alike. Inputs with a name in words
# are past findings, and stay.
set -euo pipefail
cd "$(dirname "$0")"

files_max=${FILES_MAX:-240}
bytes_max=${BYTES_MAX:-250000}
names=("$@")
[ "${#names[@]}" -ne 0 ] || mapfile -t names < <(basename -s .rs targets/*.rs)
trap 'rm -rf "${merged:-}" "${seeds:-}"' EXIT
for name in "${names[@]}"; do
  merged=$(mktemp -d) seeds=$(mktemp -d)
  MARTLET_FUZZ_SEEDS=$seeds "${FUZZ_DIR:?}/bin/$name"
  mkdir -p "corpus/$name" "$FUZZ_DIR/corpus/$name"
  "$FUZZ_DIR/bin/$name" -merge=1 -timeout=10 -rss_limit_mb=2048 -max_len=16384 \
    "$merged" "$seeds" "corpus/$name" "$FUZZ_DIR/corpus/$name" >/dev/null 2>&1
  find "corpus/$name" -type f -regextype posix-extended -regex '.*/([0-9a-f]{40}|m[0-9]+)' -delete
  count=$(find "$merged" -type f | wc -l)
  step=$(((count + files_max - 1) / files_max))
  files=0 bytes=0
  while read -r size path; do
    files=$((files + 1)) bytes=$((bytes + size))
    [ "$files" -le "$files_max" ] && [ "$bytes" -le "$bytes_max" ] || break
    cp "$path" "corpus/$name/"
  done < <(find "$merged" -type f -printf '%s %p\n' | sort -n | awk -v "step=$step" 'step > 0 && NR % step == 0')
  echo "kept $(find "corpus/$name" -type f | wc -l) of $count inputs of $name"
  rm -rf "$merged" "$seeds"
done
