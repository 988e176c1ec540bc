"""The examples of a page of the documentation, as they stand there.

A block of `python` is a program. A block of `console` has commands after `$ `, which a backslash continues, and
what they print below. `cat FILE` shows a file, which is made with what the page shows.
"""

import os
import re
import subprocess
from dataclasses import dataclass
from pathlib import Path

DOCS = Path(__file__).resolve().parents[2] / "docs"
PROGRAM_S, COMMAND_S = 180, 60


@dataclass
class Block:
    heading: str
    kind: str
    text: str
    line: int


def blocks(page):
    """All blocks of a page, in order, each with the heading that it stands under."""
    found, heading, fence = [], "", None
    for number, line in enumerate((DOCS / page).read_text().splitlines(), 1):
        if fence is None and (title := re.match(r"#+ (.*)", line)):
            heading = title[1]
        elif line.startswith("```"):
            if fence is None:
                fence = Block(heading, line.removeprefix("```"), "", number + 1)
            else:
                found.append(fence)
                fence = None
        elif fence is not None:
            fence.text += line + "\n"
    assert fence is None, f"a block of {page} does not end"
    return found


def run_program(block, folder, environment, interpreter):
    """Runs a block of Python."""
    done = subprocess.run([interpreter, "-B", "-W", "ignore", "-c", block.text], cwd=folder,
                          env={**os.environ, **environment}, capture_output=True, text=True, timeout=PROGRAM_S)
    if done.returncode:
        raise AssertionError(f"the example in line {block.line} ended with {done.returncode}:\n{done.stderr[-3000:]}")


def commands(block):
    """Pairs of a command and what the page shows below it."""
    pairs, is_continued = [], False
    for line in block.text.splitlines():
        if line.startswith("$ "):
            pairs.append([line[2:], ""])
        elif is_continued:
            pairs[-1][0] += "\n" + line
        else:
            pairs[-1][1] += line + "\n"
            continue
        is_continued = line.endswith("\\")
    return pairs


def run_console(block, folder, environment):
    """Runs the commands of a block, and compares what they print with what the page shows."""
    for command, shown in commands(block):
        if file := re.fullmatch(r"cat (\S+)", command):
            (Path(folder) / file[1]).write_text(shown)
            continue
        done = subprocess.run(["bash", "-c", f"set -o pipefail; {command}"], cwd=folder, capture_output=True,
                              text=True, env={**os.environ, **environment}, timeout=COMMAND_S)
        if done.returncode:
            raise AssertionError(f"line {block.line}: {command}: {done.returncode}\n{done.stdout}{done.stderr}")
        if shown and done.stdout.strip() != shown.strip():
            raise AssertionError(f"line {block.line}: {command} printed\n{done.stdout}and the page shows\n{shown}")
