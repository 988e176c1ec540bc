"""Hosts in network namespaces of their own, joined by a bridge, with cables of a limited rate and counters.

    this process ── veth ──┐
    host n1 ─────── veth ──┼── bridge, in a namespace of its own
    host p1 ─────── veth ──┘

Names and the subnet belong to this process alone. Leaving the `with` removes everything. The next run removes the
namespaces of a run that was killed, with the processes in them. Root, `ip` and `tc` (iproute2) are required.
"""

import contextlib
import os
import re
import signal
import subprocess
import time
from pathlib import Path

NAMES = Path("/run/netns")
# Names are `PREFIX`, a process id, a dash and a host; names of devices have at most 15 characters.
PREFIX = "mbench"
STALE = re.compile(rf"{PREFIX}(\d+)-\w+")
SUBNETS_TRIED, END_S = 64, 10
# A token bucket passes bursts of this size at once; the queue before it holds 50 ms.
BURST, LATENCY = "256kb", "50ms"


def ip(*words):
    """Runs `ip`."""
    run("ip", *words)


def run(*command):
    """Runs a command; its words are shown if it fails."""
    done = subprocess.run([str(word) for word in command], capture_output=True, text=True)
    if done.returncode:
        raise SystemExit(f"{' '.join(map(str, command))}: {done.stderr.strip()}")
    return done.stdout


class Host:
    """A host with one cable."""

    def __init__(self, network, name, number):
        self.name, self.address = name, f"{network.subnet}.{number}"
        self.namespace, self.port, self.bridge = f"{network.prefix}-{name}", f"port{number}", network.bridge
        ip("netns", "add", self.namespace)
        ip("-n", self.bridge, "link", "add", self.port, "type", "veth", "peer", "name", "eth0", "netns", self.namespace)
        ip("-n", self.bridge, "link", "set", self.port, "master", "br0", "up")
        ip("-n", self.namespace, "link", "set", "lo", "up")
        ip("-n", self.namespace, "addr", "add", f"{self.address}/24", "dev", "eth0")
        ip("-n", self.namespace, "link", "set", "eth0", "up")

    def within(self):
        """Words that run a command on the host, under the process id of the command."""
        return ["nsenter", f"--net={NAMES / self.namespace}"]

    def limit(self, mbit):
        """Limits both directions of the cable."""
        for namespace, device in ((self.namespace, "eth0"), (self.bridge, self.port)):
            run("tc", "-n", namespace, "qdisc", "replace", "dev", device, "root", "tbf",
                "rate", f"{mbit}mbit", "burst", BURST, "latency", LATENCY)

    def counters(self):
        """Bytes that the host has received and sent over its cable."""
        lines = run(*self.within(), "cat", "/proc/net/dev").splitlines()
        [fields] = [line.partition(":")[2].split() for line in lines if line.strip().startswith("eth0:")]
        return int(fields[0]), int(fields[8])


class Network:
    """A bridge and the hosts on it, for as long as the `with` lasts."""

    def __init__(self):
        self.prefix, self.subnet, self.hosts = f"{PREFIX}{os.getpid()}", free_subnet(), {}
        self.bridge = f"{self.prefix}-bridge"

    def __enter__(self):
        if os.geteuid() != 0:
            raise SystemExit("network namespaces need root: run it as root, or with --only readers")
        remove_leftovers()
        try:
            ip("netns", "add", self.bridge)
            ip("-n", self.bridge, "link", "add", "br0", "type", "bridge")
            ip("-n", self.bridge, "link", "set", "br0", "up")
            ip("link", "add", self.prefix, "type", "veth", "peer", "name", "own", "netns", self.bridge)
            ip("-n", self.bridge, "link", "set", "own", "master", "br0", "up")
            ip("addr", "add", f"{self.subnet}.1/24", "dev", self.prefix)
            ip("link", "set", self.prefix, "up")
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_):
        subprocess.run(["ip", "link", "delete", self.prefix], capture_output=True)
        for namespace in [self.bridge, *(f"{self.prefix}-{name}" for name in self.hosts)]:
            subprocess.run(["ip", "netns", "delete", namespace], capture_output=True)

    def add(self, name):
        """Adds a host."""
        # The name is kept first, so that a host that fails half-way is removed too.
        self.hosts[name] = None
        self.hosts[name] = Host(self, name, len(self.hosts) + 1)
        return self.hosts[name]


def free_subnet():
    """The first bytes of a subnet in which this machine has no address."""
    taken = run("ip", "-4", "-o", "addr", "show")
    numbers = range(os.getpid(), os.getpid() + SUBNETS_TRIED)
    subnets = [f"10.{64 + number // 256 % 128}.{number % 256}" for number in numbers]
    return next(subnet for subnet in subnets if f" {subnet}." not in taken)


def remove_leftovers():
    """Removes the namespaces that runs before have left, and kills the processes in them.

    Names that don't have this module's form are left alone, and so are those of a process that exists.
    """
    for path in sorted(NAMES.iterdir()) if NAMES.is_dir() else []:
        found = STALE.fullmatch(path.name)
        if found and not Path("/proc", found[1]).exists():
            kill_processes(path.name)
            subprocess.run(["ip", "netns", "delete", path.name], capture_output=True)


def kill_processes(namespace):
    """Kills all processes in a namespace, which would outlive its name."""
    deadline = time.monotonic() + END_S
    # The command fails on a name without a namespace, which has no processes.
    command = ["ip", "netns", "pids", namespace]
    while pids := subprocess.run(command, capture_output=True, text=True).stdout.split():
        if time.monotonic() > deadline:
            raise SystemExit(f"processes {' '.join(pids)} in the namespace {namespace} of an earlier run don't end")
        for pid in pids:
            with contextlib.suppress(ProcessLookupError):
                os.kill(int(pid), signal.SIGKILL)
        time.sleep(0.05)
