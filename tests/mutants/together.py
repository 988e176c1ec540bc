"""Many mutants of a package in one build.

Each mutant needs a build of its own otherwise, and builds take most of the time. Here, the body of a
function that has mutants becomes a choice between the original body and one copy for each mutant:

    { match crate::chosen_mutant() { 7 => { … } 8 => { … } _ => { … } } }

The variable MARTLET_MUTANT chooses one, without a further build. All of this is in the copy of the
tree. A mutant outside of a function that runs, or whose copy doesn't compile beside the others, is
left to a build of its own.
"""

import os
import re
import select
import subprocess
import time
from dataclasses import dataclass, field

import working_copy as copy

CHOICE = """
/// Number of the mutant to run; 0 for none.
pub(crate) fn chosen_mutant() -> u32 {
    static CHOSEN: std::sync::LazyLock<u32> = std::sync::LazyLock::new(|| {
        std::env::var("MARTLET_MUTANT").ok().and_then(|it| it.parse().ok()).unwrap_or(0)
    });
    *CHOSEN
}
"""
TOKEN = re.compile(
    r"""//[^\n]*|(?P<block>/\*)|b?r(?P<hashes>\#*)"|(?P<string>b?c?")|b?'(?:\\.[^'\n]*|[^'\\\n])'|'\w+|(?P<word>\w+)|(?P<sign>[{}()\[\];])""",
    re.X,
)
ERROR = re.compile(r"^error(?:\[\w+\])?: .*\n\s*--> ([^:\n]+):(\d+):", re.M)
MORE_PLACES = re.compile(r"^\s*(?:-->|:::) ([^:\n]+):(\d+):", re.M)
FIRST = 1
FAILED = re.compile(rb"^test (.+?) \.\.\. FAILED$")


@dataclass(eq=False)
class Change:
    """A mutant: text of a file that is replaced."""

    key: str
    file: str
    begin: int
    end: int
    after: str
    number: int = 0
    arm: tuple = field(default=(0, 0))


def tokens(text):
    """Words and brackets of Rust code with their offsets, without comments, strings and characters."""
    at = 0
    while match := TOKEN.search(text, at):
        at = match.end()
        if match["block"]:
            depth = 1
            while depth and (mark := re.compile(r"/\*|\*/").search(text, at)):
                depth += 1 if mark[0] == "/*" else -1
                at = mark.end()
        elif match["hashes"] is not None:
            at = text.index('"' + match["hashes"], at) + 1 + len(match["hashes"])
        elif match["string"]:
            at = re.compile(r'(?:[^"\\]|\\.)*"', re.S).match(text, at).end()
        elif match["word"] or match["sign"]:
            yield match.start(), match[0]


def bodies(text):
    """Bodies of functions that run: offsets of the opening brace and behind the closing one."""
    found, opened, depth = [], [], 0
    before, is_const, name_at = "", False, None
    for at, token in tokens(text):
        if token == "fn":
            name_at, signature_depth = at, depth
            is_const = before == "const"
        elif token == "(" and before == "fn":
            # The type of a function.
            name_at = None
        elif token in "([{":
            if token == "{" and name_at is not None and depth == signature_depth:
                opened.append((at, depth, is_const))
                name_at = None
            depth += 1
        elif token in ")]}":
            depth -= 1
            if opened and token == "}" and opened[-1][1] == depth:
                begin, _, const = opened.pop()
                if not const:
                    found.append((begin, at + 1))
        elif token == ";" and name_at is not None and depth == signature_depth:
            name_at = None
        before = before if token in ("unsafe", "async") else token
    return found


def body_of(places, change):
    """The innermost body that contains a change."""
    around = [place for place in places if place[0] < change.begin and change.end < place[1]]
    return max(around, default=None)


