"""The package `martlet` of this repository: its wheel, its checks, its own tests against a fake and against the server."""

import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import bare
import suite

SOURCE = Path(__file__).resolve().parents[1] / "python"
SITE = Path.cwd() / "site"
TOOLS = Path(sys.executable).parent


def run(*command, folder=SOURCE):
    """Runs a command; its output is shown only if it fails."""
    environment = {**os.environ, "PYTHONPATH": str(SITE), "MYPY_CACHE_DIR": str(Path.cwd() / "mypy")}
    done = subprocess.run([*map(str, command)], cwd=folder, env=environment, capture_output=True, text=True)
    if done.returncode:
        raise AssertionError(f"{command[0]} ended with {done.returncode}\n{done.stdout[-8000:]}\n{done.stderr[-2000:]}")
    return done.stdout


def install():
    """Builds the wheel and installs it where nothing else is."""
    pip = (sys.executable, "-m", "pip", "--disable-pip-version-check", "--quiet")
    run(*pip, "wheel", "--no-deps", "--no-build-isolation", "--wheel-dir", SITE.parent, SOURCE)
    [wheel] = SITE.parent.glob("martlet-*-py3-none-any.whl")
    run(*pip, "install", "--no-deps", "--no-index", "--target", SITE, wheel)


install()
sys.path.insert(0, str(SITE))

import martlet  # noqa: E402


class Martlet:
    def __init__(self):
        self.client = martlet.Client(endpoint=os.environ["MARTLET_ENDPOINT"])

    def url(self, key):
        return martlet.Address(bare.BUCKET, key)

    def make_bucket(self):
        bare.make_bucket()

    def put(self, key, data):
        self.client.write(self.url(key), data)

    def get(self, key):
        return bytes(self.client.read(self.url(key)).view)

    def put_parts(self, key, data):
        with martlet.Client(endpoint=os.environ["MARTLET_ENDPOINT"], part_bytes=8 * suite.MIB) as client:
            client.write(self.url(key), data)
        suite.same(bare.parts(key), 4, "parts")

    def get_range(self, key, first, last):
        memory = bytearray(last - first + 1)
        self.client.read_into(self.url(key), [(first, memory)])
        return bytes(memory)

    def put_many(self, objects):
        with ThreadPoolExecutor(8) as pool:
            list(pool.map(lambda item: self.put(*item), objects.items()))

    def keys(self, prefix):
        return [it.key for it in self.client.listing(martlet.Address(bare.BUCKET, prefix))]

    def delete(self, key):
        self.client.delete(self.url(key))

    def empty(self):
        for key in self.keys(""):
            self.delete(key)

    def more(self, _):
        run(TOOLS / "ruff", "check", "--no-cache", ".")
        run(TOOLS / "ruff", "format", "--no-cache", "--check", ".")
        run(TOOLS / "mypy")
        print(run(sys.executable, "-m", "pytest"))

    def remove_bucket(self):
        bare.remove_bucket()


suite.main(Martlet())
