"""Measures taken in turns, and the list of all measures."""

import signal
import sys
import time

from rows import Figure

KIB, MIB, GIB = 1 << 10, 1 << 20, 1 << 30
PER_GIB, PER_REQUEST = ("cpu", "s_per_gib"), ("cpu", "ms_per_request")

MEASURES = {}
"""Measures by name: functions of a `Bench` that return rows."""


def measure(name):
    """Lists a function under a name."""
    def listed(function):
        MEASURES[name] = function
        return function
    return listed


class Results:
    """Results of measures taken in turns, by name."""

    def __init__(self, rounds):
        self.rounds = rounds

    def figure(self, name, *path):
        """The median of one value over the rounds of a measure."""
        return Figure.median(self.rounds[name], path)


class Bench:
    """Rounds and lengths of all measures, and the folder that they write to."""

    def __init__(self, arguments, folder):
        self.rounds, self.seconds, self.is_full = arguments.rounds, arguments.seconds, arguments.full
        self.is_quick, self.folder = arguments.quick, folder
        self.duration = ["--duration", f"{arguments.seconds}s"]

    def in_turns(self, **measures):
        """Runs each measure once a round, one after the other."""
        results = {name: [] for name in measures}
        for number in range(self.rounds):
            for name, function in measures.items():
                progress(f"  {name} ({number + 1}/{self.rounds})")
                results[name].append(function())
        return Results(results)


def end_in_order():
    """Has SIGTERM and SIGHUP end this process as an error does: processes, namespaces and folders go with it."""
    def end(number, _):
        # A second signal must not interrupt the removal.
        for one in (signal.SIGTERM, signal.SIGHUP):
            signal.signal(one, signal.SIG_IGN)
        sys.exit(128 + number)

    signal.signal(signal.SIGTERM, end)
    # Under nohup, SIGHUP is ignored already.
    if signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:
        signal.signal(signal.SIGHUP, end)


def progress(line):
    """Prints a line about the measure that begins."""
    print(f"{time.strftime('%H:%M:%S')} {line} …", file=sys.stderr, flush=True)
