#!/usr/bin/env python3
"""Builds each planted mutant in a copy of the tree, and requires that its check fails.

The list is in planted/*.toml: one file for each kind. A mutant names a file, the text before and
after, and the check that must find it:

    unit PACKAGE FILTER…             unit tests of a package
    interleavings PACKAGE FILTER…    tests of a package that explore interleavings
    simulation objects|sets SEEDS    seeds 0 to SEEDS of the simulation
    power-cuts PACKAGE               power cuts of a device of the package under load

Results are kept in planted.json until a source of the package changes. A run that was interrupted
goes on. With --together, the mutants of a package are in one build (together.py).
"""

import argparse
import os
import re
import sys
import time
import tomllib
from collections import Counter

import together
import working_copy as copy

LISTS = copy.ROOT / "tests/mutants/planted"
STATE = copy.FOLDER / "planted.json"
SECONDS_MAX = 900
SIMULATION = {
    "objects": "all_consistency_rules_hold_under_faults",
    "sets": "checkpoints_are_whole_or_absent_under_faults",
}
POWER_CUTS = "acknowledged_writes_survive_power_cuts"
FOUND, SURVIVED, BROKEN, HUNG = "found", "SURVIVED", "DOES NOT BUILD", "HANGS"
# Seconds of a mutant of which nothing is known yet.
USUAL_SECONDS = 60


class Mutant:
    """A planted mutant."""

    def __init__(self, kind, table):
        self.kind = kind
        self.name, self.file = table["name"], table["file"]
        self.before, self.after = table["before"], table["after"]
        self.rule = table["rule"]
        self.check = tuple(table["found_by"].split())
        known = {"name", "file", "before", "after", "rule", "found_by", "fix"}
        if set(table) - known:
            copy.fail(f"{self.name}: unknown fields {sorted(set(table) - known)}")

    def mutated(self):
        """The file with the mutant; an error if the text is not there exactly once."""
        path = copy.ROOT / self.file
        text = path.read_text() if path.is_file() else ""
        times = text.count(self.before)
        if times != 1:
            copy.fail(
                f"{self.name} no longer applies: {self.file} has its text {times} times. Write the mutant anew for the "
                f"present code in tests/mutants/planted/{self.kind}.toml, or remove it if the code that it breaks is gone."
            )
        return text.replace(self.before, self.after)

    def change(self):
        """The mutant as a change of its file."""
        begin = (copy.ROOT / self.file).read_text().index(self.before)
        # Without the text around it that stays, which may reach beyond a function's body.
        head = len(os.path.commonprefix([self.before, self.after]))
        before, after = self.before[head:], self.after[head:]
        tail = len(os.path.commonprefix([before[::-1], after[::-1]]))
        end = begin + len(self.before) - tail
        return together.Change(self.key(), self.file, begin + head, end, after[: len(after) - tail])

    def key(self):
        """Identity of the mutant in the results."""
        return f"{self.kind}/{self.name}"

    def definition(self, sources):
        """What a result depends on."""
        return [self.file, self.before, self.after, " ".join(self.check), sources.of(folder_of(self.check))]


def load():
    """All mutants, those of one check side by side."""
    found = []
    for path in sorted(LISTS.glob("*.toml")):
        with path.open("rb") as file:
            found += [Mutant(path.stem, table) for table in tomllib.load(file)["mutant"]]
    doubled = [name for name, count in Counter(mutant.name for mutant in found).items() if count > 1]
    if doubled:
        copy.fail(f"two mutants have one name: {', '.join(doubled)}")
    return sorted(found, key=lambda mutant: (mutant.check[:2], mutant.file))


def folder_of(check):
    """Folder of the package whose tests a check runs."""
    return "tests" if check[0] == "simulation" else check[1].removeprefix("martlet-")


def command_of(check):
    """Command of a check, and its environment."""
    match check:
        case ("unit", package, *filters) if filters:
            return ["cargo", "test", "--locked", "--package", package, *copy.FEATURES, "--lib", "--", *filters], {}
        case ("interleavings", package, *filters) if filters:
            return ["cargo", "test", "--locked", "--package", package, "--features", "interleavings", "--lib", "--", *filters], {}
        case ("power-cuts", package):
            command = ["cargo", "test", "--locked", "--package", package, "--test", "node", "--", "--nocapture", POWER_CUTS]
            return command, {"MARTLET_POWER_CUT_IMAGES": "8", "MARTLET_POWER_CUTS": "15"}
        case ("simulation", subject, seeds) if subject in SIMULATION and seeds.isdigit():
            test = SIMULATION[subject]
            command = ["cargo", "test", "--locked", "--workspace", "--test", "simulation", "--", "--exact", test]
            return command, {"MARTLET_SIM_SEEDS": seeds, "MARTLET_SIM_SHRINK": "0"}
    return copy.fail(f"unknown check: {' '.join(check)}")


