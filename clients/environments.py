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
    "s3torchconnector",
]


class Unprepared(Exception):
    """A client could not be installed."""


def prepare(name):
    """Installs a client unless it is there in the version that is asked for; the command that
    makes its round trips."""
    make = node if name == "aws-sdk-js" else python
    try:
        return make(name)
    except (subprocess.SubprocessError, OSError) as error:
        words = getattr(error, "stderr", None) or str(error)
        raise Unprepared(str(words).strip()[-1500:]) from error


def python(name):
    wanted, folder = HERE / f"requirements/{name}.txt", CACHE / name
    interpreter, installed = folder / "bin/python", folder / ".installed"
    if not same(wanted, installed):
        remade(folder)
        call([sys.executable, "-m", "venv", str(folder)])
        call([str(interpreter), "-m", "pip", "install", "--quiet", "--disable-pip-version-check",
              "-r", str(wanted)])
        shutil.copy(wanted, installed)
    return [str(interpreter), "-B", str(HERE / "roundtrips" / f"with_{name}.py")]


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
