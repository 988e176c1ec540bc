"""s3fs-fuse: a bucket as a folder, read and written by paths."""

import errno
import os
import subprocess
import time
from concurrent.futures import ThreadPoolExecutor

import bare
import suite
from commands import WORK

MOUNT = WORK / "mounted"
READY_S = 60


class Mounted:
    # What is no path, or another one; names of a file have 255 bytes.
    impossible_keys = ("folder/", "a/../b", "./dot", "../up", "double//slash", "k" * 1020, "ü" * 510)

    def make_bucket(self):
        bare.make_bucket()
        MOUNT.mkdir()
        self.daemon = mount()

    def put(self, key, data):
        path = MOUNT / key
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)

    def get(self, key):
        return (MOUNT / key).read_bytes()

    # Everything above one part's size goes in parts.
    def put_parts(self, key, data):
        self.put(key, data)
        assert bare.parts(key) >= 2
        suite.same(bare.get(key), data, "what lies in the bucket")

    def get_range(self, key, first, last):
        with open(MOUNT / key, "rb") as file:
            file.seek(first)
            return file.read(last - first + 1)

    def put_many(self, objects):
        with ThreadPoolExecutor(8) as pool:
            list(pool.map(lambda item: self.put(*item), objects.items()))

    def keys(self, prefix):
        paths = [path for path in MOUNT.rglob("*") if path.is_file()]
        return [key for path in paths if (key := str(path.relative_to(MOUNT))).startswith(prefix)]

    def delete(self, key):
        (MOUNT / key).unlink()

    def empty(self):
        for path in sorted(MOUNT.rglob("*"), reverse=True):
            path.rmdir() if path.is_dir() else path.unlink()

    def more(self, rng):
        self.changed_in_place(rng)
        self.paths()
        bare.put("from-elsewhere", b"seen")
        suite.same(self.get("from-elsewhere"), b"seen", "what another client wrote")

    def changed_in_place(self, rng):
        data = bytearray(rng.randbytes(30 * suite.MIB))
        self.put("changed", bytes(data))
        change = rng.randbytes(100_000)
        at = 11 * suite.MIB + 3
        data[at:at + len(change)] = change
        with open(MOUNT / "changed", "r+b") as file:
            file.seek(at)
            file.write(change)
        # The rest of it is copied in the server, part by part.
        suite.same(bare.get("changed"), bytes(data), "what was changed in place")
        with open(MOUNT / "changed", "ab") as file:
            file.write(b"more")
        os.truncate(MOUNT / "ranges", 1000)
        suite.same((bare.get("changed")[-4:], len(bare.get("ranges"))), (b"more", 1000), "ends of files")

    def paths(self):
        (MOUNT / "a/b").mkdir(parents=True)
        (MOUNT / "a/b/file").write_bytes(b"1")
        os.rename(MOUNT / "a", MOUNT / "c")
        suite.same((MOUNT / "c/b/file").read_bytes(), b"1", "a file in a folder that was renamed")
        os.chmod(MOUNT / "c/b/file", 0o640)
        os.symlink("b/file", MOUNT / "c/link")
        suite.same((MOUNT / "c/link").read_bytes(), b"1", "what a link points to")
        assert os.stat(MOUNT / "c/b/file").st_mode & 0o777 == 0o640
        try:
            (MOUNT / "c").rmdir()
            raise AssertionError("a folder went with files in it")
        except OSError as error:
            suite.same(error.errno, errno.ENOTEMPTY, "an error")

    def remove_bucket(self):
        subprocess.run(["fusermount3", "-u", str(MOUNT)], check=True, timeout=READY_S)
        suite.same(self.daemon.wait(READY_S), 0, "its exit code")
        suite.same((bare.keys(), bare.uploads()), ([], []), "what was left in the bucket")
        bare.remove_bucket()


def mount():
    secrets = WORK / "secrets"
    secrets.write_text(f"{os.environ['AWS_ACCESS_KEY_ID']}:{os.environ['AWS_SECRET_ACCESS_KEY']}")
    secrets.chmod(0o600)
    options = [f"passwd_file={secrets}", f"url={os.environ['MARTLET_ENDPOINT']}", "use_path_request_style",
               f"endpoint={os.environ['AWS_REGION']}", "multipart_size=8", "singlepart_copy_limit=8",
               "stat_cache_expire=1"]
    # In the foreground, so that whoever ends this process and its children ends it too.
    daemon = subprocess.Popen(["s3fs", bare.BUCKET, str(MOUNT), "-f", "-o", ",".join(options)])
    deadline = time.monotonic() + READY_S
    while not os.path.ismount(MOUNT):
        assert daemon.poll() is None and time.monotonic() < deadline, "it was not mounted"
        time.sleep(0.05)
    return daemon


try:
    suite.main(Mounted())
finally:
    if os.path.ismount(MOUNT):
        subprocess.run(["fusermount3", "-u", "-z", str(MOUNT)], timeout=READY_S)
