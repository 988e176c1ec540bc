"""Machines that look for counterexamples: how each is started, and how its output is counted.

With one thread, a test's first line stands behind its name: patterns match within lines.
"""

import os
import re
import shutil
from dataclasses import dataclass, field
from pathlib import Path

HOME = Path.home() / ".cache/martlet"
TARGET = Path(os.environ.get("CARGO_TARGET_DIR") or HOME / "target")
CARGO = ["cargo", "test", "--workspace", "--locked"]
SLOW = ["--", "--ignored", "--nocapture", "--test-threads", "1"]
BINARY = {"MARTLET_BIN": str(TARGET / "debug/martlet")}
BUILD_TESTS = ("make", "--no-print-directory", "build-tests")
# The first seed: `make test` runs those below.
FIRST_SEED = 1000


def total(pattern, text):
    """Sum of the numbers that a pattern finds."""
    return sum(float(number) if "." in number else int(number) for number in re.findall(pattern, text, re.M))


@dataclass
class Machine:
    """A machine, run for about some seconds by a command."""

    name: str
    title: str
    # What is counted first, and sets the pace.
    unit: str
    needs: list = field(default_factory=lambda: [BUILD_TESTS])

    def command(self, counts, pace, seconds):
        """The command of a turn, and its environment. `pace` are units a second so far, or 0."""
        raise NotImplementedError

    def count(self, text):
        """Counts of a turn, by its output."""
        raise NotImplementedError

    def move_on(self, counts, environment):
        """Records where the next turn begins."""

    def shown(self, counts):
        """Counts for the table."""
        return ", ".join(f"{number:,.0f} {name}" for name, number in counts.items() if not name.startswith("next"))


def amount(pace, seconds, first):
    """Units of a turn of so many seconds: `first` ones while no pace is known."""
    return max(1, round(pace * seconds)) if pace else first


class Simulation(Machine):
    """Seeds of the simulation, each once."""

    def __init__(self, name, title, test, first):
        super().__init__(name, title, "seeds")
        self.test, self.first = test, first

    def command(self, counts, pace, seconds):
        seeds = amount(pace, seconds, self.first)
        environment = {"MARTLET_SIM_FIRST": str(counts.get("next seed", FIRST_SEED)), "MARTLET_SIM_SEEDS": str(seeds)}
        return [*CARGO, "--test", "simulation", "--", "--exact", self.test, "--nocapture"], environment

    def count(self, text):
        return {
            "seeds": total(r"(\d+) seeds from \d+ on: ", text),
            "operations": total(r" on: (\d+) operations of clients", text),
            "simulated hours": total(r"([\d.]+) simulated hours of load", text),
        }

    def move_on(self, counts, environment):
        counts["next seed"] = int(environment["MARTLET_SIM_FIRST"]) + int(environment["MARTLET_SIM_SEEDS"])


class Interleavings(Machine):
    """Interleavings of threads, drawn anew in each turn."""

    def command(self, counts, pace, seconds):
        # Eight tests, each by two schedulers.
        runs = amount(pace / 16, seconds, 10_000)
        command = ["cargo", "test", "--locked", "--package", "martlet-storage-node", "--features", "interleavings", "--lib"]
        return [*command, "--", "--nocapture", "interleavings::"], {"MARTLET_INTERLEAVINGS": str(runs)}

    def count(self, text):
        return {"interleavings": total(r"\bexplored (\d+) interleavings", text)}


class Model(Machine):
    """Random sequences of requests to a server and to a cluster, from random seeds on."""

    def command(self, counts, pace, seconds):
        sequences = amount(pace / 2, seconds, 20)
        command = [*CARGO, "--test", "model", "--", "--nocapture", "--test-threads", "1", "answers_as_the_model"]
        return command, {**BINARY, "MARTLET_MODEL_SEQUENCES": str(sequences)}

    def count(self, text):
        return {"sequences": total(r"(\d+) sequences took", text)}


