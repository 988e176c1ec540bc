"""Counters of a cluster's processes while their workers work, and the fastest windows between two looks."""

import os
import re
import sys
import time
import urllib.request
from collections import namedtuple
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent))

from in_place_readers import cpu_of

EVERY_S = 0.2
WINDOW_S = 2
COUNTER = re.compile(r'^martlet_(\w+)\{(?:worker|device)="([^"]+)"\} (\d+)$', re.MULTILINE)


class Window(namedtuple("Window", "items seconds cpu_s replicators_s busy_s")):
    """Items between two looks, and the CPU time of all processes, of replicators alone and of the machine."""

    @classmethod
    def between(cls, begun, last, count, counted_from=None):
        """The window from one look to another. Items count from a later look on, if one is given."""
        items = abs(count(last) - count(counted_from or begun))
        return cls(items, last.known - begun.asked, last.cpu_s() - begun.cpu_s(),
                   last.cpu_s("replicator") - begun.cpu_s("replicator"), last.busy_s - begun.busy_s)


class Look:
    """Counters of processes, their CPU time and that of the whole machine, read between `asked` and `known`."""

    def __init__(self, processes):
        self.asked, self.counters = time.monotonic(), {}
        for process in processes:
            with urllib.request.urlopen(f"http://{process['admin_address']}/metrics", timeout=30) as reply:
                for metric, label, count in COUNTER.findall(reply.read().decode()):
                    self.counters[process["name"], metric, label] = int(count)
        self.cpu = [(process["role"], cpu_of([process["pid"]])) for process in processes]
        self.busy_s = busy_s()
        self.known = time.monotonic()

    def count(self, metric, label=None, of=None):
        """A counter, added up over the processes `of`, or over all, and over all labels unless one is given."""
        return sum(count for (name, *key), count in self.counters.items()
                   if key[0] == metric and label in (None, key[1]) and (of is None or name in of))

    def cpu_s(self, role=None):
        """CPU time so far of the processes, or of those of a role."""
        return sum(seconds for its_role, seconds in self.cpu if role in (None, its_role))


def busy_s():
    """Seconds in which the machine's cores were busy or taken away by its host, added up."""
    fields = [int(it) for it in Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:9]]
    idle, waiting = fields[3:5]
    return (sum(fields) - idle - waiting) / os.sysconf("SC_CLK_TCK")


def look_until(processes, is_over, most_s):
    """Looks at processes again and again, until a look shows that their work is over, or time is."""
    looks, end = [Look(processes)], time.monotonic() + most_s
    while not is_over(looks[-1]) and time.monotonic() < end:
        time.sleep(EVERY_S)
        looks.append(Look(processes))
    return looks


def fastest(looks, count, items_min=1):
    """The window with the highest rate of what `count` reads from a look, of some seconds and items at least.

    A window begins where the count has changed, for a step counts all its items at its end. It includes the time
    between two looks at both ends, so the rate was at least so high.
    """
    windows = [Window.between(begun, last, count, first)
               for at, (begun, first) in enumerate(zip(looks, looks[1:])) if count(begun) != count(first)
               for last in looks[at + 2:]]
    windows = [it for it in windows if it.seconds >= WINDOW_S and it.items >= items_min]
    return max(windows, key=lambda it: it.items / it.seconds, default=None)
