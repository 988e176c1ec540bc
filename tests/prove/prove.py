#!/usr/bin/env python3
"""Runs the machines that look for counterexamples in turns for so many hours, and counts what they did.

    prove.py HOURS [--only NAME…] [--without NAME…] [--table]

The machine with the least time so far has the next turn. Counts are kept in the tree, in
tests/prove/counts.json, and add up over runs and computers: a later run goes on with later seeds.
A turn counts once it has ended. A turn that fails is a counterexample, or a fault of the machine:
its output is kept in PROVE_DIR/findings (~/.cache/martlet/prove) for a person to look at. At the end
the table of docs/PROOF.md is written between its markers.
"""

import argparse
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

from machines import MACHINES

ROOT = Path(__file__).resolve().parents[2]
FOLDER = Path(os.environ.get("PROVE_DIR") or Path.home() / ".cache/martlet/prove")
STATE = ROOT / "tests/prove/counts.json"
PAGE = ROOT / "docs/PROOF.md"
# What a run writes itself.
WRITTEN = [f":!{path.relative_to(ROOT)}" for path in (STATE, PAGE)]
BEGIN, END = "<!-- prove: begin -->", "<!-- prove: end -->"
# Seconds of a turn: short enough that all machines have turns, long enough to start processes.
TURN_SECONDS = (20, 900)
# Turns within the hours given.
TURNS = 24
# A turn that takes longer than its share by this factor, and this much, hangs.
HANGS = (6, 1200)


def commit():
    """The commit that runs, marked if the tree differs from it."""
    def of(*arguments):
        return subprocess.run(["git", *arguments], cwd=ROOT, check=True, capture_output=True, text=True).stdout.strip()
    return of("rev-parse", "--short=10", "HEAD") + ("+" if of("status", "--porcelain", "--", ".", *WRITTEN) else "")


def read_state():
    """Counts so far."""
    try:
        return json.loads(STATE.read_text())
    except FileNotFoundError:
        return {"machines": {}, "findings": []}


def write_state(state):
    """Replaces the counts on disk."""
    FOLDER.mkdir(parents=True, exist_ok=True)
    new = STATE.with_suffix(".new")
    new.write_text(json.dumps(state, indent=1) + "\n")
    new.replace(STATE)


