"""Outcomes of planted mutants, with a cargo that passes or fails as it is told."""

import io
import os
import stat
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path
from unittest import mock

sys.path.insert(0, str(Path(__file__).parent))

import planted
import working_copy as copy

PASSES = "echo; echo running 1 test; echo 'test a::one ... ok'"
FAILS = "echo; echo running 1 test; echo 'test a::one ... FAILED'; exit 101"
LIST = """
[[mutant]]
name = "n"
rule = "R1"
file = "a/src/lib.rs"
before = "1 < 2"
after = "1 > 2"
found_by = "unit martlet-a a::"
"""


class Planted(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name)
        self.root = self.folder / "root"
        self.write("a/Cargo.toml", "[package]\nname = 'martlet-a'\n[dependencies]\nmartlet-b = {}\n")
        self.write("b/Cargo.toml", "[package]\nname = 'martlet-b'\n")
        self.write("a/src/lib.rs", "fn a() -> bool { 1 < 2 }\n")
        self.write("Cargo.lock", "")
        self.write("tests/mutants/planted/kind.toml", LIST)
        self.write(".gitignore", "/.rocksdb\n")
        self.write(".rocksdb/lib", "")
        subprocess.run(["git", "init", "-q"], cwd=self.root, check=True)
        out = self.folder / "out"
        for patch in [
            mock.patch.multiple(copy, ROOT=self.root, FOLDER=out, TREE=out / "tree"),
            mock.patch.multiple(planted, LISTS=self.root / "tests/mutants/planted", STATE=out / "planted.json"),
            mock.patch.dict(os.environ, {"PATH": f"{self.folder}:{os.environ['PATH']}"}),
        ]:
            patch.start()
            self.addCleanup(patch.stop)

    def write(self, name, text):
        path = self.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)

    def cargo(self, text):
        path = self.folder / "cargo"
        path.write_text(f"#!/bin/sh\n{text}\n")
        path.chmod(path.stat().st_mode | stat.S_IXUSR)

    def of_mutant(self, text):
        """A cargo that runs `text` where the mutant is planted, and passes elsewhere."""
        self.cargo(f"if grep -q '1 > 2' a/src/lib.rs; then {text}; else {PASSES}; fi")

    def main(self, *arguments):
        with mock.patch.object(sys, "argv", ["planted.py", *arguments]), mock.patch("builtins.print") as said:
            code = planted.main()
        return code, "\n".join(str(call.args[0]) for call in said.call_args_list if call.args)

    def refused(self, *arguments):
        """The message of an error of the list."""
        with mock.patch("sys.stderr", io.StringIO()) as said, mock.patch.object(sys, "argv", ["planted.py", *arguments]), \
                mock.patch("sys.stdout", io.StringIO()), self.assertRaises(SystemExit):
            planted.main()
        return said.getvalue()

    def test_a_mutant_is_found_where_its_check_fails(self):
        for text, code, word in [
            (FAILS, 0, "found by a::one"), (PASSES, 1, "SURVIVED"), ("echo error; exit 101", 1, "DOES NOT BUILD"),
        ]:
            self.of_mutant(text)
            ended, said = self.main("--again")
            self.assertEqual(ended, code, said)
            self.assertIn(word, said)
            self.assertIn("1 < 2", (copy.TREE / "a/src/lib.rs").read_text(), "the file is restored")
            self.assertIn("1 < 2", (self.root / "a/src/lib.rs").read_text(), "the tree is not touched")

    def test_results_hold_until_a_source_of_the_package_or_of_one_that_it_needs_changes(self):
        self.of_mutant(FAILS)
        self.main()
        self.assertNotIn("[1/1]", self.main()[1])
        self.write("b/src/lib.rs", "// Another one.\n")
        self.assertIn("[1/1]", self.main()[1])
        self.write("docs/PAGE.md", "A page.\n")
        self.assertNotIn("[1/1]", self.main()[1])

    def test_a_mutant_that_no_longer_applies_is_an_error_that_names_its_list(self):
        for text in ["fn a() {}\n", "fn a() -> bool { 1 < 2 && 1 < 2 }\n"]:
            self.write("a/src/lib.rs", text)
            said = self.refused("--list")
            self.assertIn("no longer applies", said)
            self.assertIn("planted/kind.toml", said)

    def test_checks_that_fail_without_a_mutant_or_name_no_test_are_errors(self):
        for text, words in [(FAILS, "fails without a mutant"), ("echo; echo running 0 tests", "no test of martlet-a")]:
            self.cargo(text)
            self.assertIn(words, self.refused("--again"))

    def test_the_copy_follows_the_tree(self):
        copy.refresh()
        (copy.TREE / "a/src/lib.rs").write_text("a mutant that an interrupted run left behind")
        self.write("b/src/gone.rs", "")
        copy.refresh()
        self.assertTrue((copy.TREE / "b/src/gone.rs").is_file())
        (self.root / "b/src/gone.rs").unlink()
        copy.refresh()
        self.assertFalse((copy.TREE / "b/src/gone.rs").exists())
        self.assertIn("1 < 2", (copy.TREE / "a/src/lib.rs").read_text())


if __name__ == "__main__":
    unittest.main()
