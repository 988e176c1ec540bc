#!/usr/bin/env python3
"""Checks dashboards, alert rules and runbooks without a cluster: generated files, names, and series for each alert.

Usage: observability.sh alert_rules.py
"""

import pathlib
import re
import subprocess
import sys
import tempfile

import yaml

import alert_cases
import alerts
import faults
import generate
import metrics

REPOSITORY = generate.HERE.parent.parent
RUNBOOK_PARTS = ["Meaning", "Users see", "Look", "Do", "Over"]


class Wrong(Exception):
    """Something that dashboards, rules or runbooks have wrong."""


def check(holds, sentence):
    """Fails with a sentence unless something holds."""
    if not holds:
        raise Wrong(sentence)


def promtool(*arguments):
    """Runs promtool. What it finds wrong raises `Wrong` with its words."""
    done = subprocess.run(["promtool", *arguments], capture_output=True, text=True, check=False)
    check(done.returncode == 0, done.stdout + done.stderr)


def rendered(text, case):
    """Returns an annotation as Prometheus renders it."""
    text = re.sub(r"\{\{ \$labels\.(\w+) \}\}", lambda found: case.labels.get(found[1], ""), text)
    return re.sub(r"\{\{ \$value[^}]*\}\}", case.value, text)


def test_of(alert, case):
    """Returns promtool's test of one case: silent until the fault lasts, then firing, then over."""
    rule = alert.rule(alerts.Times(), generate.RUNBOOKS)
    annotations = {key: rendered(text, case) for key, text in rule["annotations"].items()}
    fired = [{"exp_labels": {**case.labels, **rule["labels"]}, "exp_annotations": annotations}]
    expected = {case.silent: [], case.fires: fired, case.ended: []}
    return {"interval": "1m", "name": alert.name,
            "input_series": [{"series": name, "values": values}
                             for name, values in {**alert_cases.healthy(), **case.series}.items()],
            "alert_rule_test": [{"eval_time": f"{minute}m", "alertname": alert.name, "exp_alerts": fired}
                                for minute, fired in expected.items()]}


def quiet_test(found):
    """Returns promtool's test of a healthy day, in which no alert fires."""
    return {"interval": "1m", "name": "quiet",
            "input_series": [{"series": name, "values": values} for name, values in alert_cases.healthy().items()],
            "alert_rule_test": [{"eval_time": f"{minute}m", "alertname": alert.name, "exp_alerts": []}
                                for alert in found for minute in (1, 30, 130, 700, 1400)]}


def check_rules(found):
    """Each alert fires when it should, and ends; none fires in a healthy day."""
    promtool("check", "rules", str(generate.HERE / "rules.yaml"))
    check(set(alert_cases.CASES) == {alert.name for alert in found}, "an alert has no case, or a case no alert")
    tests = [test_of(alert, case) for alert in found for case in alert_cases.CASES[alert.name]] + [quiet_test(found)]
    with tempfile.TemporaryDirectory() as folder:
        file = pathlib.Path(folder) / "tests.yaml"
        file.write_text(yaml.safe_dump({"rule_files": [str(generate.HERE / "rules.yaml")], "evaluation_interval": "1m",
                                        "tests": tests}, sort_keys=False))
        promtool("test", "rules", str(file))
    return len(tests)


def check_names():
    """Names of metrics stand in metrics.py alone, and each is used."""
    for file in ("alerts.py", "dashboards.py", "generate.py"):
        named = re.findall(r"martlet_[a-z_]+", (generate.HERE / file).read_text())
        check(not named, f"{file} names {named}: metrics.py has all names")
    text = "".join(generate.files().values())
    unused = [it.name for it in metrics.all_metrics() if it.name not in text]
    check(not unused, f"no dashboard and no alert reads {unused}")


def check_runbooks(found):
    """Each alert has a section with all parts, and each section an alert."""
    text = (REPOSITORY / "docs/RUNBOOKS.md").read_text()
    sections = {part.split("\n", 1)[0]: part for part in re.split(r"^## ", text, flags=re.MULTILINE)[1:]}
    named = {name for name in sections if name.startswith("Martlet")}
    check(named == {alert.name for alert in found}, f"runbooks differ from the alerts: {named ^ {it.name for it in found}}")
    for alert in found:
        missing = [part for part in RUNBOOK_PARTS if f"**{part}.**" not in sections[alert.name]]
        check(not missing, f"the runbook of {alert.name} lacks {missing}")


def main():
    found = [alert for group in alerts.groups(alerts.Times(), generate.JOBS).values() for alert in group]
    try:
        wrong = generate.differing(generate.files())
        check(not wrong, f"run `make dashboards`: it makes {', '.join(path.name for path in wrong)} otherwise")
        check_names()
        count = check_rules(found)
        check_runbooks(found)
        incomplete = faults.wrong(alerts.names())
        check(not incomplete, f"dist/tests/faults: {'; '.join(incomplete)}")
    except Wrong as wrong:
        sys.exit(f"observability: FAILED: {wrong}")
    print(f"observability: {len(found)} alerts hold in {count} tests; dashboards, rules and runbooks fit together")


if __name__ == "__main__":
    main()
