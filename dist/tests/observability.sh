#!/usr/bin/env bash
# Runs a Python program of dist/observability or dist/tests with its packages, and with Debian's Prometheus in PATH.
#
# Usage: observability.sh PROGRAM.py [ARGUMENT …]
#
# Without `prometheus` in the PATH, Debian's package is unpacked into the cache. Nothing is installed or started.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
cache=${MARTLET_CACHE:-$HOME/.cache/martlet}
venv=$cache/venv-observability
requirements=$here/../observability/requirements.txt

if ! cmp -s "$requirements" "$venv/.requirements.txt"; then
  [ -x "$venv/bin/python" ] || python3 -m venv "$venv"
  "$venv/bin/pip" install --quiet --disable-pip-version-check -r "$requirements"
  cp "$requirements" "$venv/.requirements.txt"
fi
if ! command -v prometheus promtool >/dev/null; then
  unpacked=$cache/tools/prometheus
  if [ ! -x "$unpacked/usr/bin/promtool" ]; then
    folder=$(mktemp -d)
    trap 'rm -rf "$folder"' EXIT
    chmod 755 "$folder"
    (cd "$folder" && { apt-get download -qq -o APT::Sandbox::User=root prometheus || { apt-get update -qq && apt-get download -qq -o APT::Sandbox::User=root prometheus; }; })
    mkdir -p "$unpacked"
    dpkg-deb -x "$folder"/prometheus_*.deb "$unpacked"
    rm -rf "$folder"
    trap - EXIT
  fi
  export PATH=$unpacked/usr/bin:$PATH
fi
export PYTHONPATH=$here/../observability:$here
exec "$venv/bin/python" -B "$@"
