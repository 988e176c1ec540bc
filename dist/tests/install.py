#!/usr/bin/env python3
"""Installs the packages where nothing of this repository is, runs them as their units say, upgrades and removes them.

Usage: install.py PACKAGES CLEAN_ROOT BOOTING_ROOT. Runs as root, in namespaces of its own: network, processes and mounts end with it.
"""

import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import time

import booted
import image
import machine as machines
from machine import S3, Failed, Machine, check, credentials_of, digest, fetch, random_file

SIZES = [10, 100_000, 9_000_000]
SETTINGS = "/etc/martlet/server.toml"
CHANGED = "\n# Changed by an operator.\nheader_timeout = \"50s\"\n"


def say(sentence):
    """Prints a step that held."""
    print(f"dist: {sentence}", flush=True)


class Objects:
    """Objects that were written, and are read again after each step."""

    def __init__(self, folder):
        self.files = [random_file(folder, size) for size in SIZES]

    def put(self, client):
        client.request("PUT", "/box")
        for path, _ in self.files:
            client.request("PUT", f"/box/{path.name}", body=path)

    def check(self, client, when):
        for path, expected in self.files:
            check(digest(client.request("GET", f"/box/{path.name}")) == expected, f"{path.name} differs {when}")


def bumped(package, folder):
    """Returns the package with a later revision, whose settings differ, and its version."""
    tree = folder / "later"
    subprocess.run(["dpkg-deb", "-R", package, tree], check=True)
    control = tree / "DEBIAN/control"
    version = subprocess.run(["dpkg-deb", "-f", package, "Version"], check=True, capture_output=True, text=True).stdout
    later = version.strip() + "+later"
    control.write_text(control.read_text().replace(f"Version: {version.strip()}\n", f"Version: {later}\n"))
    for name in ("server.toml", "server.env"):
        with open(tree / "etc/martlet" / name, "a", encoding="utf-8") as file:
            file.write("# A comment of the later version.\n")
    out = folder / "later.deb"
    subprocess.run(["dpkg-deb", "-Zgzip", "-z1", "-b", tree, out], check=True, stdout=subprocess.DEVNULL)
    return out, later


def unused(machine, package):
    """A package that was never used leaves nothing but its user."""
    machine.run("useradd", "--uid", "4711", "martlet")
    machine.run("dpkg", "-i", "/tmp/first.deb", fails=True)
    machine.run("userdel", "martlet")
    machine.run("dpkg", "--configure", "-a")
    say("an installation beside a login called martlet is refused")
    told = machine.run("apt-get", "purge", "-y", "-q", "martlet")
    check("stays" not in told, told)
    check(not machine.path("/etc/martlet").exists() and not machine.path("/var/lib/martlet").exists(), "left behind")
    say("a purge of an unused package leaves no folder")
    told = machine.install(package)
    check("/var/lib/martlet/credentials" in told and "not started" in told, told)


def check_installed(machine):
    """The files of an installation have their owners and modes, and nothing runs."""
    machine.check_access("/etc/martlet", 0o750, "root", "martlet")
    machine.check_access(SETTINGS, 0o640, "root", "martlet")
    machine.check_access("/etc/martlet/server.env", 0o640, "root", "martlet")
    machine.check_access("/var/lib/martlet", 0o700, "martlet", "martlet")
    check(machine.run("martlet", "--version").startswith("martlet "), "no version")
    machine.run("bash", "-n", "/usr/share/bash-completion/completions/martlet")
    check(machine.path("/usr/share/man/man1/martlet-server.1.gz").exists(), "no page for martlet server")


def first_start(machine, objects):
    """The first start makes credentials, tells their place, and serves a client outside."""
    service = machine.unit("martlet.service").start()
    client = S3(credentials_of(machine.path("/var/lib/martlet/credentials")))
    machine.check_access("/var/lib/martlet/credentials", 0o600, "martlet", "martlet")
    printed = service.printed()
    check("/var/lib/martlet/credentials" in printed, f"the place of the credentials is not told:\n{printed}")
    check(client.secret not in printed and client.key not in printed, "the credentials are in the journal")
    check(fetch("http://127.0.0.1:9001/readyz")[0] == 200, "ready, and not ready")
    objects.put(client)
    objects.check(client, "at once")
    S3(("AKIDNOBODYKNOWS", "minioadmin12345678")).request("GET", "/box", expect="403")
    say("the first start makes credentials, names their file, and serves")
    service.stop()
    return client


