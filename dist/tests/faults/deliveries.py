"""Faults of events, access logs, the audit log, and the logs of processes."""

import re
import socket

from faults.fault import Fault
from watched import START_MAX_S, Disk, Failed, check, until

# More lines than a process keeps in memory.
LINES = 20_000


class RefusingHook(Fault):
    """The webhook refuses messages: they are put aside, one after another."""

    expected = ("MartletEventsParked",)
    # Messages come faster than they are put aside.
    possible = ("MartletEventsLost", "MartletEventsWaiting")

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


class FullLogDisk(Fault):
    """The disk of the audit log is full: changes of buckets are refused."""

    expected = ("MartletAuditLogFails",)
    # The refused change itself.
    possible = ("MartletErrors",)

    def begin(self):
        self.cluster.logs.fill()

    def go_on(self):
        if "martlet_audit_writable 1" in self.cluster.page("p1"):
            self.change()

    def change(self):
        """Makes a bucket and deletes it. Returns true if both are recorded."""
        return [self.s3.request(method, "/changes")[0] for method in ("PUT", "DELETE")] == [200, 204]

    def end(self):
        self.cluster.logs.release()
        until(START_MAX_S, self.change, "a bucket can't be made although the audit log's disk has room")


class FullProcessLog(Fault):
    """The disk of a replicator's log is full: lines are lost, and no worker panics or stops."""

    # The process is started with the other log.
    possible = ("MartletTargetDown",)
    # Steps of workers for which the fault lasts.
    steps = 30
    panics = 0

    def begin(self):
        self.disk = Disk(self.test.folder / "log.image", self.test.folder / "process-log")
        self.cluster.run_apart("r2", log=self.disk.folder / "log", MARTLET_LOG="trace")
        self.disk.fill()
        goal = self.total("steps") + self.steps
        until(2 * START_MAX_S, lambda: self.total("steps") >= goal or self.total("panics"), "the workers stand still")
        self.panics = self.total("panics")

    def total(self, what):
        """Returns a sum over the workers of the replicator."""
        try:
            page = self.cluster.page("r2")
        except OSError as error:
            raise Failed(f"a process whose log is full doesn't answer: {error}") from None
        found = re.findall(rf"^martlet_worker_{what}_total{{.*}} (\d+)$", page, re.MULTILINE)
        check(found, f"no worker has {what}")
        return sum(map(int, found))

    def end(self):
        self.disk.release()
        self.cluster.run_within("r2")
        self.disk.close()
        check(not self.panics, f"{self.panics} panics of workers whose lines a full disk didn't take")
