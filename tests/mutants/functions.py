#!/usr/bin/env python3
"""Runs cargo-mutants on the functions of .cargo/mutants.toml, in a copy of the tree.

Each function gets other bodies, and each operator another one. Unit tests of the package must fail.
A mutant that survives needs a test, or a reason in survivors.toml. Caught mutants are kept until a
source of their package changes, so a run that was interrupted goes on. Further options go to
cargo-mutants:

    functions.py --minutes 30 --file protocol/src/register.rs
"""

import argparse
import os
import re
import signal
import subprocess
import sys
import tomllib
from pathlib import Path

import working_copy as copy

STATE = copy.FOLDER / "functions.json"
OUTPUT = copy.FOLDER / "functions"
REASONS = copy.ROOT / "tests/mutants/survivors.toml"
PLACE = re.compile(r"^(?P<file>[^:]+):\d+:\d+: (?P<change>.+)$")


def reasons():
    """Explained survivors: (file, change) with the reason."""
    with REASONS.open("rb") as file:
        listed = tomllib.load(file).get("survivor", [])
    for entry in listed:
        if set(entry) != {"file", "change", "reason"} or not (copy.ROOT / entry["file"]).is_file():
            copy.fail(f"survivors.toml: {entry} needs a file of the tree, a change and a reason")
    return {(entry["file"], entry["change"]): entry["reason"] for entry in listed}


def run(arguments, minutes):
    """Runs cargo-mutants until it ends, or the time is over. Returns its exit code."""
    tool = os.environ.get("CARGO_MUTANTS") or str(Path.home() / ".cache/martlet/tools/bin/cargo-mutants")
    if not Path(tool).is_file():
        copy.fail(f"{tool} is not there: run `make mutants-functions`, which installs it")
    command = [
        tool, "mutants", "--in-place", "--workspace", "--iterate", "--colors", "never", "--annotations", "none",
        "--output", str(OUTPUT), *arguments,
    ]
    OUTPUT.mkdir(parents=True, exist_ok=True)
    process = subprocess.Popen(command, cwd=copy.TREE, env=copy.environment(), start_new_session=True)
    try:
        return process.wait(minutes and minutes * 60)
    except (subprocess.TimeoutExpired, KeyboardInterrupt):
        # It ends its tests, and puts the file back.
        os.killpg(process.pid, signal.SIGINT)
        process.wait(60)
        return None
    finally:
        copy.end_group(process)


def outcomes(name):
    """Mutants of an outcome: (file, change) with the line as printed."""
    path = OUTPUT / "mutants.out" / f"{name}.txt"
    lines = path.read_text().splitlines() if path.is_file() else []
    return {(found["file"], found["change"]): line for line in lines if (found := PLACE.match(line))}


def forget_others(state, sources):
    """Forgets results of packages whose sources have changed."""
    results = state["results"]
    for key in [key for key, it in results.items() if it["sources"] != sources.of(package_of(it["file"]))]:
        del results[key]
    for name in ["caught", "unviable", "missed", "timeout", "previously_caught"]:
        path = OUTPUT / "mutants.out" / f"{name}.txt"
        if path.is_file():
            lines = path.read_text().splitlines()
            held = {it["line"] for it in results.values()}
            path.write_text("".join(f"{line}\n" for line in lines if line in held))


def package_of(file):
    """Folder of the package of a file."""
    return file.split("/")[0]


def report(state, sources):
    """Adds this run to the results, and prints them. Returns the exit code."""
    known, results = reasons(), state["results"]
    for name in ["caught", "unviable", "missed", "timeout"]:
        for (file, change), line in outcomes(name).items():
            results[f"{file}: {change}"] = {
                "outcome": name, "line": line, "file": file, "change": change, "sources": sources.of(package_of(file)),
            }
    copy.write_state(STATE, state)
    of = {name: [it for it in results.values() if it["outcome"] == name] for name in ["caught", "unviable", "missed", "timeout"]}
    open_ones = [it for it in of["missed"] if (it["file"], it["change"]) not in known]
    print(f"\n{'file':<52} {'caught':>6} {'explained':>9} {'missed':>6} {'unviable':>8}")
    for file in sorted({it["file"] for it in results.values()}):
        count = {name: sum(it["file"] == file for it in found) for name, found in of.items()}
        missed = sum(it["file"] == file for it in open_ones)
        explained = count["missed"] - missed
        print(f"{file:<52} {count['caught'] + count['timeout']:>6} {explained:>9} {missed:>6} {count['unviable']:>8}")
    for it in open_ones:
        print(f"SURVIVED: {it['line']}")
    stale = [it for it in of["caught"] if (it["file"], it["change"]) in known]
    for it in stale:
        print(f"caught, though survivors.toml explains its survival; remove the entry: {it['line']}")
    if open_ones:
        print("Write a test that fails with the mutant, or name the reason in tests/mutants/survivors.toml.")
    return 1 if open_ones or stale else 0


def main():
    parser = argparse.ArgumentParser(description="Run cargo-mutants on the functions of .cargo/mutants.toml.")
    parser.add_argument("--minutes", type=float, help="stop after so many minutes; the next run goes on")
    parser.add_argument("--report", action="store_true", help="print the results so far")
    options, arguments = parser.parse_known_args()
    copy.refresh()
    sources, state = copy.Sources(), copy.read_state(STATE)
    forget_others(state, sources)
    if options.report:
        return report(state, sources)
    code = run(arguments, options.minutes)
    if code not in (None, 0, 2, 3):
        copy.fail(f"cargo-mutants ended with {code}; see {OUTPUT}/mutants.out")
    if code is None:
        print("the time is over: the same command goes on")
    copy.refresh()
    return report(state, sources)


if __name__ == "__main__":
    sys.exit(main())
