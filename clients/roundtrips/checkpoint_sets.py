"""Frameworks that save into checkpoint sets, are killed in mid-save, and resume from the view.

A framework is an object with these attributes and methods:

    name                          of its folder in the bucket, and of its row in the output
    rule                          its checkpoint rule, without the pattern
    saves_again                   False if it never writes into a folder that holds a checkpoint
    state_of(seed)                a state to save; another seed, other bytes
    save(where, state)            into `where`, which is `BUCKET/folder/`
    load(where, like)             a state of the shape of `like`
    equal(one, another)

Each saver is a forked process of its own. First it loads the newest complete checkpoint through the view, by
the framework's own reader; then it saves. A relay kills some of the savers before the n-th request that writes.
Whatever the view shows afterwards must be a state that some saver saved, whole.
"""

import json
import multiprocessing
import os
import re
import signal
import sys
import time
import traceback

import bare
import suite
from write_tap import WriteTap

VIEW = f"{bare.BUCKET}--committed"
ROUNDS = int(os.environ.get("MARTLET_ROUNDS") or 2)
CHILD_S, COMMIT_S = 180, 90
# A change of the rules applies to writes that begin a second later.
RULES_S = 1.5

_context = multiprocessing.get_context("fork")


def main(*frameworks):
    """Takes each framework through its saves; the last line tells which."""
    make_bucket({it.name: it.rule for it in frameworks})
    steps = [(it.name, Trial(it).run) for it in frameworks]
    done = suite.run(steps)
    print(f"{', '.join(done)}: saved, killed in mid-save, resumed through the view")
    sys.exit(0)


def make_bucket(rules):
    """The bucket, with versions and a rule for the folders `NAME/step-*/` of each name."""
    bare.make_bucket()
    bare.ask("PUT", query="versioning=", data=b"<VersioningConfiguration><Status>Enabled</Status></VersioningConfiguration>")
    document = {"rules": [{"pattern": f"{name}/step-*/", **rule} for name, rule in rules.items()]}
    bare.ask("PUT", query="checkpoints=", data=json.dumps(document).encode())
    time.sleep(RULES_S)


def view_steps(name):
    """Numbers of the steps that the view shows, in order."""
    prefix = f"{name}/step-"
    return sorted({int(key.removeprefix(prefix).split("/")[0]) for key in bare.keys(prefix, bucket=VIEW)})


def generations(folder):
    """The generations of a set."""
    query = f"checkpoint={folder.replace('/', '%2F')}"
    return json.loads(bare.ask("GET", query=query)[1])["generations"]


def versions(folder):
    """Key, time and ETag of each version below a folder, for messages."""
    page = bare.ask("GET", query=f"prefix={folder.replace('/', '%2F')}&versions=")[1].decode()
    found = re.findall(r"<Key>([^<]*)</Key>.*?<LastModified>([^<]*)<(?:.*?<ETag>([^<]*)<)?", page, re.DOTALL)
    return "\n".join(" ".join(one) for one in found)


class Trial:
    """A framework, and what the view may show of it."""

    def __init__(self, framework):
        self.framework, self.tap = framework, WriteTap(os.environ["MARTLET_ENDPOINT"])
        # Seeds of the states that a step may have in the view; a step that was complete once stays.
        self.possible, self.complete = {}, set()
        self.kills = 0

    def run(self, rng):
        self.save(1, rng)
        writes = self.tap.writes
        assert writes > 0, "no request that writes was seen"
        for step in range(2, 2 + ROUNDS):
            # Into a folder that is empty yet, and into one that holds a complete checkpoint.
            for number in range(2 if self.framework.saves_again else 1):
                self.save(step, rng, kill_at=rng.randint(1, writes))
                self.save(step, rng)
        self.child(self.check_last, None)
        print(f"{self.framework.name}: {writes} writes a save, {self.kills} savers killed", flush=True)

    def folder(self, step):
        return f"{self.framework.name}/step-{step}/"

    def save(self, step, rng, kill_at=None):
        """A saver that resumes from the view, and saves a step."""
        seed = rng.getrandbits(30)
        self.possible.setdefault(step, set()).add(seed)
        newest = max(view_steps(self.framework.name), default=None)
        was_killed = self.child(lambda pipe: self.resume_and_save(pipe, newest, step, seed), newest, kill_at)
        if was_killed:
            self.kills += 1
            print(f"{self.folder(step)}: killed before write {kill_at}", flush=True)
            return
        self.wait_until_committed(step)
        self.possible[step] = {seed}
        self.complete.add(step)
        # What was there when the marker came may be in the view too, such as the marker's temporary name.
        hidden = set(bare.keys(self.folder(step))) - set(bare.keys(self.folder(step), bucket=VIEW))
        assert not hidden, f"keys of {self.folder(step)} that the view does not show: {hidden}"

    def wait_until_committed(self, step):
        deadline = time.monotonic() + COMMIT_S
        while (found := generations(self.folder(step)))[-1]["state"] != "committed":
            assert time.monotonic() < deadline, (
                f"{self.folder(step)} is not committed in {COMMIT_S} s: {found}\n{versions(self.folder(step))}")
            time.sleep(0.5)

    def check_last(self, pipe):
        self.resume(pipe, max(self.possible))

    def child(self, work, newest, kill_at=None):
        """Runs `work(pipe)` in a process of its own group; returns True if it was killed by the relay. The seed of
        the state that it loaded from the view must be a possible one."""
        missing = self.complete - set(view_steps(self.framework.name))
        assert not missing, f"complete steps that the view does not show: {missing}"
        ours, theirs = _context.Pipe()
        process = _context.Process(target=in_group, args=(work, theirs, self.tap.endpoint))
        process.start()
        self.tap.begin(process.pid, kill_at)
        try:
            ours.send("begin")
            if newest is not None:
                loaded = receive(ours)
                # From now on it is known.
                self.possible[newest] = {loaded}
                self.complete.add(newest)
            process.join(CHILD_S)
            if process.exitcode == -signal.SIGKILL and kill_at:
                self.tap.settle()
                return True
            if process.exitcode != 0:
                raise AssertionError(f"a saver ended with {process.exitcode}:\n{receive(ours)}")
            return False
        finally:
            if process.is_alive():
                os.killpg(process.pid, signal.SIGKILL)
                process.join()

    def resume_and_save(self, pipe, newest, step, seed):
        if newest is not None:
            self.resume(pipe, newest)
        self.framework.save(f"{bare.BUCKET}/{self.folder(step)}", self.framework.state_of(seed))

    def resume(self, pipe, newest):
        """Loads a step through the view, and sends the seed of what it is."""
        like = self.framework.state_of(0)
        state = self.framework.load(f"{VIEW}/{self.folder(newest)}", like)
        for seed in self.possible[newest]:
            if self.framework.equal(state, self.framework.state_of(seed)):
                pipe.send(seed)
                return
        raise AssertionError(f"{self.folder(newest)} is none of the states that were saved: {self.possible[newest]}")


def receive(pipe):
    """Message of a saver. Its failure is raised here."""
    if not pipe.poll(CHILD_S):
        raise AssertionError(f"a saver did nothing for {CHILD_S} s")
    sent = pipe.recv()
    if isinstance(sent, str):
        raise AssertionError(sent)
    return sent


def in_group(work, pipe, endpoint):
    """Work of a forked process: it leads a group, so that its own processes die with it."""
    os.setpgid(0, 0)
    os.environ["AWS_ENDPOINT_URL"] = endpoint
    pipe.recv()
    try:
        work(pipe)
    except BaseException:
        pipe.send(traceback.format_exc()[-4000:])
        raise