def run_check(check, log):
    """Runs a check. Returns its outcome, and the tests that failed or passed."""
    command, environment = command_of(check)
    code = copy.run(command, log, SECONDS_MAX, **environment)
    text = log.read_text(errors="replace")
    failed = re.findall(r"^test (.+?) \.\.\. FAILED$", text, re.M)
    passed = len(re.findall(r"^test .+? \.\.\. ok$", text, re.M))
    if code is None:
        return HUNG, failed, passed
    if "\nrunning " not in text:
        return BROKEN, failed, passed
    # A test that overflows its stack or aborts ends without a line of its own.
    return (SURVIVED if code == 0 else FOUND), failed, passed


def check_unmutated(mutants, state, sources):
    """Requires that all checks pass without a mutant, and that each filter names a test."""
    packages = {}
    for mutant in mutants:
        kind, subject, *rest = mutant.check
        packages.setdefault((kind, subject), set()).update(rest)
    for (kind, subject), rest in sorted(packages.items()):
        rest = [max(rest, key=int)] if kind == "simulation" else sorted(rest)
        check = (kind, subject, *rest)
        if state["passes"].get(" ".join(check)) == sources.of(folder_of(check)):
            continue
        print(f"without a mutant: {' '.join(check)} …", flush=True)
        begun = time.monotonic()
        log = copy.FOLDER / "logs" / f"unmutated-{subject}.log"
        outcome, failed, _ = run_check(check, log)
        if outcome != SURVIVED:
            copy.fail(f"{' '.join(check)} fails without a mutant: {', '.join(failed) or outcome}; see {log}")
        text = log.read_text(errors="replace")
        for word in [] if kind == "simulation" else rest:
            if not any(word in name for name in re.findall(r"^test (.+?) \.\.\. ok$", text, re.M)):
                copy.fail(f"no test of {subject} has the name {word}: correct found_by")
        print(f"  passes ({copy.shown(time.monotonic() - begun)})", flush=True)
        state["passes"][" ".join(check)] = sources.of(folder_of(check))
        copy.write_state(STATE, state)


def try_mutant(mutant, sources):
    """Builds a mutant in the copy, runs its check, and restores the file."""
    path = copy.TREE / mutant.file
    original = path.read_bytes()
    begun = time.monotonic()
    try:
        path.write_text(mutant.mutated())
        outcome, failed, passed = run_check(mutant.check, copy.FOLDER / "logs" / f"{mutant.name}.log")
    finally:
        path.write_bytes(original)
    return {
        "outcome": outcome, "by": failed[:5], "failed": len(failed), "passed": passed,
        "seconds": round(time.monotonic() - begun, 1), "of": mutant.definition(sources),
    }


def try_together(mutants, state, sources, deadline):
    """Plants the mutants of each package in one build. Those that can't be are left without a result."""
    packages = {}
    for mutant in mutants:
        if mutant.check[0] == "unit":
            packages.setdefault(mutant.check[1], []).append(mutant)
    for package, of_package in packages.items():
        if deadline.is_over():
            return
        print(f"{package}: {len(of_package)} mutants in one build …", flush=True)
        changes = {mutant.change(): mutant for mutant in of_package}
        log = copy.FOLDER / "logs" / f"together-{package}.log"
        binary, built, apart = together.build(list(changes), package, log)
        filters = sorted({word for change in built for word in changes[change].check[2:]})
        outcome, failed = together.run(binary, package, 0, filters, SECONDS_MAX)
        if outcome != "survived":
            copy.fail(f"{package} fails without a mutant: {failed or outcome}")
        for change in built:
            if deadline.is_over():
                break
            mutant, begun = changes[change], time.monotonic()
            log = copy.FOLDER / "logs" / f"{mutant.name}.log"
            outcome, failed = together.run(binary, package, change.number, mutant.check[2:], SECONDS_MAX, log)
            seconds = round(time.monotonic() - begun, 1)
            outcome = {"found": FOUND, "survived": SURVIVED, "hung": HUNG}[outcome]
            state["results"][mutant.key()] = {
                "outcome": outcome, "by": [failed] if failed else [], "seconds": seconds, "of": mutant.definition(sources),
            }
            copy.write_state(STATE, state)
            print(f"  {mutant.key()}: {outcome}{f' by {failed}' if failed else ''} ({copy.shown(seconds)})", flush=True)
        for change in apart:
            print(f"  {change.key} needs a build of its own", flush=True)
    copy.refresh()


