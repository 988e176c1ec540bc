#!/usr/bin/env python3
"""Writes an OCI image from a binary and the libraries that it loads, without a daemon.

The image has no shell and no package manager: the binary, the dynamic linker, the C and C++ libraries, certificate
authorities, a user, and the licenses of all these. The archive holds an OCI layout, and the index of a `docker save`
beside it, so that podman, skopeo, containerd and docker load it. Equal inputs make equal bytes.
"""

import argparse
import datetime
import gzip
import hashlib
import io
import json
import os
import pathlib
import re
import subprocess
import sys
import tarfile

USER = 65532
LINKS_MAX = 40
GZIP_LEVEL = 9
LAYER = "application/vnd.oci.image.layer.v1.tar+gzip"
CONFIG = "application/vnd.oci.image.config.v1+json"
MANIFEST = "application/vnd.oci.image.manifest.v1+json"
INDEX = "application/vnd.oci.image.index.v1+json"
CERTIFICATES = "/etc/ssl/certs/ca-certificates.crt"


class Layer:
    """Tar archive whose entries are sorted, and none younger than the image."""

    def __init__(self, epoch):
        self.epoch = epoch
        self.entries = {}

    def add(self, path, body=None, mode=0o644, owner=0, link=None):
        """Adds a file, a link or (without both) a folder. Folders above it are added if they are missing."""
        path = path.strip("/")
        above = path.rpartition("/")[0]
        if above and above not in self.entries:
            self.add(above, mode=0o755)
        entry = tarfile.TarInfo(path)
        entry.mtime = self.epoch
        entry.mode = mode
        entry.uid = entry.gid = owner
        if link is not None:
            entry.type, entry.linkname = tarfile.SYMTYPE, link
        elif body is None:
            entry.type = tarfile.DIRTYPE
        else:
            entry.size = len(body)
        self.entries[path] = (entry, body)

    def tar(self):
        """Returns the bytes of the archive."""
        out = io.BytesIO()
        with tarfile.open(fileobj=out, mode="w", format=tarfile.GNU_FORMAT) as archive:
            for path in sorted(self.entries):
                entry, body = self.entries[path]
                archive.addfile(entry, io.BytesIO(body) if body is not None else None)
        return out.getvalue()


def libraries(binary, root):
    """Returns the paths below `root` of the libraries that a binary needs, and of its dynamic linker.

    The needed names are read from the binary instead of executing it, so that images of other architectures can be made.
    """
    folders = [folder for place in ("lib", "usr/lib") for folder in sorted((root / place).glob("*-linux-gnu*"))]
    folders += [root / "lib64", root / "lib"]
    found, waiting = {}, [binary]
    while waiting:
        file = waiting.pop()
        headers = subprocess.run(["readelf", "-ldW", file], check=True, capture_output=True, text=True).stdout
        machine = elf_machine(file)
        for interpreter in re.findall(r"Requesting program interpreter: (\S+)\]", headers):
            waiting += place(found, interpreter, inside(root, interpreter))
        for name in re.findall(r"\(NEEDED\)\s+Shared library: \[(.+?)\]", headers):
            if any(pathlib.PurePath(path).name == name for path in found):
                continue
            paths = [f"/{folder.relative_to(root)}/{name}" for folder in folders]
            fitting = [path for path in paths if elf_machine(inside(root, path)) == machine]
            if not fitting:
                sys.exit(f"oci: {name} is needed by {file}, and not below {root}")
            waiting += place(found, fitting[0], inside(root, fitting[0]))
    return found


def place(found, path, file):
    """Notes a library; returns it as a list if it is new."""
    if path in found:
        return []
    found[path] = file
    return [file]


def inside(root, path):
    """Returns the file that a path leads to within a root: its links, absolute ones too, are followed there."""
    parts, at, steps = list(pathlib.PurePath(path).parts[1:]), root, 0
    while parts:
        part, *parts = parts
        at = at.parent if part == ".." and at != root else at / part
        if at.is_symlink():
            steps += 1
            if steps > LINKS_MAX:
                sys.exit(f"oci: {path} is a circle of links")
            target = pathlib.PurePath(os.readlink(at))
            parts = list(target.parts[1:] if target.is_absolute() else target.parts) + parts
            at = root if target.is_absolute() else at.parent
    return at


def elf_machine(path):
    """Returns the architecture of an ELF file, as its header has it."""
    if not path.is_file():
        return None
    with open(path, "rb") as file:
        head = file.read(20)
    return head[18:20] if head[:4] == b"\x7fELF" else None


def licenses(root, files):
    """Returns the copyright files of the Debian packages that own these files."""
    texts = {}
    for file in files:
        path = "/" + str(file.relative_to(root))
        for name in (path, path.removeprefix("/usr")):
            command = ["dpkg-query", f"--root={root}", "-S", name]
            owners = subprocess.run(command, capture_output=True, text=True).stdout
            for owner in re.findall(r"^(\S+?)(?::\w+)?: ", owners, re.M):
                text = root / "usr/share/doc" / owner / "copyright"
                if text.exists():
                    texts[f"usr/share/doc/{owner}/copyright"] = text.read_bytes()
    return texts