def restarts(machine, objects, client):
    """A stop in good order and a killed process keep what was acknowledged."""
    service = machine.unit("martlet.service").start()
    objects.check(client, "after a restart")
    service.kill()
    service = machine.unit("martlet.service").start()
    objects.check(client, "after a kill")
    say("objects survive a restart and a kill")
    return service


def upgrade(machine, service, objects, client, later, version):
    """An upgrade of a running service keeps data and the operator's settings, and can stop halfway."""
    with open(machine.path(SETTINGS), "a", encoding="utf-8") as file:
        file.write(CHANGED)
    machine.run("chmod", "0600", "/etc/martlet/server.env")
    machine.run("chown", "martlet", "/etc/martlet/server.env")
    shutil.copy(later, machine.path("/tmp/later.deb"))
    machine.run("dpkg", "--unpack", "/tmp/later.deb")
    objects.check(client, "with a package that is only unpacked")
    service.kill()
    service = machine.unit("martlet.service").start()
    objects.check(client, "after a start between unpacking and configuring")
    machine.run("dpkg", "--force-confdef", "--force-confold", "--configure", "martlet")
    check(CHANGED in machine.path(SETTINGS).read_text(), "the operator's settings are lost")
    check("later version" in machine.path("/etc/martlet/server.env").read_text(), "unchanged settings stayed old")
    machine.check_access(SETTINGS, 0o640, "root", "martlet")
    machine.check_access("/etc/martlet/server.env", 0o600, "martlet", "martlet")
    check(version in machine.run("dpkg-query", "-W", "martlet"), "the later version is not installed")
    service.stop()
    service = machine.unit("martlet.service").start()
    objects.check(client, "after the upgrade")
    service.stop()
    say("an upgrade keeps objects, changed settings and changed modes, also when it stops halfway")


def removal(machine, objects, client, package, later):
    """A removal leaves settings and data, a purge leaves data, and both find it again."""
    machine.run("apt-get", "remove", "-y", "-q", "martlet")
    check(not machine.path("/usr/bin/martlet").exists(), "the binary stays")
    check(CHANGED in machine.path(SETTINGS).read_text(), "a removal takes settings")
    machine.install(later)
    check(CHANGED in machine.path(SETTINGS).read_text(), "the settings of before the removal are lost")
    service = machine.unit("martlet.service").start()
    objects.check(client, "after a removal")
    service.stop()
    machine.path("/etc/martlet/cluster.key").write_text("kept\n")
    told = machine.run("apt-get", "purge", "-y", "-q", "martlet")
    check(told.count("stays, with its data or keys") == 2, told)
    check(not machine.path(SETTINGS).exists(), "a purge leaves settings of the package")
    check(machine.path("/etc/martlet/cluster.key").exists(), "a purge takes an operator's key")
    for name in ("master.key", "sse-master.key", "credentials", "cluster.json"):
        check(machine.path(f"/var/lib/martlet/{name}").exists(), f"a purge takes {name}")
    check("martlet" in machine.run("getent", "passwd", "martlet"), "a purge takes the owner of data")
    machine.path("/etc/martlet/cluster.key").unlink()
    machine.install(package, "--allow-downgrades")
    check_installed(machine)
    service = machine.unit("martlet.service").start()
    objects.check(client, "after a purge")
    service.stop()
    say("a removal and a purge leave data, and the next installation serves it")


def linked(machine, package, client, objects):
    """A data folder that is a link to a disk survives all maintainer scripts."""
    machine.path("/srv/disk").mkdir(parents=True)
    machine.run("mv", "/var/lib/martlet", "/srv/disk/data")
    machine.run("ln", "-s", "/srv/disk/data", "/var/lib/martlet")
    machine.run("apt-get", "purge", "-y", "-q", "martlet")
    machine.install(package)
    check(machine.path("/var/lib/martlet").is_symlink(), "the link is gone")
    service = machine.unit("martlet.service").start()
    objects.check(client, "behind a link")
    service.stop()
    say("a data folder behind a link stays what it is")


