#!/usr/bin/env bash
# Lays out the files of all packages below DIST_OUT/stage, relative to a prefix such as /usr.
#
# Usage: DIST_OUT=FOLDER dist/stage.sh BINARY. The pages and completions are printed by BINARY itself. For
# a BINARY of another architecture, DIST_PAGES_BIN names one of the same version that runs here.
set -euo pipefail
. "$(dirname "$0")/environment.sh"
binary=$1
pages_by=${DIST_PAGES_BIN:-$binary}

rm -rf "$stage"
mkdir -p "$stage"/{bin,lib/systemd/system,etc/martlet} \
  "$stage"/share/{man/man1,bash-completion/completions,zsh/vendor-completions,fish/vendor_completions.d} \
  "$stage"/share/doc/martlet/{examples,observability/dashboards}

# The lines of the source go into a file of their own; names of functions stay, for backtraces.
objcopy=${OBJCOPY:-objcopy}
"$objcopy" --only-keep-debug "$binary" "$out/martlet.debug"
chmod 0644 "$out/martlet.debug"
"$objcopy" --strip-debug --remove-section=.comment "$binary" "$stage/bin/martlet"
(cd "$out" && "$objcopy" --add-gnu-debuglink=martlet.debug "$stage/bin/martlet")
chmod 0755 "$stage/bin/martlet"
bytes=$(stat -c %s "$stage/bin/martlet")
if [ "$bytes" -gt "${DIST_BYTES_MAX:-60000000}" ]; then
  echo "the binary has $bytes bytes, more than ${DIST_BYTES_MAX:-60000000}" >&2
  exit 1
fi

"$pages_by" man "$stage/share/man/man1"
gzip -9n "$stage"/share/man/man1/*.1
"$pages_by" completions bash > "$stage/share/bash-completion/completions/martlet"
"$pages_by" completions zsh > "$stage/share/zsh/vendor-completions/_martlet"
"$pages_by" completions fish > "$stage/share/fish/vendor_completions.d/martlet.fish"

install -m 0644 "$dist"/systemd/*.service "$stage/lib/systemd/system/"
install -m 0640 "$dist"/settings/server.toml "$dist"/settings/server.env "$stage/etc/martlet/"
install -m 0644 "$dist"/settings/node.toml "$dist"/settings/proxy.toml "$dist"/settings/proxy.env \
  "$dist"/settings/replicator.toml "$repository"/examples/embedded.rs "$stage/share/doc/martlet/examples/"
install -m 0644 "$repository"/docs/OPERATIONS.md "$repository"/docs/CLUSTER.md "$repository"/docs/RUNBOOKS.md \
  "$stage/share/doc/martlet/"
install -m 0644 "$dist"/observability/rules.yaml "$stage/share/doc/martlet/observability/"
install -m 0644 "$dist"/observability/dashboards/*.json "$stage/share/doc/martlet/observability/dashboards/"
