#!/bin/bash
# Runs inside of a booted machine, as a unit of its own: uses martlet.service as an operator does, and notes what it finds as
# NAME=VALUE in /probe.log. Ends with the machine.
exec > /probe.log 2>&1
trap 'systemctl poweroff' EXIT

note() { echo "$1=${*:2}"; }
property() { systemctl show --property "$1" --value martlet; }
journal() { journalctl --no-pager --output cat --unit martlet; }
request() { # METHOD PATH [CURL'S ARGUMENTS]
  curl -s --aws-sigv4 aws:amz:us-east-1:s3 --user "$MARTLET_ROOT_ACCESS_KEY:$MARTLET_ROOT_SECRET_KEY" \
    -H x-amz-content-sha256:UNSIGNED-PAYLOAD -X "$1" "http://127.0.0.1:9000$2" "${@:3}"
}

ip link set lo up
note enabled_by_installation "$(systemctl is-enabled martlet) $(systemctl is-active martlet)"
systemctl enable --now martlet
note active "$(systemctl is-active martlet)"
note ready "$(curl -s -o /dev/null -w '%{http_code}' http://127.0.0.1:9001/readyz)"
sleep 3
note status "$(property StatusText)"
set -a; . /var/lib/martlet/credentials; set +a
note secrets_in_journal "$(journal | grep -c -e "$MARTLET_ROOT_SECRET_KEY" -e "$MARTLET_ROOT_ACCESS_KEY")"
note path_in_journal "$(journal | grep -c /var/lib/martlet/credentials)"
head -c 3000000 /dev/urandom > /tmp/body
note made "$(request PUT /box -o /dev/null -w '%{http_code}')"
note put "$(request PUT /box/k --data-binary @/tmp/body -o /dev/null -w '%{http_code}')"
same() { request GET /box/k | cmp -s - /tmp/body && echo yes || echo no; }
note same "$(same)"
before=$(property MainPID)
note privileges "$(grep -hE '^(NoNewPrivs|CapEff|Seccomp):' "/proc/$before/status" | tr -s '\n\t ' ' ')"
note user "$(stat -c %U "/proc/$before")"
note files "$(awk '/open files/ { print $5 }' "/proc/$before/limits")"
dpkg -i /later.deb
after=$(property MainPID)
note restarted_by_upgrade "$([ "$before" != "$after" ] && systemctl is-active martlet)"
note same_after_upgrade "$(same)"
kill -9 "$after"
for _ in $(seq 60); do [ "$(systemctl is-active martlet)" = active ] && [ "$(property MainPID)" != "$after" ] && break; sleep 0.5; done
note same_after_kill "$(same)"
echo 'nonsense = 1' >> /etc/martlet/server.toml
systemctl restart martlet
note wrong_settings "$(property ExecMainStatus) $(property NRestarts)"
sed -i '/^nonsense/d' /etc/martlet/server.toml
systemctl reset-failed martlet
systemctl start martlet
note corrected "$(systemctl is-active martlet)"
apt-get remove -y -q martlet
note running_after_removal "$(cat /proc/[0-9]*/comm 2>/dev/null | grep -cx martlet)"
note data_after_removal "$([ -s /var/lib/martlet/master.key ] && echo yes)"
note end reached
