"""The OCI image: read by skopeo, unpacked by umoci, run by crun, and probed from outside."""

import json
import os
import subprocess
import time

from machine import S3, check, credentials_of, fetch

USER = 65532
START_MAX_S = 120


def check_image(archive, folder, objects, say):
    """Runs the image twice over one volume: objects of the first container are read from the second."""
    check_layout(archive, folder)
    bundle = unpack(archive, folder)
    if os.path.ismount("/sys/fs/cgroup/unified"):
        # crun takes no mixture of both versions of cgroups; this mount is seen by these tests alone.
        run("mount", "-t", "cgroup2", "none", "/sys/fs/cgroup")
    volume = folder / "volume"
    volume.mkdir(mode=0o700)
    os.chown(volume, USER, USER)
    configure(bundle, volume)
    with Container(bundle, folder, "first") as container:
        client = S3(credentials_of(volume / "credentials"))
        printed = container.printed()
        check("/var/lib/martlet/credentials" in printed, f"the place of the credentials is not told:\n{printed}")
        check(client.secret not in printed, "the log of the container has the secret")
        objects.put(client)
    with Container(bundle, folder, "second"):
        objects.check(client, "in the second container")
    say("the image runs without root, capabilities and a writable root; its volume outlives a container")


def check_layout(archive, folder):
    """Every reader takes the archive: as OCI layout, and as docker's."""
    for kind in ("oci-archive", "docker-archive"):
        seen = json.loads(run("skopeo", "inspect", f"{kind}:{archive}"))
        check(seen["Os"] == "linux" and len(seen["Layers"]) == 1, f"{kind}: {seen}")
        check(seen["Labels"]["org.opencontainers.image.title"] == "martlet", f"{kind}: {seen}")
    run("skopeo", "copy", "-q", f"oci-archive:{archive}", f"oci:{folder}/layout:image")


def unpack(archive, folder):
    """Returns a bundle with the image's root and configuration."""
    bundle = folder / "bundle"
    run("umoci", "unpack", "--image", f"{folder}/layout:image", str(bundle))
    root = bundle / "rootfs"
    names = {str(path.relative_to(root)) for path in root.rglob("*") if os.access(path, os.X_OK) and path.is_file()}
    programs = {name for name in names if ".so" not in name}
    check(programs == {"usr/bin/martlet"}, f"programs in the image: {programs}")
    return bundle


def configure(bundle, volume):
    """Adds what an orchestrator would: the volume, the network, no capability, a root that can't be written."""
    path = bundle / "config.json"
    config = json.loads(path.read_text())
    process = config["process"]
    check(process["user"]["uid"] == USER, f"the image runs as {process['user']}")
    process["terminal"] = False
    process["noNewPrivileges"] = True
    process["capabilities"] = {}
    process.pop("rlimits", None)
    config["root"]["readonly"] = True
    namespaces = config["linux"]["namespaces"]
    config["linux"]["namespaces"] = [it for it in namespaces if it["type"] in ("pid", "mount", "ipc", "uts")]
    config["linux"].pop("resources", None)
    config["mounts"] = [it for it in config["mounts"] if it["destination"] in ("/proc", "/dev")]
    config["mounts"].append({"destination": "/var/lib/martlet", "type": "bind", "source": str(volume),
                             "options": ["bind", "rw", "nosuid", "nodev"]})
    path.write_text(json.dumps(config))


def run(*command):
    """Runs a command and returns what it printed."""
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    check(done.returncode == 0, f"{' '.join(command)}: {done.stdout}{done.stderr}")
    return done.stdout


class Container:
    """Running container, which is stopped in good order at the end."""

    def __init__(self, bundle, folder, name):
        self.bundle, self.name = bundle, f"martlet-dist-{os.getpid()}-{name}"
        self.state = folder / "crun"
        self.log = folder / f"{name}.log"

    def crun(self, *arguments):
        return ["crun", f"--root={self.state}", "--cgroup-manager=disabled", *arguments]

    def __enter__(self):
        with open(self.log, "wb") as log:
            command = self.crun("run", "--bundle", str(self.bundle), self.name)
            self.process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        until = time.monotonic() + START_MAX_S
        while fetch("http://127.0.0.1:9001/readyz")[0] != 200:
            check(self.process.poll() is None and time.monotonic() < until, f"the image doesn't run:\n{self.printed()}")
            time.sleep(0.2)
        return self

    def __exit__(self, *_):
        subprocess.run(self.crun("kill", self.name, "TERM"), check=False)
        try:
            check(self.process.wait(START_MAX_S) == 0, f"the container ended with {self.process.returncode}:\n{self.printed()}")
        finally:
            subprocess.run(self.crun("delete", "--force", self.name), check=False, capture_output=True)

    def printed(self):
        """Returns what the container printed."""
        return self.log.read_text(errors="replace")
