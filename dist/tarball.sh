#!/usr/bin/env bash
# Packs the staged files as a tarball for any Linux with the C library's symbols, to unpack below /usr/local.
#
# Usage: DIST_OUT=FOLDER dist/tarball.sh, after stage.sh.
set -euo pipefail
. "$(dirname "$0")/environment.sh"
name=martlet-$version-linux-$machine
tree=$out/$name

rm -rf "$tree"
cp -a "$stage" "$tree"
# Shells search other folders below /usr/local than below /usr.
mv "$tree/share/zsh/vendor-completions" "$tree/share/zsh/site-functions"
sed -i 's,/usr/bin/martlet,/usr/local/bin/martlet,' "$tree"/lib/systemd/system/*.service
install -m 0644 "$repository"/LICENSE "$repository"/CHANGELOG.md "$repository"/docs/INSTALL.md "$tree/share/doc/martlet/"
install -m 0644 "$out/martlet.cdx.json" "$tree/share/doc/martlet/"
pack "$tree" "$out/$name.tar.gz" "$name"
rm -rf "$tree"
gzip -9nc "$out/martlet.debug" > "$out/$name.debug.gz"
echo "$out/$name.tar.gz"
