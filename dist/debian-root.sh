#!/usr/bin/env bash
# Makes a clean Debian of this machine's release in the cache, once, and prints its folder.
#
# The image takes its libraries and certificate authorities from it, and `make test-dist` installs into a copy:
# nothing of the machine that builds gets into either. Remove the folder for newer packages.
set -euo pipefail
cache=${MARTLET_CACHE:-$HOME/.cache/martlet}
codename=$(. /etc/os-release && echo "${VERSION_CODENAME:?}")
mirror=${DEBIAN_MIRROR:-http://deb.debian.org/debian}
security=${DEBIAN_SECURITY_MIRROR:-http://deb.debian.org/debian-security}
root=$cache/debian/$codename-$(dpkg --print-architecture)
if [ -d "$root" ]; then
  echo "$root"
  exit
fi

work=$root.partial.$$
trap 'umount "$work/proc" 2>/dev/null || true; rm -rf --one-file-system "$work"' EXIT
mkdir -p "$(dirname "$root")"
PATH=$PATH:/usr/sbin:/sbin debootstrap --variant=minbase --include=adduser,ca-certificates "$codename" "$work" "$mirror" >&2
printf 'deb %s %s main\ndeb %s %s-security main\n' "$mirror" "$codename" "$security" "$codename" > "$work/etc/apt/sources.list"
DEBIAN_FRONTEND=noninteractive chroot "$work" sh -c 'apt-get update -qq && apt-get upgrade -y -qq && apt-get clean' >&2
mv -T "$work" "$root"
trap - EXIT
echo "$root"
