"""Faults of events, access logs and the audit log."""

import socket

from faults.fault import Fault
from watched import START_MAX_S, until

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
