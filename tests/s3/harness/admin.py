"""The command `martlet admin`, spoken to a server or a proxy."""

import json
import os
import subprocess

from . import server as harness


class Refused(Exception):
    """The command said no: its sentence."""

    def __init__(self, code, sentence):
        super().__init__(sentence)
        self.code = code


def admin(admin_port, *words, secret=harness.SECRET_KEY, environment=()):
    """The answer of `martlet admin … --json`."""
    command = [str(harness.binary()), "admin", "--admin-address", f"127.0.0.1:{admin_port}",
               "--json", *words]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False,
                          env={**os.environ, "MARTLET_ROOT_SECRET_KEY": secret, **dict(environment)})
    if done.returncode:
        raise Refused(done.returncode, done.stderr.strip())
    return json.loads(done.stdout)