def permitted_calls(settings):
    """Returns the system calls that a unit's filters leave."""
    def members(name, seen):
        if not name.startswith("@"):
            return {name}
        listing = subprocess.run(["systemd-analyze", "syscall-filter", name], check=True, capture_output=True, text=True)
        lines = [line.strip() for line in listing.stdout.splitlines()[1:]]
        names = [line for line in lines if line and not line.startswith("#")]
        return set().union(*(members(it, seen | {name}) for it in names if it not in seen))

    calls = set()
    for line in settings["SystemCallFilter"]:
        named = set().union(*(members(name, set()) for name in line.removeprefix("~").split()))
        calls = calls - named if line.startswith("~") else calls | named
    return calls


def filtered(machine, folder, objects, client):
    """Everything that the process calls is left by the unit's filter of system calls."""
    trace = folder / "trace"
    unit = machine.unit("martlet.service")
    service = unit.start(wrapper=["strace", "-f", "-qq", "-o", str(trace)])
    objects.check(client, "under strace")
    for path, _ in objects.files:
        client.request("PUT", f"/box/again-{path.name}", body=path)
    service.process.send_signal(15)
    # strace hands the signal on only to itself; its tracee is the group.
    os.killpg(service.process.pid, 15)
    service.process.wait(machines.STOP_MAX_S)
    lines = trace.read_text(errors="replace").splitlines()
    start = next(at for at, line in enumerate(lines) if 'execve("/usr/bin/martlet"' in line)
    called = {line.split(None, 1)[1].split("(", 1)[0] for line in lines[start:] if "(" in line}
    called = {name for name in called if name.isidentifier()}
    check(len(called) > 30, f"only {len(called)} system calls were seen")
    refused = sorted(called - permitted_calls(unit.settings))
    check(not refused, f"the unit's filter refuses {', '.join(refused)}")
    say(f"the filter of system calls leaves all {len(called)} that a start, requests and a stop make")


def cluster(machine, objects):
    """The units of a cluster's roles start a cluster of one node, with a key that root gives to the group."""
    key = os.urandom(32).hex()
    machine.path("/etc/martlet/cluster.key").write_text(key + "\n")
    machine.run("chgrp", "martlet", "/etc/martlet/cluster.key")
    machine.run("chmod", "0640", "/etc/martlet/cluster.key")
    machine.run("install", "-d", "-o", "martlet", "-g", "martlet", "-m", "0700", "/srv/martlet/disk1")
    for ring in ("index", "data-0"):
        builder = f"/var/tmp/{ring}.builder"
        machine.run("martlet", "ring", builder, "create", "--part-power", "6", "--replicas", "1")
        machine.run("martlet", "ring", builder, "add", "r1z1-n1@127.0.0.1:6200/d1", "100")
        machine.run("martlet", "ring", builder, "rebalance")
        machine.run("martlet", "ring", builder, "write-ring")
        machine.run("install", "-o", "root", "-g", "martlet", "-m", "0640", f"/var/tmp/{ring}.ring", "/etc/martlet/")
    examples = "/usr/share/doc/martlet/examples"
    changes = {
        "node.toml": ("node-n1.toml", {"10.0.0.1": "127.0.0.1", 'd2 = "/srv/martlet/disk2"\n': ""}),
        "proxy.toml": ("proxy.toml", {"10.0.1.1": "127.0.0.1"}),
        "replicator.toml": ("replicator.toml", {}),
        "proxy.env": ("proxy.env", {"ACCESS_KEY=": "ACCESS_KEY=operator", "SECRET_KEY=": "SECRET_KEY=a-secret-of-32-bytes",
                                    "MASTER_KEYS=": f"MASTER_KEYS={os.urandom(32).hex()}",
                                    "SSE_MASTER_KEY=": f"SSE_MASTER_KEY={os.urandom(32).hex()}"}),
    }
    for example, (name, replaced) in changes.items():
        text = machine.path(f"{examples}/{example}").read_text()
        for old, new in replaced.items():
            check(old in text, f"{example} has no {old}")
            text = text.replace(old, new)
        machine.path(f"/etc/martlet/{name}").write_text(text)
        machine.run("chgrp", "martlet", f"/etc/martlet/{name}")
        machine.run("chmod", "0640", f"/etc/martlet/{name}")
    units = ["martlet-node@n1.service", "martlet-replicator.service", "martlet-proxy.service"]
    services = [machine.unit(name).start() for name in units]
    client = S3(("operator", "a-secret-of-32-bytes"))
    until = time.monotonic() + 60
    # A new device decides once it has its votes: the node is ready then, and the proxy may be before.
    while not all(fetch(f"http://127.0.0.1:{port}/readyz")[0] == 200 for port in (6201, 7201)):
        check(time.monotonic() < until, services[0].printed() + services[-1].printed())
        time.sleep(0.5)
    objects.put(client)
    objects.check(client, "in a cluster")
    for service in reversed(services):
        service.stop()
    say("the units of node, replicator and proxy serve as a cluster")


