#!/usr/bin/env bash
# Writes the bill of materials of the binary: every crate with version, license and source, as CycloneDX.
#
# Usage: DIST_OUT=FOLDER CARGO_CYCLONEDX=PROGRAM dist/sbom.sh. The program writes beside the manifests, so it gets a copy
# of the tree. Times and random numbers in its output are replaced: equal commits make equal bytes.
set -euo pipefail
. "$(dirname "$0")/environment.sh"
copy=$(mktemp -d "${TMPDIR:-/tmp}/martlet-sbom.XXXXXX")
trap 'rm -rf "$copy"' EXIT

git -C "$repository" ls-files -z | tar -C "$repository" --null -T - -cf - | tar -C "$copy" -xf -
(cd "$copy" && "$CARGO_CYCLONEDX" cyclonedx --quiet --format json --spec-version 1.5 --target "$machine-unknown-linux-gnu" \
  --override-filename sbom --manifest-path Cargo.toml)
python3 -B "$dist/sbom.py" "$copy/sbom.json" "$copy" "$version" > "$out/martlet.cdx.json"
echo "$out/martlet.cdx.json"