def layer_of(options):
    """Returns the layer with everything that the binary needs to run."""
    layer = Layer(options.epoch)
    layer.add("usr/bin/martlet", options.binary.read_bytes(), mode=0o755)
    shared = libraries(options.binary, options.root)
    for path, file in shared.items():
        layer.add(path, file.read_bytes(), mode=0o755)
    authorities = inside(options.root, CERTIFICATES)
    layer.add(CERTIFICATES, authorities.read_bytes())
    owned = list(shared.values()) + [options.root / "usr/share/doc/ca-certificates/copyright"]
    for path, text in licenses(options.root, owned).items():
        layer.add(path, text)
    for path in options.document:
        layer.add(f"usr/share/doc/martlet/{path.name}", path.read_bytes())
    layer.add("etc/passwd", f"root:x:0:0::/:/\nmartlet:x:{USER}:{USER}::/var/lib/martlet:/\n".encode())
    layer.add("etc/group", f"root:x:0:\nmartlet:x:{USER}:\n".encode())
    layer.add("etc/nsswitch.conf", b"passwd: files\ngroup: files\nhosts: files dns\n")
    layer.add("tmp", mode=0o1777)
    # A volume that is made from this folder takes its owner and mode.
    layer.add("var/lib/martlet", mode=0o700, owner=USER)
    return layer


def config_of(options, diff_id, created):
    """Returns the image's configuration: `martlet server`, as a user of its own, in a volume."""
    return {
        "created": created,
        "architecture": options.architecture,
        "os": "linux",
        "config": {
            "User": f"{USER}:{USER}",
            "ExposedPorts": {"9000/tcp": {}, "9001/tcp": {}},
            "Env": ["PATH=/usr/bin"],
            "Entrypoint": ["/usr/bin/martlet"],
            # Flags, not variables: variables would win over the settings files of other roles.
            "Cmd": ["server", "--data-dir", "/var/lib/martlet", "--s3-address", "0.0.0.0:9000",
                    "--admin-address", "0.0.0.0:9001", "--admin-allow-clear"],
            "Volumes": {"/var/lib/martlet": {}},
            "WorkingDir": "/var/lib/martlet",
            "StopSignal": "SIGTERM",
            "Labels": labels(options),
        },
        "rootfs": {"type": "layers", "diff_ids": [diff_id]},
        "history": [{"created": created, "created_by": "dist/oci.py"}],
    }


def labels(options):
    """Returns the labels of the image."""
    return {
        "org.opencontainers.image.title": "martlet",
        "org.opencontainers.image.description": "S3-compatible object store for datasets and checkpoints",
        "org.opencontainers.image.version": options.version,
        "org.opencontainers.image.revision": options.revision,
        "org.opencontainers.image.licenses": "Apache-2.0",
    }


class Blobs:
    """Content of an image, by its digests."""

    def __init__(self):
        self.files = {}

    def add(self, body, media_type):
        """Adds a blob and returns its descriptor."""
        digest = hashlib.sha256(body).hexdigest()
        self.files[path_of(f"sha256:{digest}")] = body
        return {"mediaType": media_type, "digest": f"sha256:{digest}", "size": len(body)}


def path_of(digest):
    """Returns the path of a blob within a layout."""
    return "blobs/" + digest.replace(":", "/")


def encode(document):
    """Returns a JSON document as bytes that are equal for equal documents."""
    return json.dumps(document, sort_keys=True, separators=(",", ":")).encode()


def archive(options):
    """Returns the bytes of the image's archive."""
    created = datetime.datetime.fromtimestamp(options.epoch, datetime.timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")
    tar = layer_of(options).tar()
    blobs = Blobs()
    layer = blobs.add(gzip.compress(tar, GZIP_LEVEL, mtime=0), LAYER)
    config = blobs.add(encode(config_of(options, "sha256:" + hashlib.sha256(tar).hexdigest(), created)), CONFIG)
    manifest = blobs.add(encode({
        "schemaVersion": 2, "mediaType": MANIFEST, "config": config, "layers": [layer],
        "annotations": {**labels(options), "org.opencontainers.image.created": created},
    }), MANIFEST)
    manifest["platform"] = {"architecture": options.architecture, "os": "linux"}
    name = f"martlet:{options.version}"
    # The first is podman's name of the image, the second containerd's.
    manifest["annotations"] = {
        "org.opencontainers.image.ref.name": name,
        "io.containerd.image.name": f"docker.io/library/{name}",
    }
    out = Layer(options.epoch)
    for path, body in blobs.files.items():
        out.add(path, body)
    out.add("oci-layout", encode({"imageLayoutVersion": "1.0.0"}))
    out.add("index.json", encode({"schemaVersion": 2, "mediaType": INDEX, "manifests": [manifest]}))
    out.add("manifest.json", encode([
        {"Config": path_of(config["digest"]), "Layers": [path_of(layer["digest"])], "RepoTags": [name]},
    ]))
    return out.tar()


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--binary", type=pathlib.Path, required=True)
    parser.add_argument("--root", type=pathlib.Path, default=pathlib.Path("/"), help="system whose libraries are taken")
    parser.add_argument("--architecture", required=True)
    parser.add_argument("--version", required=True)
    parser.add_argument("--revision", required=True)
    parser.add_argument("--document", type=pathlib.Path, action="append", default=[])
    parser.add_argument("--out", type=pathlib.Path, required=True)
    options = parser.parse_args()
    options.root = options.root.resolve()
    options.epoch = int(os.environ["SOURCE_DATE_EPOCH"])
    options.out.write_bytes(archive(options))
    print(options.out)


if __name__ == "__main__":
    main()
