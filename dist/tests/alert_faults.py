#!/usr/bin/env python3
"""Makes faults in a real cluster: each alert fires and ends, none fires in a quiet time, and each dashboard has data.

Usage: MARTLET_BIN=PROGRAM observability.sh alert_faults.py [--scale 60] [--only FAULT …]. Needs root, for mounts.
"""

import argparse
import json
import os
import re
import shutil
import signal
import socket
import sys
import threading
import time
import urllib.parse

import alerts
import dashboards
import generate
from runbooks import try_commands
from watched import Cluster, Failed, Hook, Load, Prometheus, check, folder_of_test, until

FIRES_MAX_S, ENDS_MAX_S = 300, 300
SETTLES_S = 30
RULES = b'{"rules":[{"pattern":"run-*/step-*/","profile":"custom","markers":["done"],"settle":3600}]}'
VERSIONED = b"<VersioningConfiguration><Status>Enabled</Status></VersioningConfiguration>"
NOTIFIED = (b"<NotificationConfiguration><QueueConfiguration><Queue>arn:martlet:sqs:::hook</Queue>"
            b"<Event>s3:ObjectCreated:*</Event></QueueConfiguration></NotificationConfiguration>")
LARGE = 8 << 20
# Uploads for all turns (MARTLET_MAX_REQUESTS), and more readers than may wait for one.
HOLDERS, WAITERS, HOLDS_S = 8, 40, 3.5
# More lines than a process keeps in memory.
LINES = 20_000


class Fault:
    """Something that goes wrong: how it begins, what keeps it going, how it ends, and the alerts that it causes."""

    expected = ()

    def __init__(self, test):
        self.test, self.cluster, self.s3 = test, test.cluster, test.cluster.s3

    def begin(self):
        """Makes the fault."""

    def go_on(self):
        """Does what the fault needs again and again."""

    def end(self):
        """Repairs it as the runbook says."""


class RefusingHook(Fault):
    """The webhook refuses messages: they are put aside."""

    expected = ("MartletEventsParked",)

    def begin(self):
        self.test.hook.status = 400

    def end(self):
        self.test.hook.status = 200
        for file in self.cluster.folder.glob("p1/data/events/**/refused.jsonl"):
            file.rename(file.with_name("again.jsonl"))


class SilentHook(Fault):
    """The webhook fails: messages wait until the spool is full, and are lost."""

    expected = ("MartletEventsWaiting", "MartletEventsLost")

    def begin(self):
        self.test.hook.status = 503

    def end(self):
        self.test.hook.status = 200


