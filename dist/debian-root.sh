#!/usr/bin/env bash
# Makes a clean Debian of this machine's release in the cache, once, and prints its folder.
#
# The image takes its libraries and certificate authorities from it, and `make test-dist` installs into a copy:
# nothing of the machine that builds gets into either. Remove the folder for newer packages.
#
# Usage: dist/debian-root.sh [booting]; `booting` is one with systemd, and curl as a client.
set -euo pipefail
cache=${MARTLET_CACHE:-$HOME/.cache/martlet}
codename=$(. /etc/os-release && echo "${VERSION_CODENAME:?}")
mirror=${DEBIAN_MIRROR:-http://deb.debian.org/debian}
security=${DEBIAN_SECURITY_MIRROR:-http://deb.debian.org/debian-security}
root=$cache/debian/$codename-$(dpkg --print-architecture)${1:+-$1}
if [ -d "$root" ]; then
  echo "$root"
  exit
fi

work=$root.partial.$$
trap 'rm -rf --one-file-system "$work"' EXIT
mkdir -p "$(dirname "$root")"
inside() { DEBIAN_FRONTEND=noninteractive chroot "$work" sh -c "$1 && apt-get clean" >&2; }
if [ "${1:-}" = booting ]; then
  base=$("$0")
  cp -a "$base" "$work"
  cp /etc/resolv.conf "$work/etc/resolv.conf"
  inside "apt-get update -qq && apt-get install -y -qq --no-install-recommends systemd systemd-sysv dbus curl iproute2"
else
  PATH=$PATH:/usr/sbin:/sbin debootstrap --variant=minbase --include=adduser,ca-certificates "$codename" "$work" "$mirror" >&2
  printf 'deb %s %s main\ndeb %s %s-security main\n' "$mirror" "$codename" "$security" "$codename" > "$work/etc/apt/sources.list"
  inside "apt-get update -qq && apt-get upgrade -y -qq"
fi
mv -T "$work" "$root"
trap - EXIT
echo "$root"
