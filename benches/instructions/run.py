"""Counts the instructions of S3 requests by callgrind, and compares them with counts.json.

Counts do not depend on the load or the speed of a machine, but on the compiler and on the instruction sets
of libraries that choose at run time: callgrind's CPU is always the same one. A count that rises by more than
3 % fails the run. --update writes the counts of this tree, for a change that costs more on purpose.
"""

import argparse
import json
import re
import subprocess
import sys
import tempfile
from pathlib import Path

COUNTS = Path(__file__).parent / "counts.json"
RISE_MAX = 0.03
MEASURED = "martlet_instructions::measured*"


def counted(binary, case):
    """Instructions of a request."""
    with tempfile.TemporaryDirectory(prefix="martlet-instructions-") as folder:
        dump = Path(folder) / "dump"
        requests = run(["valgrind", "--tool=callgrind", "--quiet", f"--toggle-collect={MEASURED}",
                        f"--callgrind-out-file={dump}", binary, case])
        total = re.search(r"^totals: (\d+)", dump.read_text(), re.MULTILINE)[1]
        return int(total) // int(requests)


def run(command):
    """What a command prints."""
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True)
    if done.returncode != 0:
        sys.exit(f"{' '.join(command)} failed")
    return done.stdout


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("binary", help="the built package martlet-instructions")
    parser.add_argument("--update", action="store_true", help="write the counts of this tree")
    arguments = parser.parse_args()
    counts = {case: counted(arguments.binary, case) for case in run([arguments.binary]).split()}
    kept = json.loads(COUNTS.read_text()) if COUNTS.exists() else {}
    risen = []
    print(f"{'request':24}{'instructions':>14}{'kept':>12}{'change':>9}")
    for name, count in counts.items():
        before = kept.get(name)
        change = count / before - 1 if before else 0.0
        print(f"{name:24}{count:14,}{before or 0:12,}{change:+9.1%}")
        if before is None or change > RISE_MAX:
            risen.append(name)
    if arguments.update:
        COUNTS.write_text(json.dumps(counts, indent=2) + "\n")
        print(f"wrote {COUNTS.name}")
    elif risen or kept.keys() != counts.keys():
        sys.exit(f"instructions: {', '.join(risen) or 'the cases'} cost more than {RISE_MAX:.0%} above"
                 f" {COUNTS.name}; find out why, or run `make instructions ARGS=--update` and say why in the commit")
    else:
        print(f"instructions: {len(counts)} counts ok")


if __name__ == "__main__":
    main()