def run(command, environment, log, seconds):
    """Runs a command with its output in a log. Returns its exit code; None if it hangs."""
    log.parent.mkdir(parents=True, exist_ok=True)
    with log.open("wb") as output:
        process = subprocess.Popen(
            command, cwd=ROOT, env={**os.environ, **environment}, stdin=subprocess.DEVNULL, stdout=output,
            stderr=subprocess.STDOUT, start_new_session=True,
        )
        try:
            return process.wait(seconds)
        except subprocess.TimeoutExpired:
            return None
        finally:
            try:
                os.killpg(process.pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
            process.wait()


def prepare(machines):
    """Builds what the machines need. This time doesn't count."""
    for command in dict.fromkeys(command for machine in machines for command in machine.needs):
        print(f"{' '.join(command)} …", flush=True)
        if subprocess.run(command, cwd=ROOT, stdout=subprocess.DEVNULL).returncode != 0:
            print(f"prove: {' '.join(command)} failed: correct the build first", file=sys.stderr)
            sys.exit(2)


def take_turn(machine, state, seconds):
    """Runs a machine for about so many seconds, and counts what it did."""
    of = state["machines"].setdefault(machine.name, {"seconds": 0.0, "turns": 0, "failed": 0, "skipped": 0, "counts": {}})
    command, environment = machine.command(of["counts"], of.get("pace", 0), seconds)
    log = FOLDER / "logs" / f"{machine.name}.log"
    begun = time.monotonic()
    code = run(command, environment, log, HANGS[0] * seconds + HANGS[1])
    took = time.monotonic() - begun
    text = log.read_text(errors="replace")
    counts = machine.count(text)
    of["turns"] += 1
    of["commit"] = commit()
    if code == 0 and "SKIPPED" in text and not any(counts.values()):
        of["skipped"] += 1
        return f"skipped here: {re.search('SKIPPED.*', text).group(0)}"
    amount = counts.get(machine.unit, 0)
    if code == 0 and not amount:
        return "nothing is left to do"
    of["seconds"] += took
    for name, number in counts.items():
        of["counts"][name] = of["counts"].get(name, 0) + number
    machine.move_on(of["counts"], environment)
    if amount and code == 0:
        of["pace"] = amount / took
    if code == 0:
        return f"{amount:,} {machine.unit} in {took:.0f} s"
    of["failed"] += 1
    kept = FOLDER / "findings" / f"{machine.name}-{len(state['findings'])}.log"
    kept.parent.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(log, kept)
    state["findings"].append({
        "machine": machine.name, "commit": of["commit"], "exit": code, "log": kept.name, "command": command,
        "environment": {name: value for name, value in environment.items() if not value.startswith("/")},
    })
    return f"{'HANGS' if code is None else 'FAILS'}: {' '.join(f'{k}={v}' for k, v in environment.items())} {' '.join(command)}; see {kept}"


def least_used(machines, state):
    """The machine whose turn it is: the one with the least time."""
    return min(machines, key=lambda machine: state["machines"].get(machine.name, {}).get("seconds", 0.0))


def table(state):
    """Counts of all machines as a table of Markdown."""
    lines = ["| machine | hours | counted | failed turns | last commit |", "|---|---|---|---|---|"]
    for machine in MACHINES:
        of = state["machines"].get(machine.name)
        # An interrupted first turn has counted nothing.
        if of is None or not of["turns"]:
            lines.append(f"| {machine.title} | 0 | not run yet | | |")
            continue
        counted = machine.shown(of["counts"]) if of["seconds"] else "skipped: the machine lacks what it needs"
        lines.append(f"| {machine.title} | {of['seconds'] / 3600:.2f} | {counted} | {of['failed']} | `{of['commit']}` |")
    hours = sum(of["seconds"] for of in state["machines"].values()) / 3600
    lines += ["", f"{hours:.2f} hours in all, one machine at a time."]
    if state["findings"]:
        lines += ["", "Failed turns, each a counterexample, or a fault of this machine, until its output was read:", ""]
        for finding in state["findings"]:
            seeds = " ".join(f"`{name}={value}`" for name, value in finding["environment"].items())
            lines.append(f"* {finding['machine']} at `{finding['commit']}` {seeds}".rstrip())
    return "\n".join(lines)


def write_page(state):
    """Puts the table between the markers of docs/PROOF.md."""
    text = PAGE.read_text()
    if text.count(BEGIN) != 1 or text.count(END) != 1:
        print(f"prove: {PAGE} needs the lines {BEGIN} and {END}, once each", file=sys.stderr)
        sys.exit(2)
    before, rest = text.split(BEGIN)
    _, after = rest.split(END)
    PAGE.write_text(f"{before}{BEGIN}\n{table(state)}\n{END}{after}")


def interrupt(*_):
    """SIGTERM ends a run as Ctrl-C does."""
    raise KeyboardInterrupt


def main():
    signal.signal(signal.SIGTERM, interrupt)
    parser = argparse.ArgumentParser(description="Run the machines that look for counterexamples in turns.")
    names = [machine.name for machine in MACHINES]
    parser.add_argument("hours", type=float, help="hours in all, without those of builds")
    parser.add_argument("--only", nargs="+", choices=names, default=names, help="these machines alone")
    parser.add_argument("--without", nargs="+", choices=names, default=[], help="not these machines")
    parser.add_argument("--table", action="store_true", help="write the table, and run nothing")
    options = parser.parse_args()
    state = read_state()
    machines = [it for it in MACHINES if it.name in options.only and it.name not in options.without]
    if options.table or not machines:
        write_page(state)
        return 0
    prepare(machines)
    before = len(state["findings"])
    share = min(max(options.hours * 3600 / TURNS, TURN_SECONDS[0]), TURN_SECONDS[1])
    end = time.monotonic() + options.hours * 3600
    try:
        while (left := end - time.monotonic()) > TURN_SECONDS[0] / 2:
            machine = least_used(machines, state)
            print(f"{machine.name}: about {min(share, left):.0f} s, {left / 60:.0f} min left …", flush=True)
            before_turn = state["machines"].get(machine.name, {}).get("seconds", 0.0)
            print(f"  {take_turn(machine, state, min(share, left))}", flush=True)
            write_state(state)
            if state["machines"][machine.name]["seconds"] == before_turn:
                # Skipped, or without work: others have its turns.
                machines.remove(machine)
            if not machines:
                break
    except KeyboardInterrupt:
        print("interrupted: the turn under way counts nothing", flush=True)
    write_page(state)
    print(table(state))
    found = len(state["findings"]) - before
    if found:
        print(f"prove: {found} turns failed; see {FOLDER}/findings", file=sys.stderr)
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
