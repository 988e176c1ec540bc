#!/usr/bin/env bash
# Builds the OCI image of the staged binary, as one archive.
#
# Usage: DIST_OUT=FOLDER dist/oci.sh, after stage.sh. DIST_ROOT (/) is the system whose libraries the image gets.
set -euo pipefail
. "$(dirname "$0")/environment.sh"
exec python3 -B "$dist/oci.py" --binary "$stage/bin/martlet" --root "${DIST_ROOT:-/}" --architecture "$oci_arch" \
  --version "$version" --revision "$(git -C "$repository" rev-parse HEAD 2>/dev/null || echo unknown)" \
  --document "$repository/LICENSE" --document "$out/martlet.cdx.json" \
  --out "$out/martlet-$version-oci-$oci_arch.tar"
