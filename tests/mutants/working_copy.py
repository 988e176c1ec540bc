"""A copy of the working tree in which mutants are built. The working tree itself is never changed.

Layout of the folder MUTANTS_DIR (~/.cache/martlet/mutants):

    tree     the copy: the files that git knows, and those that it doesn't ignore
    target   what cargo builds there
    logs     output of each command
    *.json   results so far
"""

import hashlib
import json
import os
import shutil
import signal
import subprocess
import sys
import time
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
FOLDER = Path(os.environ.get("MUTANTS_DIR") or Path.home() / ".cache/martlet/mutants")
TREE = FOLDER / "tree"
# Files that decide about the outcome of a test.
SOURCES = (".rs", ".toml", ".txt", ".bin", ".json", ".proto")
# Folders of the package martlet-tests that the simulation doesn't use.
OTHER_TESTS = tuple(f"tests/{name}/" for name in ["brokers", "golden", "mutants", "prove", "s3"]) + tuple(
    f"tests/tests/{name}/" for name in ["cluster", "machines", "model", "server", "structure"]
)
# Features that other packages of the workspace turn on: a package alone doesn't build without them.
FEATURES = ["--features", "martlet-protocol/http,martlet-protocol/testing"]


# A run that is ended by SIGTERM ends its tests, and restores the file that it has changed.
signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))


def names():
    """Names of all files of the working tree, relative to its root."""
    command = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    listed = subprocess.run(command, cwd=ROOT, check=True, capture_output=True).stdout.decode()
    return sorted({name for name in listed.split("\0") if name and (ROOT / name).is_file()})


def refresh():
    """Makes the copy equal to the working tree.

    Files that are equal keep their times, so that cargo builds only what changed. A mutant that an
    interrupted run left behind differs, and is replaced.
    """
    there = names()
    for name in there:
        content, copy = (ROOT / name).read_bytes(), TREE / name
        if copy.is_file() and copy.read_bytes() == content:
            continue
        copy.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(ROOT / name, copy)
        shutil.copymode(ROOT / name, copy)
    known = set(there)
    for folder, folders, files in os.walk(TREE):
        folders[:] = [it for it in folders if not (Path(folder) / it).is_symlink()]
        for file in files:
            copy = Path(folder) / file
            if not copy.is_symlink() and str(copy.relative_to(TREE)) not in known:
                copy.unlink()
    link_rocksdb()


def needed(package):
    """Folders of a package of the workspace and of all packages of the workspace that it needs."""
    found, left = set(), [package]
    while left:
        folder = left.pop()
        if folder in found or not (ROOT / folder / "Cargo.toml").is_file():
            continue
        found.add(folder)
        manifest = tomllib.loads((ROOT / folder / "Cargo.toml").read_text())
        names = {**manifest.get("dependencies", {}), **manifest.get("dev-dependencies", {})}
        left += [name.removeprefix("martlet-") for name in names if name.startswith("martlet-")]
    return found


class Sources:
    """Hashes of what the tests of a package are built from. A result holds while its hash does."""

    def __init__(self):
        self.names, self.hashes = [name for name in names() if name.endswith(SOURCES)], {}

    def of(self, package):
        """Hash of a package, by its folder."""
        if package not in self.hashes:
            folders = tuple(f"{folder}/" for folder in needed(package))
            hasher = hashlib.sha256((ROOT / "Cargo.lock").read_bytes())
            for name in self.names:
                if name.startswith(folders) and not name.startswith(OTHER_TESTS):
                    hasher.update(f"{name}\0".encode())
                    hasher.update(hashlib.sha256((ROOT / name).read_bytes()).digest())
            self.hashes[package] = hasher.hexdigest()[:16]
        return self.hashes[package]


def link_rocksdb():
    """Links the RocksDB that `make rocksdb` built."""
    built, link = (ROOT / ".rocksdb").resolve(), TREE / ".rocksdb"
    if link.is_symlink() or link.exists():
        link.unlink()
    link.symlink_to(built)


def environment(**more):
    """Environment of cargo in the copy."""
    return {**os.environ, "CARGO_TARGET_DIR": str(FOLDER / "target"), "CARGO_TERM_COLOR": "never", **more}


def run(command, log, seconds, **more):
    """Runs a command in the copy, its output in a log. Returns its exit code; None after `seconds`.

    All processes of the command have ended when this returns.
    """
    log.parent.mkdir(parents=True, exist_ok=True)
    with log.open("wb") as output:
        process = subprocess.Popen(
            command, cwd=TREE, env=environment(**more), stdin=subprocess.DEVNULL, stdout=output,
            stderr=subprocess.STDOUT, start_new_session=True,
        )
        try:
            return process.wait(seconds)
        except subprocess.TimeoutExpired:
            return None
        finally:
            end_group(process)


def end_group(process):
    """Ends a process and its children, if any are left."""
    try:
        os.killpg(process.pid, signal.SIGKILL)
    except ProcessLookupError:
        pass
    process.wait()


def read_state(path):
    """Results so far."""
    try:
        return json.loads(path.read_text())
    except (FileNotFoundError, json.JSONDecodeError):
        return {"results": {}, "passes": {}}


def write_state(path, state):
    """Replaces the results on disk."""
    path.parent.mkdir(parents=True, exist_ok=True)
    before = path.with_suffix(".new")
    before.write_text(json.dumps(state, indent=1, sort_keys=True) + "\n")
    before.replace(path)


def shown(seconds):
    """A duration for people."""
    return f"{seconds:.0f} s" if seconds < 120 else f"{seconds / 60:.0f} min"


def fail(message):
    """Ends with an error of use or of the list."""
    print(f"mutants: {message}", file=sys.stderr)
    sys.exit(2)


class Deadline:
    """Time after which nothing new begins."""

    def __init__(self, minutes):
        self.at = None if minutes is None else time.monotonic() + minutes * 60

    def is_over(self):
        return self.at is not None and time.monotonic() >= self.at

    def left(self):
        """Seconds left; none without a bound."""
        return None if self.at is None else max(1.0, self.at - time.monotonic())