def choices(text, changes):
    """The text of a file with all changes as choices. Notes in each the lines of its copy.

    Returns the text, and the changes that are in no body.
    """
    places = bodies(text)
    by_body, apart = {}, []
    for change in changes:
        body = body_of(places, change)
        (by_body.setdefault(body, []) if body else apart).append(change)

    def render(begin, end, at_line):
        """The text from begin to end, with the choices of the bodies in it."""
        parts, at = [], begin
        inner = [it for it in sorted(by_body) if begin <= it[0] and it[1] <= end and it != (begin, end)]
        outermost = [it for it in inner if not any(o[0] < it[0] and it[1] < o[1] for o in inner)]
        for first, last in outermost:
            parts.append(text[at:first])
            line = at_line + sum(part.count("\n") for part in parts)
            parts.append(choice(first, last, line))
            at = last
        return "".join([*parts, text[at:end]])

    def choice(first, last, at_line):
        parts = ["{ match crate::chosen_mutant() {\n"]
        for it in by_body[(first, last)]:
            line = at_line + sum(part.count("\n") for part in parts)
            copied = text[first : it.begin] + it.after + text[it.end : last]
            parts.append(f"{it.number} => {copied}\n")
            it.arm = (line, line + copied.count("\n"))
        line = at_line + sum(part.count("\n") for part in parts)
        parts += ["_ => ", render(first, last, line), "\n} }"]
        return "".join(parts)

    return render(0, len(text), 1), apart


def write(changes):
    """Writes all changes into the copy as choices. Returns the changes that no choice can make."""
    apart, packages = [], set()
    for file in sorted({change.file for change in changes}):
        of_file = [change for change in changes if change.file == file]
        content, outside = choices((copy.ROOT / file).read_text(), of_file)
        (copy.TREE / file).write_text(content)
        apart += outside
        packages.add(file.split("/")[0])
    for package in packages:
        lib = copy.TREE / package / "src/lib.rs"
        if CHOICE not in lib.read_text():
            lib.write_text(lib.read_text() + CHOICE)
    return apart


def broken(output, changes):
    """Changes that the errors of a build lie in."""
    found = []
    for file, line in {*ERROR.findall(output), *MORE_PLACES.findall(output)}:
        found += [it for it in changes if it.file == file and it.arm[0] <= int(line) <= it.arm[1]]
    return [it for it in changes if it in found]


def build(changes, package, log):
    """Builds the unit tests of a package with all changes that compile together.

    Returns the test binary, the changes in it, and those that need a build of their own.
    """
    for number, change in enumerate(changes, FIRST):
        change.number = number
    apart, left = [], list(changes)
    while True:
        copy.refresh()
        outside = write(left)
        apart += outside
        left = [it for it in left if it not in outside]
        command = ["cargo", "test", "--locked", "--package", package, *copy.FEATURES, "--lib", "--no-run"]
        code = copy.run(command, log, 3600)
        output = log.read_text(errors="replace")
        if code == 0:
            binary = re.search(r"^  Executable .*\((.+)\)$", output, re.M)[1]
            return binary, left, apart
        wrong = broken(output, left)
        if not wrong:
            copy.fail(f"{package} doesn't build, and no mutant is the reason; see {log}")
        print(f"  {len(wrong)} of {len(left)} don't build beside the others", flush=True)
        apart += wrong
        left = [it for it in left if it not in wrong]


def run(binary, package, number, filters, seconds, log=os.devnull):
    """Runs unit tests with a mutant until one fails, their output in a log.

    Returns found, survived or hung, and the test that failed.
    """
    folder = copy.TREE / package.removeprefix("martlet-")
    process = subprocess.Popen(
        [binary, *filters], cwd=folder, env=copy.environment(MARTLET_MUTANT=str(number)),
        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, start_new_session=True,
    )
    until, rest = time.monotonic() + seconds, b""
    output = open(log, "wb")
    try:
        while True:
            ready, _, _ = select.select([process.stdout], [], [], max(0.0, until - time.monotonic()))
            if not ready:
                return "hung", None
            read = os.read(process.stdout.fileno(), 65536)
            if not read:
                return ("survived" if process.wait() == 0 else "found"), None
            output.write(read)
            *lines, rest = (rest + read).split(b"\n")
            for failed in filter(None, map(FAILED.match, lines)):
                return "found", failed[1].decode()
    finally:
        copy.end_group(process)
        process.stdout.close()
        output.close()
