#!/bin/sh
# Prints the path of the binary of another release, for `make test-upgrade`. Its argument is a binary, a commit or a tag;
# without one the newest tag is taken. A commit is built in a work tree of its own, below MARTLET_CACHE.
set -eu

wanted=${1:-}
if [ -n "$wanted" ] && [ -f "$wanted" ]; then
    realpath "$wanted"
    exit
fi
if [ -z "$wanted" ]; then
    wanted=$(git describe --tags --abbrev=0 2>/dev/null) || {
        echo "no release has a tag yet: name a binary or a commit, as in make test-upgrade PREVIOUS=HEAD~20" >&2
        exit 2
    }
fi
commit=$(git rev-parse --verify --quiet "$wanted^{commit}") || {
    echo "$wanted is neither a file nor a commit: name the binary or the commit of another release with PREVIOUS" >&2
    exit 2
}
place=$MARTLET_CACHE/previous/$commit
if [ ! -x "$place/martlet" ]; then
    root=$(git rev-parse --show-toplevel)
    tree=$place/tree
    mkdir -p "$place"
    [ -d "$tree" ] || git worktree add --detach --quiet "$tree" "$commit" >&2
    ln -sfn "$(readlink -f "$root/.rocksdb")" "$tree/.rocksdb"
    (cd "$tree" && CARGO_TARGET_DIR=$place/target cargo build --locked --bin martlet) >&2
    cp "$place/target/debug/martlet" "$place/martlet"
    git worktree remove --force "$tree" >&2
    rm -rf "$place/target"
fi
echo "$place/martlet"
