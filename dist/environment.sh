# Values that every step of packaging shares: version, architecture, time and place. Sourced.

dist=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
repository=$(dirname "$dist")
version=${DIST_VERSION:-$(sed -n '/^\[workspace.package\]/,/^\[/s/^version = "\(.*\)"/\1/p' "$repository/Cargo.toml")}
machine=${DIST_MACHINE:-$(uname -m)}
case "$machine" in
  x86_64) debian_arch=amd64 oci_arch=amd64 ;;
  aarch64) debian_arch=arm64 oci_arch=arm64 ;;
  *) echo "there are no packages for $machine" >&2; exit 2 ;;
esac
# Every time in a package is the commit's, so that two builds of one commit are equal.
SOURCE_DATE_EPOCH=${SOURCE_DATE_EPOCH:-$(git -C "$repository" log -1 --format=%ct)}
export SOURCE_DATE_EPOCH
out=${DIST_OUT:?the folder for the packages}
stage=$out/stage
export LC_ALL=C TZ=UTC
umask 022

# A tar archive of a folder: names sorted, owned by root, nothing younger than the commit.
pack() { # FOLDER ARCHIVE.tar.gz TOP
  tar --sort=name --owner=0 --group=0 --numeric-owner --mtime="@$SOURCE_DATE_EPOCH" --format=gnu \
    --transform="s,^\.,$3," -C "$1" -cf - . | gzip -9n > "$2"
}