class HangingLogDisk(Fault):
    """The disk of the access log hangs, and more lines come than wait in memory."""

    expected = ("MartletAccessLogLost",)
    request = b"GET / HTTP/1.1\r\nhost: localhost\r\n\r\n"

    def begin(self):
        self.cluster.logs.freeze()
        with socket.create_connection((self.s3.host, self.s3.port), 60) as connection:
            replies = connection.makefile("rb")
            for _ in range(LINES // 100):
                connection.sendall(self.request * 100)
                for _ in range(100):
                    length = 0
                    while line := replies.readline().strip().lower():
                        if line.startswith(b"content-length:"):
                            length = int(line.split(b":")[1])
                    replies.read(length)

    def end(self):
        self.cluster.logs.thaw()


class UnfinishedCheckpoint(Fault):
    """A generation waits for an hour, and an operator gives it up."""

    expected = ("MartletCheckpointPending",)

    def begin(self):
        for name in ("a", "done"):
            check(self.s3.request("PUT", f"/train/run-1/step-1/{name}", b"x" * 9000)[0] == 200, "the checkpoint isn't taken")

    def end(self):
        for name in ("done", "a"):
            self.s3.request("DELETE", f"/train/run-1/step-1/{name}")
        self.cluster.admin_command("checkpoints", "withdraw", "train", "run-1/step-1/", "--generation", "1")


class WrongBytes(Fault):
    """Bytes of extents change on a disk."""

    expected = ("MartletCorruptReads", "MartletQuarantineGrows")

    def begin(self):
        for at in range(8):
            check(self.s3.request("PUT", f"/large/wrong{at}", os.urandom(2 << 20))[0] == 200, "a large object isn't taken")
        files = [file for file in (self.cluster.disks[1].folder / "extents").rglob("*") if file.is_file()]
        check(files, "there is no file extent")
        for path in files:
            with open(path, "r+b") as file:
                file.seek(70_000)
                file.write(b"these bytes are wrong")
                os.fsync(file.fileno())

    def go_on(self):
        for at in range(8):
            self.s3.request("GET", f"/large/wrong{at}")


class LeavingReaders(Fault):
    """Clients that read in place leave in the middle of replies."""

    expected = ("MartletDataPortCut",)

    def begin(self):
        check(self.s3.request("PUT", "/large/whole", os.urandom(LARGE))[0] == 200, "a large object isn't taken")

    def go_on(self):
        located = json.loads(self.s3.request("GET", "/large/whole", query={"locate": ""})[1])
        for holder in located["extents"][0]["pieces"][0]["holders"]:
            url = urllib.parse.urlsplit(holder["url"])
            with socket.socket() as one:
                one.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 16384)
                one.settimeout(10)
                one.connect((url.hostname, url.port))
                one.sendall(f"GET {url.path}?t={holder['token']} HTTP/1.1\r\nhost: {url.netloc}\r\n\r\n".encode())
                one.recv(4096)


class Herd(Fault):
    """Many readers of one object: no fault, but what makes windows be shared."""

    def go_on(self):
        readers = [threading.Thread(target=self.s3.request, args=("GET", "/large/herd")) for _ in range(8)]
        for reader in readers:
            reader.start()
        for reader in readers:
            reader.join()

    def begin(self):
        self.s3.request("PUT", "/large/herd", os.urandom(LARGE))


class FillingDisk(Fault):
    """A foreign file takes the space of a device, little by little, and then all of it. Copies for it wait."""

    expected = ("MartletDeviceFullSoon", "MartletDeviceFull", "MartletRepairNotFalling")
    soon = False

    def begin(self):
        self.disk, self.left = self.cluster.disks[0], 350 << 20
        self.disk.leave(self.left)

    def go_on(self):
        self.soon = self.soon or "MartletDeviceFullSoon" in self.test.prometheus.firing()
        self.left = (8 << 20) if self.soon else max(120 << 20, self.left - (2 << 20))
        if self.disk.free() > self.left:
            self.disk.leave(self.left)

    def end(self):
        self.disk.release()


class Overload(Fault):
    """Uploads that stall have all turns, for seconds at a time. Readers wait for theirs, and further ones are refused."""

    expected = ("MartletSlowDown", "MartletReadsSlow", "MartletErrors")
    ends = False

    def begin(self):
        self.hold()
        self.waiters = [threading.Thread(target=self.wait, daemon=True) for _ in range(WAITERS)]
        for waiter in self.waiters:
            waiter.start()

    def hold(self):
        self.held = [self.s3.hold(f"/load/held{at}", 1 << 20) for at in range(HOLDERS)]
        self.since = time.monotonic()

    def release(self):
        for connection in self.held:
            connection.close()

    def wait(self):
        while not self.ends:
            self.s3.request("GET", "/load/o1")
            time.sleep(0.5)

    def go_on(self):
        if time.monotonic() > self.since + HOLDS_S:
            self.release()
            time.sleep(0.3)
            self.hold()

    def end(self):
        self.ends = True
        self.release()
        for waiter in self.waiters:
            waiter.join(90)


class DeadNode(Fault):
    """A machine loses power."""

    expected = ("MartletTargetDown", "MartletNodeDown")

    def begin(self):
        self.cluster.control("kill", "3")

    def end(self):
        self.cluster.start("3")


