#!/usr/bin/env python3
"""Runs cargo-mutants on the functions of .cargo/mutants.toml, in a copy of the tree.

Each function gets other bodies, and each operator another one. Unit tests of the package must fail.
A mutant that survives needs a test, or a reason in survivors.toml. Caught mutants are kept until a
source of their package changes, so a run that was interrupted goes on. With --together, the mutants
of a package are in one build (together.py); those that can't be are left to a run without. Further
options go to cargo-mutants:

    functions.py --together --minutes 30 --file protocol/src/register.rs
"""

import argparse
import json
import os
import re
import signal
import subprocess
import sys
import time
import tomllib
from pathlib import Path

import together
import working_copy as copy

STATE = copy.FOLDER / "functions.json"
OUTPUT = copy.FOLDER / "functions"
OUTCOMES = ["caught", "unviable", "missed", "timeout"]
# A mutant has this many times the time of all tests without one.
PATIENCE = 5
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


def tool():
    """Path of cargo-mutants."""
    path = os.environ.get("CARGO_MUTANTS") or str(Path.home() / ".cache/martlet/tools/bin/cargo-mutants")
    if not Path(path).is_file():
        copy.fail(f"{path} is not there: run `make mutants-functions`, which installs it")
    return path


def of_files(files):
    """Options of cargo-mutants for some files; its own option adds to the files of the configuration."""
    return [option for file in files for option in ("--re", f"^{re.escape(file)}:")]


def listed(arguments):
    """Mutants as changes, by package."""
    command = [tool(), "mutants", "--list", "--json", "--workspace", "--colors", "never", *arguments]
    found = json.loads(subprocess.run(command, cwd=copy.ROOT, check=True, capture_output=True).stdout)
    packages, texts = {}, {}
    for it in found:
        lines = texts.setdefault(it["file"], (copy.ROOT / it["file"]).read_text().splitlines(keepends=True))
        begin, end = (
            sum(map(len, lines[: place["line"] - 1])) + place["column"] - 1
            for place in (it["span"]["start"], it["span"]["end"])
        )
        change = together.Change(it["name"], it["file"], begin, end, it["replacement"])
        packages.setdefault(it["package"], []).append(change)
    return packages


def filters_of(file):
    """Names of tests to run, from those beside a file to all: a list for each attempt."""
    parts = file.removesuffix(".rs").removesuffix("/mod").split("/")[2:]
    return [["::".join(parts[:length]) + "::"] for length in range(len(parts), 0, -1)] + [[]]


def run_together(arguments, state, sources, deadline):
    """Runs the mutants of each package in one build. Those that can't be are left without a result."""
    for package, changes in listed(arguments).items():
        left = [it for it in changes if it.key not in state["results"]]
        if not left or deadline.is_over():
            continue
        print(f"{package}: {len(left)} mutants in one build …", flush=True)
        log = copy.FOLDER / "logs" / f"together-functions-{package}.log"
        binary, built, apart = together.build(left, package, log)
        begun = time.monotonic()
        outcome, failed = together.run(binary, package, 0, [], 3600)
        if outcome != "survived":
            copy.fail(f"{package} fails without a mutant: {failed or outcome}")
        patience = 60 + PATIENCE * (time.monotonic() - begun)
        for change in built:
            if deadline.is_over():
                break
            for filters in filters_of(change.file):
                outcome, failed = together.run(binary, package, change.number, filters, patience)
                if outcome != "survived":
                    break
            name = {"found": "caught", "survived": "missed", "hung": "timeout"}[outcome]
            keep(state, sources, name, change.key)
            copy.write_state(STATE, state)
            print(f"  {name}{f' by {failed}' if failed else ''}: {change.key}", flush=True)
        for change in apart:
            print(f"  needs a build of its own: {change.key}", flush=True)
    copy.refresh()


