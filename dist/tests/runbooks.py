"""Commands of docs/RUNBOOKS.md, tried in a real cluster."""

import os
import re
import subprocess

import generate
from watched import check

TEXT = generate.HERE.parent.parent / "docs/RUNBOOKS.md"


def looking():
    """Returns the commands that look and change nothing: the lines of all blocks."""
    blocks = re.findall(r"^```sh\n(.*?)^```", TEXT.read_text(), re.MULTILINE | re.DOTALL)
    return sorted({line for block in blocks for line in block.splitlines()})


def named():
    """Returns the commands of `martlet` within sentences, without arguments."""
    inline = re.findall(r"`martlet ([^`]*)`", re.sub(r"\s+", " ", TEXT.read_text()))
    return sorted({" ".join(re.match(r"(?:[a-z-]+ )*", text + " ")[0].split()) for text in inline})


def try_commands(cluster, folder):
    """Runs each command of a block at the proxy, and asks each other one for its help."""
    tools = folder / "bin"
    tools.mkdir()
    (tools / "martlet").symlink_to(cluster.binary)
    environment = {"PATH": f"{tools}:{os.environ['PATH']}", "MARTLET_ADMIN_ADDRESS": cluster.admin["p1"], "HOME": str(folder),
                   "MARTLET_CLUSTER_KEY_FILE": str(cluster.folder / "cluster.key"), "BUCKET": "train",
                   "INSTANCE": cluster.admin["n1"]}
    commands = looking() + [f"martlet {command} --help" for command in named()]
    for command in commands:
        done = subprocess.run(["bash", "-euc", command], env=environment, capture_output=True, text=True, timeout=120, check=False)
        # A census under load may find a write that is on its way, and a doctor a machine with little space.
        passes = (done.returncode == 0 or "census" in command and "things" in done.stdout
                  or "doctor" in command and " 0 failures" in done.stdout)
        check(passes, f"RUNBOOKS: {command}: {done.returncode}\n{done.stdout}{done.stderr}")
    print(f"runbooks: {len(commands)} commands work", flush=True)