class TwoDeadNodes(Fault):
    """Two machines lose power: keys have no quorum."""

    expected = ("MartletQuorumAtRisk", "MartletErrors")

    def begin(self):
        for name in ("2", "3"):
            self.cluster.control("kill", name)

    def end(self):
        self.cluster.start("2", "3")


class WipedDisk(Fault):
    """A disk is replaced while no replicator runs: nothing fills it, and its node is not ready."""

    expected = ("MartletNoWorkers", "MartletDeviceWithoutVotes", "MartletRingTermsDiffer")

    def begin(self):
        for name in ("r1", "r2", "r3", "n3"):
            self.cluster.control("kill", name)
        for path in self.cluster.disks[2].folder.iterdir():
            shutil.rmtree(path) if path.is_dir() else path.unlink()
        self.start = self.cluster.begin("start", "n3")

    def end(self):
        self.cluster.start("r1", "r2", "r3")
        self.start.wait(90)


class HangingDisk(Fault):
    """A disk doesn't answer: its file system is frozen."""

    expected = ("MartletDeviceDown",)

    def begin(self):
        self.cluster.disks[1].freeze()

    def end(self):
        self.cluster.disks[1].thaw()


# Faults that happen together. None hides another one's alerts.
GROUPS = [
    (RefusingHook, HangingLogDisk, UnfinishedCheckpoint, WrongBytes, LeavingReaders, Herd, FillingDisk),
    (Overload,),
    (DeadNode, SilentHook),
    (TwoDeadNodes,),
    (WipedDisk,),
    (HangingDisk,),
]


class Test:
    """Cluster, Prometheus and load, and what was seen."""

    def __init__(self, folder, scale):
        self.folder, self.scale = folder, scale
        self.started, self.seen, self.made, self.also = [], {}, set(), set()

    def start(self):
        """Starts everything."""
        self.hook = self.keep(Hook())
        self.cluster = self.keep(Cluster(self.folder, self.hook))
        self.cluster.wait()
        self.prometheus = self.keep(Prometheus(self.folder, self.cluster, self.scale))
        self.prepare()
        self.load = self.keep(Load(self.cluster.s3))

    def keep(self, part):
        """Closes a part at the end."""
        self.started.append(part.close)
        return part

    def close(self):
        """Ends everything that was started, the last first."""
        for end in reversed(self.started):
            end()

    def prepare(self):
        """Makes buckets."""
        for bucket, settings in {"load": {"notification": NOTIFIED}, "large": {},
                                 "train": {"versioning": VERSIONED, "checkpoints": RULES}}.items():
            check(self.cluster.s3.request("PUT", f"/{bucket}")[0] == 200, f"no bucket {bucket}")
            for name, body in settings.items():
                status, reply = self.cluster.s3.request("PUT", f"/{bucket}", body, {name: ""})
                check(status < 300, f"{bucket}: {name}: {status} {reply}")

    def quiet(self):
        """Watches a quiet hour. Returns its beginning and its end."""
        time.sleep(SETTLES_S)
        start, failed = time.time(), self.load.failed
        time.sleep(3600 / self.scale)
        end = time.time()
        fired = self.prometheus.fired(start, end)
        check(not fired, f"in the quiet time {sorted(fired)} fired: {json.dumps(list(self.prometheus.firing().values()))}")
        check(self.load.failed == failed, f"in the quiet time {self.load.failed - failed} requests failed")
        print(f"quiet: no alert in {end - start:.0f} s, which stand for an hour", flush=True)
        return start, end

    def bring_about(self, kinds):
        """Makes faults, waits for their alerts, repairs them, and waits for the end of all alerts."""
        faults, began = [kind(self) for kind in kinds], time.time()
        expected = {name for fault in faults for name in fault.expected}
        begun = []

        def fires():
            for fault in faults:
                fault.go_on()
            self.seen |= {name: alert for name, alert in self.prometheus.firing().items()}
            return expected <= self.prometheus.fired(began, time.time())

        try:
            for fault in faults:
                begun.append(fault)
                fault.begin()
            until(FIRES_MAX_S, fires, lambda: f"{sorted(expected - self.prometheus.fired(began, time.time()))} didn't fire")
        finally:
            for fault in begun:
                fault.end()
        repaired = time.time()
        until(ENDS_MAX_S, lambda: not self.prometheus.firing(), lambda: f"{sorted(self.prometheus.firing())} didn't end")
        also = self.prometheus.fired(began, time.time()) - expected
        self.also |= also
        self.made |= expected
        names = ", ".join(kind.__name__ for kind in kinds)
        print(f"{names}: {', '.join(sorted(expected))} fired after {repaired - began:.0f} s at most, and ended "
              f"{time.time() - repaired:.0f} s after the repair; besides {', '.join(sorted(also)) or 'none'}", flush=True)


