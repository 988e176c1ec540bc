#!/usr/bin/env bash
# Builds all packages of a finished binary: tarball, Debian package, OCI image, bill of materials, checksums.
#
# Usage: DIST_OUT=FOLDER DIST_ROOT=FOLDER CARGO_CYCLONEDX=PROGRAM dist/build.sh BINARY
set -euo pipefail
here=$(dirname "$0")
. "$here/environment.sh"
binary=$1

rm -rf "$out"
mkdir -p "$out"
"$here/sbom.sh"
"$here/stage.sh" "$binary"
"$here/tarball.sh"
"$here/deb.sh"
"$here/oci.sh"
cd "$out"
mv martlet.cdx.json "martlet-$version.cdx.json"
rm -rf stage martlet.debug
sha256sum -- *.tar *.gz *.deb *.json > SHA256SUMS
ls -l "$out" >&2