class PowerCuts(Machine):
    """Power cuts of a node under load, on images of ext4 and XFS. Images lie in memory where there is room."""

    CUTS_OF_AN_IMAGE = 25
    IMAGES = Path("/dev/shm")
    IMAGES_BYTES = 2 << 30

    def command(self, counts, pace, seconds):
        images = amount(pace / self.CUTS_OF_AN_IMAGE, seconds, 2)
        command = [*CARGO, "--test", "node", "--", "--nocapture", "--test-threads", "1", "power_cut"]
        environment = {"MARTLET_POWER_CUT_IMAGES": str(images), "MARTLET_POWER_CUTS": str(self.CUTS_OF_AN_IMAGE)}
        if self.IMAGES.is_dir() and shutil.disk_usage(self.IMAGES).free > self.IMAGES_BYTES:
            environment["MARTLET_IMAGES"] = str(self.IMAGES)
        return command, environment

    def count(self, text):
        on = {name: total(rf"(\d+) power cuts on {name}", text) for name in ("Ext4", "Xfs")}
        return {"power cuts": sum(on.values()), "of them on XFS": on["Xfs"]}


class ClusterPowerCuts(Machine):
    """Power cuts of clusters of processes under load."""

    def command(self, counts, pace, seconds):
        return [*CARGO, "--test", "cluster", "--", "--nocapture", "--test-threads", "1", "power_cut"], BINARY

    def count(self, text):
        if "SKIPPED" in text:
            return {"tests with power cuts": 0}
        return {"tests with power cuts": total(r"^test result: ok\. (\d+) passed", text)}


class Soak(Machine):
    """Load, kills and restarts of one server."""

    def command(self, counts, pace, seconds):
        return [*CARGO, "--test", "server", *SLOW, "soak"], {**BINARY, "MARTLET_SOAK_SECONDS": str(round(seconds))}

    def count(self, text):
        rounds = r"\bround \d+: (\d+) acknowledged"
        return {"kills": len(re.findall(rounds, text)), "acknowledged writes": total(rounds, text)}


class ClusterSoak(Machine):
    """Load on a cluster, and faults at random."""

    def command(self, counts, pace, seconds):
        command = [*CARGO, "--test", "cluster", *SLOW, "everything_happens"]
        return command, {**BINARY, "MARTLET_SOAK_SECONDS": str(round(seconds))}

    def count(self, text):
        return {"faults": len(re.findall(r"\bmisfortune ", text))}


class Checkpoints(Machine):
    """Checkpoint sets under faults."""

    def command(self, counts, pace, seconds):
        faults = amount(pace, seconds, 5)
        return [*CARGO, "--test", "cluster", *SLOW, "checkpoints_survive_everything"], {**BINARY, "MARTLET_FAULTS": str(faults)}

    def count(self, text):
        return {"faults": total(r"(\d+) faults; ", text)}


class Fuzz(Machine):
    """All fuzz targets, one after the other."""

    def command(self, counts, pace, seconds):
        folder = os.environ.get("FUZZ_DIR") or str(HOME / "fuzz")
        return ["fuzz/run.sh"], {"FUZZ_DIR": folder, "FUZZ_SECONDS": str(max(1, round(seconds / 8)))}

    def count(self, text):
        closing = text.split("── closing lines ──")[-1]
        return {"inputs": total(r"^fuzz: \w+: (\d+) runs", closing), "findings": total(r", (\d+) findings$", closing)}


class Mutants(Machine):
    """Planted mutants: each has to be found."""

    def command(self, counts, pace, seconds):
        return ["python3", "tests/mutants/planted.py", "--minutes", f"{seconds / 60:.2f}"], {}

    def count(self, text):
        return {"mutants found": len(re.findall(r"^  found", text, re.M)), "mutants missed": len(re.findall(r"^SURVIVED|^HANGS", text, re.M))}


MACHINES = [
    Simulation("simulation", "simulation of objects", "all_consistency_rules_hold_under_faults", 20),
    Simulation("sets", "simulation of checkpoint sets", "checkpoints_are_whole_or_absent_under_faults", 8),
    Interleavings("interleavings", "interleavings of threads", "interleavings", [("make", "--no-print-directory", "interleavings", "RUNS=100")]),
    Model("model", "model beside a server and a cluster", "sequences"),
    PowerCuts("power-cuts", "power cuts of a node", "power cuts"),
    ClusterPowerCuts("cluster-power-cuts", "power cuts of clusters", "tests with power cuts"),
    Soak("soak", "load and kills of a server", "kills"),
    ClusterSoak("soak-cluster", "load and faults of a cluster", "faults"),
    Checkpoints("checkpoints", "checkpoint sets of a cluster under faults", "faults"),
    Fuzz("fuzz", "fuzz targets", "inputs", [("make", "--no-print-directory", "build-fuzz")]),
    Mutants("mutants", "planted mutants", "mutants found", []),
]