def check_dashboards(prometheus, quiet, whole):
    """Each query of each dashboard has data: in the quiet time, or at the latest with the fault that it names."""
    count, late, wrong = 0, [], []
    for name, (_, _, panels) in dashboards.DASHBOARDS.items():
        page = json.loads((generate.HERE / "dashboards" / f"{name}.json").read_text())
        written = [target["expr"] for panel in page["panels"] for target in panel["targets"]]
        queries = [(panel, query) for panel in panels() for query in panel.queries]
        check(written == [query.expression for _, query in queries], f"{name}.json isn't what the generator makes")
        for panel, query in queries:
            count += 1
            expression = query.expression.replace(dashboards.WINDOW, "15s").replace("$cluster", ".*")
            if query.needs:
                late.append(f"{panel.title} ({query.needs})")
            found = prometheus.range(expression, *(whole if query.needs else quiet))
            missing = [label for label in re.findall(r"{{(\w+)}}", query.legend) if not all(label in it for it, _ in found)]
            if not found or missing:
                wrong.append(f"{name}: {panel.title}: {f'no labels {missing}' if found else 'no data'} for {expression}")
    check(not wrong, "\n".join(wrong))
    print(f"dashboards: {count} queries have data; {len(late)} of them only with a fault: {', '.join(late)}")


def check_texts(seen):
    """Annotations of alerts that fired are rendered whole."""
    for name, alert in seen.items():
        for key, text in alert["annotations"].items():
            check("<" not in text and "{{" not in text, f"{name}: {key}: {text}")


def attempt(part, *arguments):
    """Runs a part of the test, and returns its failure: the other parts are run all the same."""
    try:
        part(*arguments)
    except Failed as failed:
        print(f"FAILED: {failed}", flush=True)
        return [failed]
    return []


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--scale", type=int, default=60, help="divisor of all durations")
    parser.add_argument("--only", nargs="*", help="faults to make, by name; dashboards are not checked then")
    args = parser.parse_args()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: sys.exit("alerts: interrupted"))
    folder = folder_of_test()
    test = Test(folder, args.scale)
    try:
        test.start()
        quiet = test.quiet()
        try_commands(test.cluster, folder)
        failures = []
        for kinds in GROUPS:
            if chosen := [kind for kind in kinds if not args.only or kind.__name__ in args.only]:
                failures += attempt(test.bring_about, chosen)
        failures += attempt(check_texts, test.seen)
        if not args.only:
            failures += attempt(check_dashboards, test.prometheus, quiet, (quiet[0], time.time()))
        made = {name for kinds in GROUPS for kind in kinds for name in kind.expected}
        rest = [name for name in alerts.names() if name not in made]
        print(f"alerts: no fault was made for {', '.join(rest)}")
        if test.also:
            print(f"fired beside the expected ones: {', '.join(sorted(test.also))}")
        check(not failures, f"{len(failures)} parts failed")
        print(f"alerts: {len(test.made)} fired and ended")
    except Failed as failed:
        sys.exit(f"alerts: FAILED: {failed}")
    finally:
        test.close()
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    main()
