"""Where each client lives, and how it gets there: pinned, in an environment of its own."""

import filecmp
import os
import shutil
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
CACHE = Path(os.environ.get("MARTLET_CLIENTS") or Path.home() / ".cache/martlet/clients")
INSTALL_S = 1800

# In the order in which they run; the largest download comes last.
CLIENTS = [
    "boto3", "awscli", "s3cmd", "rclone", "s3fs", "pyarrow", "minio", "obstore", "aws-sdk-js",
    "opendal", "s4cmd", "tensorstore", "zarr", "deltalake", "duckdb", "datasets",
    "restic", "s3fs-fuse", "browser", "checkpoints-orbax", "martlet", "import",
    "s3torchconnector", "torch-dcp", "webdataset", "mosaicml-streaming", "litdata", "runai-model-streamer",
    "checkpoints-dcp", "checkpoints-megatron", "checkpoints-msc", "checkpoints-hf", "checkpoints-page",
]

# Foreign clients that need torch share one environment: torch alone takes 5 GB.
TORCH = "s3torchconnector"
SHARED = dict.fromkeys(CLIENTS[CLIENTS.index(TORCH):], TORCH)

# Clients from Debian: a command of each, and the packages that hold it.
DEBIAN = {
    "restic": ("restic", ["restic"]),
    "s3fs-fuse": ("s3fs", ["s3fs", "fuse3"]),
    "browser": ("chromium", ["chromium"]),
    "webdataset": ("curl", ["curl"]),
    "litdata": ("openssl", ["openssl"]),
    "checkpoints-page": ("curl", ["curl"]),
}


class Unprepared(Exception):
    """A client could not be installed."""


def prepare(name):
    """Installs a client unless it is there in the version that is asked for; the command that
    makes its round trips."""
    make = node if name == "aws-sdk-js" else python
    try:
        prepare_system(name)
        return make(name)
    except (subprocess.SubprocessError, OSError) as error:
        words = getattr(error, "stderr", None) or str(error)
        raise Unprepared(str(words).strip()[-1500:]) from error


def prepare_system(name):
    """Installs what a client needs of the system's packages."""
    command, packages = DEBIAN.get(name, (None, []))
    if command and not shutil.which(command):
        sudo = [] if os.geteuid() == 0 else ["sudo"]
        call([*sudo, "apt-get", "update", "-qq"])
        call([*sudo, "apt-get", "install", "-y", "-qq", "--no-install-recommends", *packages])


def python(name):
    shared = SHARED.get(name, name)
    script = HERE / "roundtrips" / f"with_{name.replace('-', '_')}.py"
    wanted, folder = HERE / f"requirements/{shared}.txt", CACHE / shared
    interpreter, installed = folder / "bin/python", folder / ".installed"
    if not wanted.exists():
        return [sys.executable, "-B", str(script)]
    if not same(wanted, installed):
        remade(folder)
        call([sys.executable, "-m", "venv", str(folder)])
        call([str(interpreter), "-m", "pip", "install", "--quiet", "--disable-pip-version-check",
              "-r", str(wanted)])
        shutil.copy(wanted, installed)
    return [str(interpreter), "-B", str(script)]


def node(name):
    wanted, folder = HERE / f"requirements/{name}", CACHE / name
    installed = folder / ".installed"
    script = "with_aws_sdk_js.mjs"
    if not same(wanted / "package-lock.json", installed):
        remade(folder)
        for file in ("package.json", "package-lock.json"):
            shutil.copy(wanted / file, folder / file)
        call(["npm", "ci", "--no-audit", "--no-fund", "--loglevel", "error"], cwd=folder)
        shutil.copy(wanted / "package-lock.json", installed)
    # Modules are looked for beside the script.
    shutil.copy(HERE / "roundtrips" / script, folder / script)
    return ["node", str(folder / script)]


def same(one, other):
    return other.exists() and filecmp.cmp(one, other, shallow=False)


def remade(folder):
    """An empty folder, whatever was there."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)


def call(command, cwd=None):
    subprocess.run(command, cwd=cwd, check=True, capture_output=True, text=True, timeout=INSTALL_S)