def seconds_of(state):
    """Seconds of a mutant, by those that ran."""
    took = [result["seconds"] for result in state["results"].values()]
    return sum(took) / len(took) if took else USUAL_SECONDS


def report(mutants, state):
    """Prints the table of all kinds, and each mutant that was not found. Returns the exit code."""
    results = {mutant.key(): state["results"].get(mutant.key()) for mutant in mutants}
    print(f"\n{'kind':<16} {'mutants':>7} {'found':>6} {'missed':>6} {'not run':>8}")
    bad = []
    for kind in sorted({mutant.kind for mutant in mutants}):
        of_kind = [results[mutant.key()] for mutant in mutants if mutant.kind == kind]
        ran = [result for result in of_kind if result]
        found = [result for result in ran if result["outcome"] == FOUND]
        print(f"{kind:<16} {len(of_kind):>7} {len(found):>6} {len(ran) - len(found):>6} {len(of_kind) - len(ran):>8}")
    for mutant in mutants:
        result = results[mutant.key()]
        if result and result["outcome"] != FOUND:
            bad.append(mutant)
            print(f"{result['outcome']}: {mutant.key()} in {mutant.file}, by {' '.join(mutant.check)}; "
                  f"see {copy.FOLDER}/logs/{mutant.name}.log")
    left = sum(result is None for result in results.values())
    if left:
        print(f"{left} mutants are left: the same command goes on")
    return 1 if bad else 0


def main():
    parser = argparse.ArgumentParser(description="Build planted mutants, and require that their checks fail.")
    parser.add_argument("--minutes", type=float, help="begin no mutant after so many minutes")
    parser.add_argument("--list", action="store_true", help="list the mutants, and check that each applies")
    parser.add_argument("--again", action="store_true", help="forget the results of these mutants")
    parser.add_argument("--together", action="store_true", help="build the mutants of a package once, where that compiles")
    parser.add_argument("names", nargs="*", help="names or kinds of mutants (all)")
    options = parser.parse_args()
    every = load()
    for mutant in every:
        mutant.mutated()
    unknown = set(options.names) - {word for mutant in every for word in (mutant.name, mutant.kind)}
    if unknown:
        copy.fail(f"no mutant or kind has the name {', '.join(sorted(unknown))}")
    mutants = [it for it in every if not options.names or it.name in options.names or it.kind in options.names]
    if options.list:
        for mutant in mutants:
            print(f"{mutant.key():<60} {mutant.rule:<4} {' '.join(mutant.check)}")
        return 0
    deadline = copy.Deadline(options.minutes)
    copy.refresh()
    sources, state = copy.Sources(), copy.read_state(STATE)
    results = state["results"]
    for mutant in mutants:
        held = results.get(mutant.key())
        if held and (options.again or held["of"] != mutant.definition(sources)):
            del results[mutant.key()]
    left = [mutant for mutant in mutants if mutant.key() not in results]
    if options.together:
        try_together(left, state, sources, deadline)
        left = [mutant for mutant in left if mutant.key() not in results]
    check_unmutated(left, state, sources)
    for at, mutant in enumerate(left):
        if deadline.is_over():
            break
        eta = copy.shown(seconds_of(state) * (len(left) - at))
        print(f"[{at + 1}/{len(left)}] {mutant.key()} … (about {eta} left)", flush=True)
        result = results[mutant.key()] = try_mutant(mutant, sources)
        copy.write_state(STATE, state)
        by = f" by {result['by'][0]}" if result["by"] else ""
        print(f"  {result['outcome']}{by} ({copy.shown(result['seconds'])})", flush=True)
    return report(mutants, state)


if __name__ == "__main__":
    sys.exit(main())
