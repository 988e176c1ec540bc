#!/usr/bin/env bash
# Runs a server against real brokers on loopback: nats-server, redis-server and rabbitmq-server of Debian, and Tansu,
# a broker that speaks Kafka's protocol. Arguments go to pytest.
#
# Missing packages of Debian are installed. Their services are not started: each test starts a broker of its own.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
venv=${MARTLET_CACHE:-$HOME/.cache/martlet}/venv-brokers
sudo=$([ "$(id -u)" = 0 ] || echo sudo)

missing=
for package in nats-server redis-server rabbitmq-server; do
    dpkg-query -W -f '${Status}' "$package" 2>/dev/null | grep -q 'ok installed' || missing="$missing $package"
done
if [ -n "$missing" ]; then
    echo "installing:$missing"
    # A script that denies starts keeps Debian from running the services.
    policy=/usr/sbin/policy-rc.d
    if [ ! -e "$policy" ]; then
        printf '#!/bin/sh\nexit 101\n' | $sudo tee "$policy" >/dev/null
        $sudo chmod 755 "$policy"
        trap '$sudo rm -f "$policy"' EXIT
    fi
    $sudo apt-get update -qq
    # shellcheck disable=SC2086
    $sudo apt-get install -y -qq --no-install-recommends $missing
fi
if ! cmp -s "$here/requirements.txt" "$venv/.requirements.txt"; then
    [ -x "$venv/bin/python" ] || python3 -m venv "$venv"
    "$venv/bin/pip" install --quiet --disable-pip-version-check -r "$here/requirements.txt"
    cp "$here/requirements.txt" "$venv/.requirements.txt"
fi
cd "$here"
PYTHONPATH=$here/../s3 "$venv/bin/python" -B -m pytest -p no:cacheprovider --rootdir "$here" -v "$@"
