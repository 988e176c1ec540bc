"""Faults of members of the cluster: machines, links, rings and clocks."""

import os
import subprocess

from faults.fault import LEAVES_COPIES, Fault
from watched import run, until

# Group of the process whose packets are dropped. No other process of the machine has it.
CUT_GROUP = 60_000 + os.getpid() % 5_000
SKEW_MS = 20_000
# Time for the copies of a node that joins.
JOINS_MAX_S = 120


class DeadNode(Fault):
    """A machine loses power."""

    expected = ("MartletTargetDown", "MartletNodeDown")
    # The replicator of the machine starts before its node is ready, and tries again after seconds: minutes of the scaled rules.
    possible = (*LEAVES_COPIES, "MartletWorkerFails")

    def begin(self):
        self.cluster.control("kill", "3")

    def end(self):
        self.cluster.start("3")


class TwoDeadNodes(Fault):
    """Two machines lose power: keys have no quorum."""

    expected = ("MartletQuorumAtRisk", "MartletErrors")
    possible = (*LEAVES_COPIES, "MartletNodeDown", "MartletNotReady", "MartletTargetDown", "MartletWorkerFails")

    def begin(self):
        for name in ("2", "3"):
            self.cluster.control("kill", name)

    def end(self):
        self.cluster.start("2", "3")


class CutReplicator(Fault):
    """The packets of a replicator to all nodes are lost, while all others reach them. Then a newer ring is pushed."""

    expected = ("MartletNodePartlyReachable", "MartletNotReady", "MartletRingEpochsDiffer", "MartletWorkerFails")
    possible = ("MartletTargetDown",)
    table = f"martlet-alerts-{os.getpid()}"

    def begin(self):
        self.cluster.run_apart("r1", "--regid", CUT_GROUP, "--clear-groups")
        ports = ", ".join(self.cluster.addresses[name].rsplit(":", 1)[1] for name in ("n1", "n2", "n3"))
        run("nft", f"add table inet {self.table}; "
            f"add chain inet {self.table} out {{ type filter hook output priority 0; }}; "
            f"add rule inet {self.table} out meta skgid {CUT_GROUP} tcp dport {{ {ports} }} drop")
        builder, ring = self.cluster.folder / "data-0.builder", self.cluster.folder / "data-0.ring"
        for words in (["set-weight", "d0", "90"], ["pretend-min-part-hours-passed"], ["rebalance"], ["write-ring"]):
            run(self.cluster.binary, "ring", builder, *words)
        self.cluster.admin_command("ring", "push", ring)

    def end(self):
        subprocess.run(["nft", "delete", "table", "inet", self.table], check=False, capture_output=True)
        self.cluster.run_within("r1")


class WrongClock(Fault):
    """The clock of a node is ahead of the others."""

    expected = ("MartletClockSkew",)
    possible = ("MartletNodeDown", "MartletTargetDown")

    def begin(self):
        self.cluster.run_apart("n3", MARTLET_TEST_CLOCK_OFFSET_MS=str(SKEW_MS))

    def end(self):
        self.cluster.run_within("n3")


class LongOutage(Fault):
    """A fourth node joins, and two of four machines lose power for hours: writes for them wait on others."""

    expected = ("MartletHintsNotFalling", "MartletRepairOld")
    possible = (*LEAVES_COPIES, "MartletErrors", "MartletNodeDown", "MartletNotReady", "MartletQuorumAtRisk",
                "MartletRingTermsDiffer", "MartletTargetDown", "MartletWorkerFails")
    fires_max_s = 540

    def begin(self):
        self.cluster.control("add-node")
        until(JOINS_MAX_S, self.has_joined, "the fourth node is not in the index ring")
        for name in ("3", "4"):
            self.cluster.control("kill", name)

    def has_joined(self):
        """Returns true once all replicators have finished the change of the index ring."""
        if "index=1" in self.cluster.status():
            return False
        finished = 'martlet_worker_backlog{worker="ring-change"} 0'
        return all(finished in self.cluster.page(name) for name in ("r1", "r2", "r3"))

    def end(self):
        self.cluster.start("3", "4")
