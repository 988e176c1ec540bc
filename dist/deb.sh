#!/usr/bin/env bash
# Builds the Debian package of the staged files, and checks it with lintian.
#
# Usage: DIST_OUT=FOLDER dist/deb.sh, after stage.sh. DIST_REVISION (1) is the package's own revision.
set -euo pipefail
. "$(dirname "$0")/environment.sh"
maintainer=${DIST_MAINTAINER:-Martlet developers <packages@martlet.invalid>}
full=$version-${DIST_REVISION:-1}
tree=$out/deb/martlet-$version

rm -rf "$out/deb"
mkdir -p "$tree/debian"
cp "$dist"/deb/* "$tree/debian/"
chmod 0755 "$tree/debian/rules"
sed -i "s|@MAINTAINER@|$maintainer|" "$tree/debian/control"
cat > "$tree/debian/changelog" <<EOF
martlet ($full) unstable; urgency=medium

  * Version $version; see CHANGELOG.md.

 -- $maintainer  $(date -Rd "@$SOURCE_DATE_EPOCH")
EOF
cp "$repository/CHANGELOG.md" "$tree/CHANGELOG.md"
cp "$out/martlet.cdx.json" "$stage/share/doc/martlet/"
cp -a "$stage" "$tree/usr"
mv "$tree/usr/etc" "$tree/etc"
# debhelper of Debian 12 looks for units in this folder alone.
mv "$tree/usr/lib" "$tree/lib"
printf '%s\n' usr lib etc > "$tree/debian/martlet.install"
printf '%s\n' CHANGELOG.md > "$tree/debian/martlet.changelogs"

host=$(dpkg --print-architecture)
flags=()
if [ "$host" != "$debian_arch" ]; then
  # The cross compiler's libraries say which versions the binary needs.
  flags=("-a$debian_arch")
  export SHLIBDEPS_FLAGS=-l/usr/$machine-linux-gnu/lib DEB_BUILD_OPTIONS=nocheck
fi
(cd "$tree" && dpkg-buildpackage -b -d -us -uc --no-pre-clean "${flags[@]}") > "$out/deb/log" 2>&1 ||
  { cat "$out/deb/log" >&2; exit 1; }
package=martlet_${full}_$debian_arch.deb
lintian --allow-root --fail-on error,warning --suppress-tags-from-file "$dist/deb/suppressed" "$out/deb/$package"
mv "$out/deb/$package" "$out/"
rm -rf "$out/deb"
echo "$out/$package"
