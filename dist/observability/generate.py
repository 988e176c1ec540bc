#!/usr/bin/env python3
"""Writes dashboards and alert rules, or checks that the committed ones are what this generator makes.

Usage: generate.py [--check] [--runbooks URL] [--jobs MATCHER] [--scale N] [--rules FILE]
"""

import argparse
import pathlib
import sys

import yaml
from grafana_foundation_sdk.cog.encoder import JSONEncoder

import alerts
import dashboards

HERE = pathlib.Path(__file__).resolve().parent
HEAD = "# Made by `make dashboards` from dist/observability/alerts.py.\n"
# The package installs docs/RUNBOOKS.md there.
RUNBOOKS = "file:///usr/share/doc/martlet/RUNBOOKS.md"
JOBS = 'job=~".*martlet.*"'
# Each runbook and matcher of jobs in the chart's copy, which its template replaces.
CHART = HERE.parent / "helm/martlet/files/rules.yaml"
CHART_RUNBOOKS, CHART_JOBS = "RUNBOOKS_URL", "job=~\"JOBS\""


def rules_text(times=alerts.Times(), runbooks=RUNBOOKS, jobs=JOBS):
    """Returns all rules as Prometheus reads them."""
    found = [{"name": name, "rules": [alert.rule(times, runbooks) for alert in members]}
             for name, members in alerts.groups(times, jobs).items()]
    return HEAD + yaml.safe_dump({"groups": found}, sort_keys=False, width=1000, allow_unicode=True)


def dashboard_text(name):
    """Returns a dashboard as Grafana reads it."""
    return JSONEncoder(sort_keys=True, indent=2).encode(dashboards.built(name)) + "\n"


def files(runbooks=RUNBOOKS, jobs=JOBS):
    """Returns the generated files and their texts."""
    made = {HERE / "dashboards" / f"{name}.json": dashboard_text(name) for name in dashboards.DASHBOARDS}
    made[HERE / "rules.yaml"] = rules_text(runbooks=runbooks, jobs=jobs)
    made[CHART] = rules_text(runbooks=CHART_RUNBOOKS, jobs=CHART_JOBS)
    return made


def differing(made):
    """Returns the files that differ from what the generator makes, and those that it doesn't make."""
    wrong = [path for path, text in made.items() if not path.exists() or path.read_text() != text]
    return wrong + [path for path in (HERE / "dashboards").glob("*") if path not in made]


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--check", action="store_true", help="change nothing; exit code 1 if a committed file differs")
    parser.add_argument("--runbooks", default=RUNBOOKS, help="URL of docs/RUNBOOKS.md")
    parser.add_argument("--jobs", default=JOBS, help="matcher of the scrape jobs of Martlet's processes")
    parser.add_argument("--scale", type=int, default=1, help="divides all durations; for tests")
    parser.add_argument("--rules", type=pathlib.Path, help="write the rules to this file, and nothing else")
    args = parser.parse_args()
    if args.rules:
        args.rules.write_text(rules_text(alerts.Times(args.scale), args.runbooks, args.jobs))
        return
    made = files(args.runbooks, args.jobs)
    if args.check:
        if wrong := differing(made):
            sys.exit(f"run `make dashboards`: it makes {', '.join(path.name for path in wrong)} otherwise")
        return
    for path, text in made.items():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    print(f"{len(dashboards.DASHBOARDS)} dashboards and {len(alerts.names())} alert rules in {HERE}")


if __name__ == "__main__":
    main()
