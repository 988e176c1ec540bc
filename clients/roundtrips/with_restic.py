"""restic: a repository that is filled by several at once, checked byte by byte, restored and pruned."""

import json
import os
from concurrent.futures import ThreadPoolExecutor

import bare
import suite
import tasks
from commands import WORK, new_path, run

REPOSITORY = f"s3:{os.environ['MARTLET_ENDPOINT']}/{bare.BUCKET}/backups"
os.environ.update({"RESTIC_REPOSITORY": REPOSITORY, "RESTIC_PASSWORD": "a good one",
                   "RESTIC_CACHE_DIR": str(WORK / "cache")})
HOME = WORK / "home"


def restic(*words, data=None):
    return run("restic", "--option", "s3.bucket-lookup=path", "--quiet", *words, data=data)


def snapshots():
    return json.loads(restic("snapshots", "--json")) or []


def files_of(folder):
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def init(_):
    restic("init")
    assert "backups/config" in bare.keys("backups/")


def backup(rng):
    for number in range(300):
        path = HOME / f"folder-{number % 7}" / f"file {number}"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(rng.randbytes(rng.randrange(60_000)))
    (HOME / "large").write_bytes(rng.randbytes(40 * suite.MIB + 1))
    (HOME / "empty").touch()
    restic("backup", str(HOME))
    # Sent once, found again the second time.
    packs = bare.keys("backups/data/")
    restic("backup", str(HOME))
    suite.same(len(snapshots()), 2, "snapshots")
    suite.same(bare.keys("backups/data/"), packs, "packs after a backup of nothing new")


def dump(at, body):
    restic("backup", "--stdin", "--stdin-filename", f"dump-{at}", data=body)


def backups_at_once(rng):
    bodies = [rng.randbytes(3 * suite.MIB) for _ in range(4)]
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(dump, range(4), bodies))
    for at, body in enumerate(bodies):
        suite.same(restic("dump", "--path", f"/dump-{at}", "latest", f"/dump-{at}"), body, f"dump {at}")


def check(_):
    restic("check", "--read-data")


def restore(_):
    into = new_path()
    restic("restore", "latest", "--path", str(HOME), "--target", str(into))
    found, expected = files_of(into / str(HOME).lstrip("/")), files_of(HOME)
    suite.same(sorted(found), sorted(expected), "names of what was restored")
    assert found == expected


def forget_and_prune(rng):
    (HOME / "large").unlink()
    restic("backup", str(HOME))
    before = len(bare.keys("backups/data/"))
    restic("forget", "--path", str(HOME), "--keep-last", "1", "--prune", "--max-unused", "0")
    assert len(bare.keys("backups/data/")) < before
    suite.same(len(snapshots()), 5, "snapshots")
    restic("check", "--read-data")
    suite.same(bare.keys("backups/locks/"), [], "locks")


tasks.main(init, backup, backups_at_once, check, restore, forget_and_prune)