def tarball(machine, packages):
    """The tarball unpacks below /usr/local, with units that systemd takes."""
    archive = next(packages.glob("martlet-*-linux-*.tar.gz"))
    shutil.copy(archive, machine.path("/tmp/martlet.tar.gz"))
    machine.run("tar", "-C", "/usr/local", "--strip-components=1", "-xzf", "/tmp/martlet.tar.gz")
    check(machine.run("/usr/local/bin/martlet", "--version").startswith("martlet "), "no version")
    units = sorted(machine.path("/usr/local/lib/systemd/system").glob("martlet*.service"))
    check(len(units) == 4, f"{units}")
    for unit in units:
        check("ExecStart=/usr/local/bin/martlet " in unit.read_text(), f"{unit.name} starts another binary")
    say("the tarball runs below /usr/local")


def units_are_sound(machine):
    """systemd takes the units, and finds little that they could still be denied."""
    folder = machine.path("/lib/systemd/system")
    names = [path.name for path in sorted(folder.glob("martlet*.service"))]
    check(len(names) == 4, f"{names}")
    for name in names:
        instance = name.replace("@.", "@n1.")
        command = ["systemd-analyze", "verify", "--man=no", "--recursive-errors=no", f"--root={machine.root}", instance]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        ours = [line for line in (done.stdout + done.stderr).splitlines() if "martlet" in line]
        check(done.returncode == 0 and not ours, f"{instance}: {done.stdout}{done.stderr}")
        command = ["systemd-analyze", "security", "--offline=yes", "--threshold=20", str(folder / name)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        check(done.returncode == 0, f"{name} is exposed: {done.stdout.splitlines()[-1:]}")
    say("systemd verifies all four units; their exposure is below 2.0")


def run(packages, clean, booting):
    """Runs all steps in a folder of its own."""
    package = next(packages.glob("martlet_*_*.deb"))
    with tempfile.TemporaryDirectory(prefix="martlet-dist-") as name:
        folder = pathlib.Path(name)
        machine = Machine(clean, folder)
        try:
            later, version = bumped(package, folder)
            objects = Objects(folder)
            shutil.copy(package, machine.path("/tmp/first.deb"))
            unused(machine, package)
            check_installed(machine)
            say("installed, not started, settings and data for the user martlet alone")
            client = first_start(machine, objects)
            service = restarts(machine, objects, client)
            upgrade(machine, service, objects, client, later, version)
            removal(machine, objects, client, package, later)
            linked(machine, package, client, objects)
            filtered(machine, folder, objects, client)
            cluster(machine, objects)
            units_are_sound(machine)
            tarball(machine, packages)
            probe = pathlib.Path(__file__).parent / "probe.sh"
            booted.check_booted(booting, folder, (package, later), probe, say)
            image.check_image(next(packages.glob("martlet-*-oci-*.tar")), folder, objects, say)
        finally:
            for mounted in ("proc", "dev"):
                subprocess.run(["umount", "-l", machine.root / mounted], check=False)


def main():
    packages, clean, booting = (pathlib.Path(path).resolve() for path in sys.argv[1:4])
    if "MARTLET_DIST_INSIDE" not in os.environ:
        os.environ["MARTLET_DIST_INSIDE"] = "1"
        os.execvp("unshare", ["unshare", "--net", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc",
                              sys.executable, "-B", *sys.argv])
    subprocess.run(["ip", "link", "set", "lo", "up"], check=True)
    begin = time.monotonic()
    try:
        run(packages, clean, booting)
    except Failed as failure:
        sys.exit(f"dist: FAILED: {failure}")
    print(f"dist: all held, in {time.monotonic() - begin:.0f} s")


if __name__ == "__main__":
    main()
