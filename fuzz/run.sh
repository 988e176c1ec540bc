#!/usr/bin/env bash
# run.sh [TARGET…]: runs each fuzz target for FUZZ_SECONDS, and prints a closing line for each.
# Inputs that reach new code go to FUZZ_DIR/corpus, findings to FUZZ_DIR/findings, logs to FUZZ_DIR/logs.
set -uo pipefail
cd "$(dirname "$0")"

seconds=${FUZZ_SECONDS:-60}
names=("$@")
if [ "${#names[@]}" -eq 0 ]; then
  for target in targets/*.rs; do names+=("$(basename "$target" .rs)"); done
fi
mkdir -p "${FUZZ_DIR:?}/findings" "$FUZZ_DIR/logs"

code=0
closing=()
for name in "${names[@]}"; do
  if [ ! -x "$FUZZ_DIR/bin/$name" ]; then
    echo "there is no fuzz target $name" >&2
    exit 2
  fi
  grown="$FUZZ_DIR/corpus/$name"
  log="$FUZZ_DIR/logs/$name.log"
  mkdir -p "$grown" "corpus/$name"
  before=$(find "$FUZZ_DIR/findings" -name "$name-*" | wc -l)
  # Ten seconds for one input are a hang. 16 KiB are two chunks of the shortest upload in parts.
  "$FUZZ_DIR/bin/$name" -max_total_time="$seconds" -timeout=10 -rss_limit_mb=2048 -max_len=16384 \
    -print_final_stats=1 -artifact_prefix="$FUZZ_DIR/findings/$name-" ${FUZZ_ARGS:-} \
    "$grown" "corpus/$name" >"$log" 2>&1
  result=$?
  runs=$(sed -n 's/^stat::number_of_executed_units: *//p' "$log")
  covered=$(grep -oE 'cov: [0-9]+' "$log" | tail -n 1 | cut -d ' ' -f 2)
  found=$(($(find "$FUZZ_DIR/findings" -name "$name-*" | wc -l) - before))
  closing+=("fuzz: $name: ${runs:-?} runs, $(find "$grown" "corpus/$name" -type f | wc -l) inputs, ${covered:-?} edges, $seconds s, $found findings")
  echo "${closing[-1]}"
  if [ "$result" -ne 0 ] || [ "$found" -ne 0 ]; then
    code=1
    grep -vE '^(#[0-9]|INFO: )' "$log" | tail -n 30
  fi
done
echo "── closing lines ──"
printf '%s\n' "${closing[@]}"
exit "$code"
