# Sourced by scripts that need Debian's packages: `need COMMAND PACKAGE` for each, then `install_missing`.

missing=()

need() { # Notes the package of a command that is neither in PATH nor where root's commands are.
    command -v "$1" >/dev/null || [ -x "/usr/sbin/$1" ] || [ -x "/sbin/$1" ] || missing+=("$2")
}

install_missing() {
    [ ${#missing[@]} -gt 0 ] || return 0
    local sudo
    sudo=$([ "$(id -u)" = 0 ] || echo sudo)
    echo "installing: ${missing[*]}" >&2
    $sudo apt-get update -qq
    $sudo apt-get install -y -qq --no-install-recommends "${missing[@]}" >&2
}
