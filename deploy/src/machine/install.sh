#!/bin/sh
# Takes the settings beside this script into use: owner, unit, start. Written by `martlet cluster apply`.
# Run as root on the machine, in /etc/martlet; run again after each change.
set -eu
cd "$(dirname "$0")"
if ! getent passwd martlet > /dev/null; then
    echo "there is no user martlet: install the package, or run
useradd --system --user-group --home-dir /var/lib/martlet --shell /usr/sbin/nologin martlet" >&2
    exit 1
fi
for device in @DEVICES@; do
    if [ ! -d "$device" ]; then
        echo "there is no folder $device: mount the disk there first" >&2
        exit 1
    fi
    chown martlet:martlet "$device"
done
chown -R martlet:martlet .
chmod 0700 .
install -d -o martlet -g martlet -m 0700 @STATE@
install -m 0644 martlet-node.service /etc/systemd/system/martlet-node.service
systemctl daemon-reload
systemctl enable martlet-node.service
systemctl restart martlet-node.service
