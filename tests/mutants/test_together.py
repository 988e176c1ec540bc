"""Choices between mutants in one build, with programs in place of cargo and of the tests."""

import io
import os
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path
from unittest import mock

sys.path.insert(0, str(Path(__file__).parent))

import together
import working_copy as copy

CODE = '''
//! A { in a comment. /* And "one more.
const OPEN: char = '{';
const QUOTE: char = '\\'';
static TEXT: &str = "{\\"";
static RAW: &str = r#"{ " "#;
type Call = fn(u8) -> u8;
/* { /* nested { */ */
struct Held<'a>(&'a str);

pub const fn two() -> u8 {
    2
}

impl<'a> Held<'a> {
    async fn less(&self, other: u8) -> bool {
        fn inner(value: u8) -> u8 {
            value + 1
        }
        match '}' {
            _ => inner(other) < two(),
        }
    }
}

trait Named {
    fn name(&self) -> [u8; 2];
}
'''


class Together(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name)
        self.root, self.tree = self.folder / "root", self.folder / "out/tree"
        self.write("Cargo.toml", "")
        self.write("a/src/lib.rs", CODE)
        self.write(".gitignore", "/.rocksdb\n")
        self.write(".rocksdb/lib", "")
        subprocess.run(["git", "init", "-q"], cwd=self.root, check=True)
        for patch in [
            mock.patch.multiple(copy, ROOT=self.root, FOLDER=self.folder / "out", TREE=self.tree),
            mock.patch.dict(os.environ, {"PATH": f"{self.folder}:{os.environ['PATH']}"}),
            mock.patch("sys.stdout", io.StringIO()),
        ]:
            patch.start()
            self.addCleanup(patch.stop)

    def write(self, name, text):
        path = self.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)

    def program(self, name, script):
        path = self.folder / name
        path.write_text(f"#!/bin/sh\n{script}\n")
        path.chmod(0o755)
        return str(path)

    def change(self, before, after, number):
        begin = CODE.index(before)
        return together.Change(after, "a/src/lib.rs", begin, begin + len(before), after, number)

    def test_bodies_are_those_of_functions_that_run(self):
        found = [CODE[begin:end].split("\n")[1].strip() for begin, end in sorted(together.bodies(CODE))]
        self.assertEqual(found, ["fn inner(value: u8) -> u8 {", "value + 1"])

    def test_each_mutant_is_one_choice_and_the_original_the_last(self):
        inner, outer = self.change("value + 1", "value - 1", 1), self.change("other) <", "other) >", 2)
        constant = self.change("    2\n", "    3\n", 3)
        text, apart = together.choices(CODE, [inner, outer, constant])
        self.assertEqual(apart, [constant])
        lines = text.split("\n")
        for change in (inner, outer):
            copied = "\n".join(lines[change.arm[0] - 1 : change.arm[1]])
            self.assertTrue(copied.startswith(f"{change.number} => {{"), copied)
            self.assertIn(change.after, copied)
        # The copy of the outer function has the original inner one.
        self.assertIn("value + 1", "\n".join(lines[outer.arm[0] - 1 : outer.arm[1]]))
        self.assertEqual(text.count("crate::chosen_mutant()"), 2)
        self.assertEqual(text.count("value - 1"), 1)

    def test_a_mutant_that_does_not_build_is_left_out(self):
        good, bad = self.change("value + 1", "value - 1", 0), self.change("other) <", "other) is", 0)
        self.program("cargo", """
            if grep -q 'other) is' a/src/lib.rs; then
                echo 'error: expected an operator'
                echo "  --> a/src/lib.rs:$(grep -n 'other) is' a/src/lib.rs | cut -d: -f1):9"
                exit 101
            fi
            echo '  Executable unittests src/lib.rs (/built/a)'
        """)
        binary, built, apart = together.build([good, bad], "martlet-a", self.folder / "log")
        self.assertEqual((binary, built, apart), ("/built/a", [good], [bad]))
        self.assertIn("pub(crate) fn chosen_mutant", (self.tree / "a/src/lib.rs").read_text())
        self.assertEqual((self.root / "a/src/lib.rs").read_text(), CODE)

    def test_a_build_that_fails_without_a_mutant_is_an_error(self):
        self.program("cargo", "echo 'error: no space left'; exit 101")
        with mock.patch("sys.stderr", io.StringIO()) as said, self.assertRaises(SystemExit):
            together.build([self.change("value + 1", "value - 1", 0)], "martlet-a", self.folder / "log")
        self.assertIn("no mutant is the reason", said.getvalue())

    def test_tests_end_at_the_first_failure(self):
        (self.tree / "a").mkdir(parents=True)
        tests = self.program("tests", """
            case "$MARTLET_MUTANT $*" in
                "0 a:: b::") echo "test a::one ... ok";;
                "1 "*) echo "test a::one ... ok"; echo "test a::two ... FAILED"; sleep 60;;
                "2 "*) exit 101;;
                *) sleep 60;;
            esac
        """)
        log = self.folder / "log"
        run = lambda number, seconds=30: together.run(tests, "martlet-a", number, ["a::", "b::"], seconds, log)
        self.assertEqual(run(0), ("survived", None))
        self.assertEqual(run(1), ("found", "a::two"))
        self.assertIn("test a::one ... ok", log.read_text())
        self.assertEqual(run(2), ("found", None))
        self.assertEqual(run(3, 0.2), ("hung", None))


if __name__ == "__main__":
    unittest.main()
