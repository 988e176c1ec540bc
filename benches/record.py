"""Records of benchmark runs: the figures, the tree and the machine, as JSON in `benches/results`."""

import json
import os
import platform
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent


def add_argument(parser):
    """Adds `--record FILE` to a benchmark's arguments."""
    parser.add_argument("--record", type=Path, metavar="FILE",
                        help="also write the figures, the commit and the machine to a JSON file")


def save(path, figures):
    """Writes figures with what they were measured on. Does nothing without a path."""
    if path is None:
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    record = {"command": command(sys.argv), "tree": tree(), "machine": machine(),
              "ended": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()), "figures": figures}
    path.write_text(json.dumps(record, ensure_ascii=False, indent=1) + "\n")


def command(given):
    """The command without folders and files of this machine."""
    left_out = {at + offset for at, word in enumerate(given) if word in ("--record", "--dir") for offset in (0, 1)}
    kept = [word for at, word in enumerate(given) if at not in left_out]
    return [Path(given[0]).name, *(word for word in kept[1:] if not word.startswith(("--record=", "--dir=")))]


def tree():
    """The commit, and files that differ from it in code that is measured."""
    def git(*arguments):
        reply = subprocess.run(["git", "-C", str(ROOT), *arguments], stdout=subprocess.PIPE, text=True, check=False)
        return reply.stdout.strip() if reply.returncode == 0 else ""

    changed = git("status", "--porcelain", "--untracked-files=no", "--", "*.rs", "*.toml", "*.lock", "benches/*.py")
    return {"commit": git("rev-parse", "--short=10", "HEAD"), "changed": [line[2:].strip() for line in changed.splitlines()]}


def machine():
    """Processor, kernel, cores and memory."""
    info = Path("/proc/cpuinfo").read_text() if Path("/proc/cpuinfo").exists() else ""
    named = [line.split(":", 1)[1].strip() for line in info.splitlines() if line.startswith("model name")]
    flags = next((line for line in info.splitlines() if line.startswith("flags")), "").split()
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return {"processor": named[0] if named else platform.machine(), "cores": os.cpu_count(),
            "vectors": [flag for flag in ("avx2", "avx512f") if flag in flags],
            "kernel": platform.release(), "memory_gib": round(memory / (1 << 30), 1)}
