"""Turns, counts and table, with a cargo that only prints what the tests would print."""

import os
import stat
import sys
import tempfile
import unittest
from pathlib import Path
from unittest import mock

sys.path.insert(0, str(Path(__file__).parent))

import prove
from machines import MACHINES

# Lines of each machine, as its tests print them.
PRINTED = {
    "all_consistency_rules_hold_under_faults":
        "test x ... $MARTLET_SIM_SEEDS seeds from $MARTLET_SIM_FIRST on: 3000 operations of clients, "
        "1.50 simulated hours of load and faults in 3.0 s: 1800 hours an hour",
    "checkpoints_are_whole_or_absent_under_faults":
        "7 seeds from 1000 on: 10 operations of clients, 0.25 simulated hours of load and faults in 1.0 s: 900 hours an hour",
    "interleavings::": "explored $MARTLET_INTERLEAVINGS interleavings\nexplored 20 interleavings",
    "answers_as_the_model": "20 sequences took 3s\n20 sequences took 4s",
    "--test node": "test power_cut::x ... 25 power cuts on Ext4\n25 power cuts on Xfs",
    "--test-threads 1 power_cut": "test result: ok. 3 passed; 0 failed; 0 ignored",
    "--test server": "test soak::x ... round 0: 55 acknowledged, 90 MiB\nround 1: 45 acknowledged, 90 MiB",
    "everything_happens": "misfortune kill of [1] for 1.0 s\nmisfortune cut of [2] for 1.0 s",
    "checkpoints_survive_everything": "5 faults in 9s\n5 faults; clean",
}
COUNTED = {
    "simulation": ("operations", 3000), "sets": ("simulated hours", 0.25), "model": ("sequences", 40),
    "interleavings": ("interleavings", 10_020),
    "power-cuts": ("power cuts", 50), "cluster-power-cuts": ("tests with power cuts", 3), "soak": ("acknowledged writes", 100),
    "soak-cluster": ("faults", 2), "checkpoints": ("faults", 5),
}


class Prove(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name)
        self.page = self.folder / "PROOF.md"
        self.page.write_text(f"before\n{prove.BEGIN}\nold\n{prove.END}\nafter\n")
        cases = self.cases()
        self.program("cargo", f'case "$*" in\n{cases}\nesac\nexit ${{FAKE_EXIT:-0}}')
        self.program("make", "exit 0")
        path = f"{self.folder}:{os.environ['PATH']}"
        for patch in [
            mock.patch.multiple(prove, FOLDER=self.folder, STATE=self.folder / "state.json", PAGE=self.page),
            mock.patch.dict(os.environ, {"PATH": path}),
        ]:
            patch.start()
            self.addCleanup(patch.stop)

    def program(self, name, text):
        path = self.folder / name
        path.write_text(f"#!/bin/sh\n{text}\n")
        path.chmod(path.stat().st_mode | stat.S_IXUSR)

    def turn(self, name, state):
        machine = next(machine for machine in MACHINES if machine.name == name)
        return prove.take_turn(machine, state, 20)

    def test_each_machine_counts_what_its_tests_print(self):
        state = prove.read_state()
        for name, (unit, number) in COUNTED.items():
            self.turn(name, state)
            of = state["machines"][name]
            self.assertEqual(of["counts"][unit], number, name)
            self.assertGreater(of["seconds"], 0, name)
            self.assertEqual(of["failed"], 0, name)

    def test_seeds_go_on_where_the_last_turn_ended(self):
        state = prove.read_state()
        for _ in range(3):
            self.turn("simulation", state)
        counts = state["machines"]["simulation"]["counts"]
        self.assertEqual(counts["next seed"], 1000 + counts["seeds"])
        prove.write_state(state)
        self.assertEqual(prove.read_state(), state)

    def test_a_failed_turn_is_a_finding_with_its_output_and_counts_no_pace(self):
        state = prove.read_state()
        with mock.patch.dict(os.environ, {"FAKE_EXIT": "101"}):
            said = self.turn("model", state)
        self.assertIn("FAILS", said)
        finding, = state["findings"]
        self.assertIn("20 sequences took 3s", (self.folder / "findings" / finding["log"]).read_text())
        of = state["machines"]["model"]
        self.assertEqual((of["failed"], "pace" in of), (1, False))
        self.assertIn("* model at", prove.table(state))

    def test_a_machine_that_is_skipped_counts_no_hours(self):
        self.program("cargo", "echo SKIPPED a power cut: no root")
        state = prove.read_state()
        self.assertIn("skipped here", self.turn("power-cuts", state))
        of = state["machines"]["power-cuts"]
        self.assertEqual((of["seconds"], of["skipped"]), (0.0, 1))
        self.assertIn("| power cuts of a node | 0.00 | skipped", prove.table(state))

    def test_a_command_that_hangs_ends_with_its_children(self):
        log = self.folder / "log"
        self.assertIsNone(prove.run(["sh", "-c", "sleep 77 & sleep 77"], {}, log, 0.2))

    def test_an_interrupted_turn_counts_nothing_and_the_table_is_written(self):
        with mock.patch.object(sys, "argv", ["prove.py", "1", "--only", "soak"]), mock.patch("builtins.print"), \
                mock.patch.object(prove, "run", side_effect=KeyboardInterrupt):
            self.assertEqual(prove.main(), 0)
        self.assertIn("| load and kills of a server | 0 | not run yet |", self.page.read_text())

    def test_turns_go_to_the_machine_with_the_least_time_and_the_page_gets_the_table(self):
        with mock.patch.object(sys, "argv", ["prove.py", "0.0015", "--only", "simulation", "sets"]), \
                mock.patch.object(prove, "TURN_SECONDS", (0.2, 5)), mock.patch("builtins.print"):
            self.program("cargo", f'sleep 0.1\ncase "$*" in\n{self.cases()}\nesac')
            self.assertEqual(prove.main(), 0)
        machines = prove.read_state()["machines"]
        turns = [machines[name]["turns"] for name in ["simulation", "sets"]]
        self.assertGreater(min(turns), 3)
        self.assertLessEqual(max(turns) - min(turns), 3)
        page = self.page.read_text()
        self.assertTrue(page.startswith("before\n") and page.endswith("after\n"))
        self.assertIn("| simulation of objects | ", page)
        self.assertNotIn("old", page)

    def cases(self):
        return "\n".join(f'*"{words}"*) printf "%s\\n" "{text}";;' for words, text in PRINTED.items())


if __name__ == "__main__":
    unittest.main()
