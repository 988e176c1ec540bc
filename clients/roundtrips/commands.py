"""Clients that are commands: running them, and the files that they read and write."""

import itertools
import os
import subprocess
from pathlib import Path

WORK = Path(os.environ["TMPDIR"])

_numbers = itertools.count()


def run(*command, data=None):
    """What a command wrote to its standard output; it must end well."""
    done = subprocess.run(command, input=data, capture_output=True)
    if done.returncode != 0:
        raise AssertionError(f"{command[1:]} ended with {done.returncode}:\n{done.stderr.decode(errors='replace')}")
    return done.stdout


def file_of(data):
    """A file with these bytes."""
    path = WORK / f"to-send-{next(_numbers)}"
    path.write_bytes(data)
    return str(path)


def new_path():
    """Where a command may write a file."""
    return WORK / f"received-{next(_numbers)}"


def folder_of(objects, below):
    """A folder with one file for each object, whose keys all start with `below`."""
    folder = WORK / "many-to-send"
    folder.mkdir()
    for key, data in objects.items():
        (folder / key.removeprefix(below)).write_bytes(data)
    return str(folder)
