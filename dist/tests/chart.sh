#!/usr/bin/env bash
# Renders the chart with several values, and validates each object against Kubernetes' own schemas.
#
# With helm in the PATH (or in HELM), helm renders and lints; without, a renderer of Go's templates and sprig from
# Debian's packages. MARTLET_BIN, if set, is asked whether it knows all settings.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
cache=${MARTLET_CACHE:-$HOME/.cache/martlet}
venv=$cache/venv-chart
installed=$venv/.requirements.txt

if ! cmp -s "$here/requirements.txt" "$installed"; then
  [ -x "$venv/bin/python" ] || python3 -m venv "$venv"
  "$venv/bin/pip" install --quiet --disable-pip-version-check -r "$here/requirements.txt"
  cp "$here/requirements.txt" "$installed"
fi
helm=${HELM:-$(command -v helm || true)}
renderer=$cache/tools/bin/render-chart-$(sha256sum "$here/render/main.go" | cut -c1-12)
if [ -z "$helm" ] && [ ! -x "$renderer" ]; then
  mkdir -p "$(dirname "$renderer")"
  # The libraries lie where Debian's packages put them; nothing is fetched.
  (cd "$here/render" && GO111MODULE=off GOFLAGS= GOPATH=/usr/share/gocode GOCACHE="$cache/go" go build -o "$renderer" .)
fi
exec env HELM="$helm" RENDERER="$renderer" "$venv/bin/python" -B "$here/chart.py" "$here/../helm/martlet"
