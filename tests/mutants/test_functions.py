"""Results of cargo-mutants, with a program in its place that writes what it would write."""

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

import functions
import working_copy as copy

CAUGHT = "a/src/lib.rs:1:9: replace < with > in one"
MISSED = "a/src/lib.rs:2:9: replace < with <= in two"
REASON = '[[survivor]]\nfile = "a/src/lib.rs"\nchange = "{}"\nreason = "both write the held value once more"\n'


class Functions(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name)
        self.root = self.folder / "root"
        self.write("a/Cargo.toml", "[package]\nname = 'martlet-a'\n")
        self.write("a/src/lib.rs", "\n")
        self.write("Cargo.lock", "")
        self.write(".gitignore", "/.rocksdb\n")
        self.write(".rocksdb/lib", "")
        self.write("survivors.toml", "")
        subprocess.run(["git", "init", "-q"], cwd=self.root, check=True)
        out = self.folder / "out"
        self.lists = out / "functions/mutants.out"
        tool = self.folder / "cargo-mutants"
        for patch in [
            mock.patch.multiple(copy, ROOT=self.root, FOLDER=out, TREE=out / "tree"),
            mock.patch.multiple(
                functions, STATE=out / "functions.json", OUTPUT=out / "functions", REASONS=self.root / "survivors.toml"
            ),
            mock.patch.dict(os.environ, {"CARGO_MUTANTS": str(tool)}),
        ]:
            patch.start()
            self.addCleanup(patch.stop)
        self.tool = tool
        self.ends_with(CAUGHT, MISSED, 2)

    def write(self, name, text):
        path = self.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)

    def ends_with(self, caught, missed, code):
        """A tool that reports these mutants."""
        self.tool.write_text(
            f"#!/bin/sh\nmkdir -p {self.lists}\necho '{caught}' > {self.lists}/caught.txt\n"
            f"echo '{missed}' > {self.lists}/missed.txt\nexit {code}\n"
        )
        self.tool.chmod(self.tool.stat().st_mode | stat.S_IXUSR)

    def main(self, *arguments):
        with mock.patch("sys.stdout", io.StringIO()) as said, mock.patch.object(sys, "argv", ["functions.py", *arguments]):
            code = functions.main()
        return code, said.getvalue()

    def test_a_survivor_needs_a_reason(self):
        code, said = self.main()
        self.assertEqual(code, 1)
        self.assertIn(f"SURVIVED: {MISSED}", said)
        self.write("survivors.toml", REASON.format("replace < with <= in two"))
        code, said = self.main()
        self.assertEqual(code, 0, said)
        self.assertNotIn("SURVIVED", said)

    def test_a_reason_whose_mutant_is_caught_is_an_error(self):
        self.write("survivors.toml", REASON.format("replace < with > in one"))
        code, said = self.main()
        self.assertEqual(code, 1)
        self.assertIn("remove the entry", said)

    def test_results_are_kept_until_a_source_changes(self):
        self.main()
        self.assertIn(MISSED, self.main("--report")[1])
        self.write("a/src/more.rs", "// More.\n")
        self.assertNotIn(MISSED, self.main("--report")[1])
        self.assertEqual((self.lists / "missed.txt").read_text(), "")

    def test_a_tool_that_fails_is_an_error(self):
        self.ends_with(CAUGHT, MISSED, 4)
        with mock.patch("sys.stderr", io.StringIO()) as said, self.assertRaises(SystemExit):
            self.main()
        self.assertIn("cargo-mutants ended with 4", said.getvalue())


if __name__ == "__main__":
    unittest.main()
