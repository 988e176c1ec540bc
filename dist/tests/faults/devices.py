"""Faults of devices, their disks, and their audit."""

import contextlib
import os
import re
import shutil

import alerts
from faults.fault import LEAVES_COPIES, Fault
from watched import START_MAX_S, check, until


class WrongBytes(Fault):
    """Bytes of one copy of each extent change, on one disk after another: readers may prefer any node for minutes."""

    expected = ("MartletCorruptReads", "MartletQuarantineGrows")
    objects = 8
    right = {}

    def begin(self):
        self.right = {}
        for at in range(self.objects):
            check(self.s3.request("PUT", f"/large/wrong{at}", os.urandom(2 << 20))[0] == 200, "a large object isn't taken")
        copies = until(START_MAX_S, self.copies, "a node lacks extents")
        for at, name in enumerate(sorted(copies[0])):
            path = copies[at % len(copies)][name]
            self.right[path] = self.change(path, b"these bytes are wrong")

    def copies(self):
        """Returns the file extents of each disk by name, once all disks have all of them."""
        found = [{file.name: file for file in (disk.folder / "extents").rglob("*") if file.is_file()}
                 for disk in self.cluster.disks]
        is_whole = len(found[0]) >= self.objects and all(one.keys() == found[0].keys() for one in found)
        return found if is_whole else None

    def change(self, path, text):
        """Writes other bytes into a file, and returns those before."""
        with open(path, "r+b") as file:
            file.seek(70_000)
            before = file.read(len(text))
            file.seek(70_000)
            file.write(text)
            os.fsync(file.fileno())
        return before

    def go_on(self):
        for at in range(self.objects):
            self.s3.request("GET", f"/large/wrong{at}")

    def end(self):
        # Wrong bytes that no reader has met would be found in the middle of another fault.
        for path, text in self.right.items():
            with contextlib.suppress(FileNotFoundError):
                self.change(path, text)


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


class WipedDisk(Fault):
    """A disk is replaced while no replicator runs: nothing fills it, and its node is not ready."""

    expected = ("MartletNoWorkers", "MartletDeviceWithoutVotes", "MartletRingTermsDiffer")
    # A device that takes writes before its peers name the one that it replaces moves its young index into quarantine.
    possible = (*LEAVES_COPIES, "MartletNodeDown", "MartletNotReady", "MartletQuarantineGrows", "MartletTargetDown",
                "MartletWorkerFails")

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
    """The only disk of a node doesn't answer: its file system is frozen."""

    expected = ("MartletDeviceDown", "MartletNotReady")
    possible = LEAVES_COPIES

    def begin(self):
        self.cluster.disks[1].freeze()

    def end(self):
        self.cluster.disks[1].thaw()


class FlickeringDisk(Fault):
    """A disk goes away again and again, as by a loose cable: calls fail until it is mounted anew."""

    expected = ("MartletDeviceReopens",)
    possible = (*LEAVES_COPIES, "MartletDeviceDown", "MartletNotReady", "MartletWorkerFails")

    def begin(self):
        self.disk = self.cluster.disks[2]

    def is_up(self):
        """Returns true if the device of the disk serves."""
        return 'martlet_device_up{device="d2"} 1' in self.cluster.page("n3")

    def go_on(self):
        is_up = self.is_up()
        if is_up and not self.disk.is_cut:
            self.disk.cut()
        elif not is_up and self.disk.is_cut:
            self.disk.mount_anew()

    def end(self):
        if self.disk.is_cut:
            self.disk.mount_anew()
        until(3 * START_MAX_S, self.is_up, "the device doesn't come back")


class LateAudit(Fault):
    """A replicator was off for longer than a device may stay unverified, and then its device doesn't answer.

    The times in the replicator's cursors are set back, since no test can wait for weeks.
    """

    expected = ("MartletAuditBehind",)
    possible = ("MartletTargetDown",)

    def begin(self):
        late_ms = int(1000 * (alerts.Times(self.test.scale).seconds("35d") + 3600))
        self.cluster.control("stop", "r2")
        path = self.cluster.folder / "r2/data/cursors"
        cursors, count = re.subn(
            r"(?<=:)\d{13}(?=:)", lambda time_ms: str(int(time_ms[0]) - late_ms), path.read_text())
        check(count >= 2, f"{path} has no times of the audit: {cursors}")
        path.write_text(cursors)
        self.cluster.start("r2")

    def end(self):
        # The first pass goes on where it failed, and the second one reads everything.
        for _ in range(2):
            self.cluster.control("stop", "r2")
            self.cluster.start("r2")
            until(START_MAX_S, lambda: 'martlet_worker_idle{worker="audit"} 1' in self.cluster.page("r2"),
                  "the audit doesn't end its pass")