def keep(state, sources, outcome, line):
    """Adds a result, by the line of a mutant."""
    file, change = PLACE.match(line).group("file", "change")
    state["results"][line] = {
        "outcome": outcome, "line": line, "file": file, "change": change, "sources": sources.of(package_of(file)),
    }


def run(arguments, minutes):
    """Runs cargo-mutants until it ends, or the time is over. Returns its exit code."""
    command = [
        tool(), "mutants", "--in-place", "--workspace", "--iterate", "--colors", "never", "--annotations", "none",
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
    """Mutants of an outcome, as printed."""
    path = OUTPUT / "mutants.out" / f"{name}.txt"
    return [line for line in path.read_text().splitlines() if PLACE.match(line)] if path.is_file() else []


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


def skip_caught(state):
    """Makes cargo-mutants skip the mutants that tests in one build caught."""
    path = OUTPUT / "mutants.out/previously_caught.txt"
    path.parent.mkdir(parents=True, exist_ok=True)
    caught = [line for line, it in state["results"].items() if it["outcome"] in ("caught", "timeout")]
    path.write_text("".join(f"{line}\n" for line in caught))


def package_of(file):
    """Folder of the package of a file."""
    return file.split("/")[0]


def report(state, sources):
    """Adds this run to the results, and prints them. Returns the exit code."""
    known, results = reasons(), state["results"]
    for name in OUTCOMES:
        for line in outcomes(name):
            keep(state, sources, name, line)
    copy.write_state(STATE, state)
    of = {name: [it for it in results.values() if it["outcome"] == name] for name in OUTCOMES}
    open_ones = [it for it in of["missed"] if (it["file"], it["change"]) not in known]
    print(f"\n{'file':<52} {'caught':>6} {'explained':>9} {'missed':>6} {'unviable':>8}")
    for file in sorted({it["file"] for it in results.values()}):
        count = {name: sum(it["file"] == file for it in found) for name, found in of.items()}
        missed = sum(it["file"] == file for it in open_ones)
        explained = count["missed"] - missed
        print(f"{file:<52} {count['caught'] + count['timeout']:>6} {explained:>9} {missed:>6} {count['unviable']:>8}")
    for it in open_ones:
        print(f"SURVIVED: {it['line']}")
    # An entry may name several mutants of one function.
    survivors = {(it["file"], it["change"]) for it in of["missed"]}
    stale = [it for it in of["caught"] if (it["file"], it["change"]) in known.keys() - survivors]
    for it in stale:
        print(f"caught, though survivors.toml explains its survival; remove the entry: {it['line']}")
    if open_ones:
        print("Write a test that fails with the mutant, or name the reason in tests/mutants/survivors.toml.")
    return 1 if open_ones or stale else 0


def main():
    parser = argparse.ArgumentParser(description="Run cargo-mutants on the functions of .cargo/mutants.toml.")
    parser.add_argument("--minutes", type=float, help="stop after so many minutes; the next run goes on")
    parser.add_argument("--file", action="append", default=[], help="take this file of .cargo/mutants.toml only; may be repeated")
    parser.add_argument("--together", action="store_true", help="build the mutants of a package once, where that compiles")
    parser.add_argument("--report", action="store_true", help="print the results so far")
    options, arguments = parser.parse_known_args()
    copy.refresh()
    sources, state = copy.Sources(), copy.read_state(STATE)
    forget_others(state, sources)
    if options.report:
        return report(state, sources)
    arguments += of_files(options.file)
    if options.together:
        run_together(arguments, state, sources, copy.Deadline(options.minutes))
        return report(state, sources)
    skip_caught(state)
    code = run(arguments, options.minutes)
    if code not in (None, 0, 2, 3):
        copy.fail(f"cargo-mutants ended with {code}; see {OUTPUT}/mutants.out")
    if code is None:
        print("the time is over: the same command goes on")
    copy.refresh()
    return report(state, sources)


if __name__ == "__main__":
    sys.exit(main())
