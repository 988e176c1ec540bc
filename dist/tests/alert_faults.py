#!/usr/bin/env python3
"""Makes faults in a real cluster: each alert fires and ends, none fires in a quiet time, and each dashboard has data.

Usage: MARTLET_BIN=PROGRAM observability.sh alert_faults.py [--scale 60] [--only FAULT …], or --quiet-hour. It needs root, for
mounts.
"""

import argparse
import json
import re
import shutil
import signal
import sys
import time

import alerts
import dashboards
import faults
import generate
import metrics
from runbooks import try_commands
from watched import Cluster, Failed, Hook, Load, Prometheus, check, enter_own_namespaces, folder_of_test, until

ENDS_MAX_S = 300
SETTLES_S = 30
# Time between two lines about a quiet hour of the unscaled rules.
REPORTS_S = 600
RULES = b'{"rules":[{"pattern":"run-*/step-*/","profile":"custom","markers":["done"],"settle":3600}]}'
VERSIONED = b"<VersioningConfiguration><Status>Enabled</Status></VersioningConfiguration>"
NOTIFIED = (b"<NotificationConfiguration><QueueConfiguration><Queue>arn:martlet:sqs:::hook</Queue>"
            b"<Event>s3:ObjectCreated:*</Event></QueueConfiguration></NotificationConfiguration>")


class Test:
    """Cluster, Prometheus and load, and what was seen."""

    def __init__(self, folder, scale):
        self.folder, self.scale = folder, scale
        self.started, self.seen, self.made = [], {}, set()

    def start(self):
        """Starts everything."""
        self.hook = self.keep(Hook())
        self.cluster = self.keep(Cluster(self.folder, self.hook))
        self.cluster.wait()
        self.prometheus = self.keep(Prometheus(self.folder, self.cluster, self.scale))
        self.prepare()
        self.load = self.keep(Load(self.cluster.s3))

    def keep(self, part):
        """Closes a part at the end."""
        self.started.append(part.close)
        return part

    def close(self):
        """Ends everything that was started, the last first."""
        for end in reversed(self.started):
            end()

    def prepare(self):
        """Makes buckets."""
        for bucket, settings in {"load": {"notification": NOTIFIED}, "large": {},
                                 "train": {"versioning": VERSIONED, "checkpoints": RULES}}.items():
            check(self.cluster.s3.request("PUT", f"/{bucket}")[0] == 200, f"no bucket {bucket}")
            for name, body in settings.items():
                status, reply = self.cluster.s3.request("PUT", f"/{bucket}", body, {name: ""})
                check(status < 300, f"{bucket}: {name}: {status} {reply}")

    def quiet(self):
        """Watches a quiet hour. Returns its beginning and its end."""
        time.sleep(SETTLES_S)
        start, failed = time.time(), self.load.failed
        time.sleep(3600 / self.scale)
        end = time.time()
        fired = self.prometheus.fired(start, end)
        check(not fired, f"in the quiet time {sorted(fired)} fired: {json.dumps(list(self.prometheus.firing().values()))}")
        check(self.load.failed == failed, f"in the quiet time {self.load.failed - failed} requests failed")
        print(f"quiet: no alert in {end - start:.0f} s, which stand for an hour", flush=True)
        return start, end

    def look(self):
        """Returns the alerts that fire now, and keeps them for the checks of texts."""
        firing = self.prometheus.firing()
        self.seen |= firing
        return firing

    def settle(self):
        """Waits until no alert fires."""
        until(ENDS_MAX_S, lambda: not self.look(), lambda: f"{sorted(self.prometheus.firing())} didn't end")

    def waiting(self):
        """Returns hints and items of workers that still wait."""
        found = [self.prometheus.get("query", query=f"{metric} > 0")["result"] for metric in (
            metrics.DEVICE_HINTS.of(), metrics.WORKER_BACKLOG.of(alerts.REPAIR))]
        return [{**it["metric"], "value": it["value"][1]} for result in found for it in result]

    def bring_about(self, kinds):
        """Makes faults, waits for their alerts, repairs them, and waits for the end of all alerts. No other one may fire."""
        made, began = [kind(self) for kind in kinds], time.time()
        expected = {name for fault in made for name in fault.expected}
        possible = {name for fault in made for name in fault.possible}
        limit_s = max(fault.fires_max_s for fault in made)
        begun, first = [], {}

        def fires():
            for fault in made:
                fault.go_on()
            for name in self.prometheus.fired(began, time.time()):
                first.setdefault(name, time.time() - began)
            self.look()
            return expected <= set(first)

        try:
            for fault in made:
                begun.append(fault)
                fault.begin()
            until(limit_s, fires, lambda: f"{sorted(expected - set(first))} didn't fire")
        finally:
            for fault in begun:
                fault.end()
        repaired = time.time()
        self.settle()
        ended = time.time()
        until(ENDS_MAX_S, lambda: not self.waiting(), lambda: f"after the repair {self.waiting()} wait")
        fired = self.prometheus.fired(began, time.time())
        self.made |= expected
        times = ", ".join(f"{name} after {first[name]:.0f} s" for name in sorted(expected, key=first.get))
        names = ", ".join(kind.__name__ for kind in kinds)
        print(f"{names}: {times or 'none'}; all ended {ended - repaired:.0f} s "
              f"after the repair; besides {', '.join(sorted(fired - expected)) or 'none'}", flush=True)
        unexpected = {name: self.seen.get(name, {}).get("labels") for name in sorted(fired - expected - possible)}
        check(not unexpected, f"no fault of {names} should cause {json.dumps(unexpected)}")


    def quiet_hour(self):
        """Watches an hour of the rules as they are shipped: no alert fires, and no request fails."""
        time.sleep(SETTLES_S)
        start, failed, made = time.time(), self.load.failed, self.load.made
        for due_s in range(REPORTS_S, 3601, REPORTS_S):
            while time.time() < start + due_s:
                time.sleep(5)
                firing = self.prometheus.firing()
                check(not firing, f"after {time.time() - start:.0f} s {json.dumps(list(firing.values()))}")
            pending = self.prometheus.pending(start, time.time())
            print(f"{due_s // 60} of 60 minutes: {self.load.made - made} requests; pending for a while: "
                  f"{', '.join(f'{name} {seconds} s' for name, seconds in pending.items()) or 'none'}", flush=True)
        end = time.time()
        fired = self.prometheus.fired(start, end)
        check(not fired, f"in the quiet hour {sorted(fired)} fired")
        check(self.load.failed == failed, f"in the quiet hour {self.load.failed - failed} requests failed")
        names = {rule["name"] for group in self.prometheus.get("rules")["groups"] for rule in group["rules"]
                 if rule["health"] == "ok"}
        check(names == set(alerts.names()), f"Prometheus didn't evaluate {sorted(set(alerts.names()) - names)}")
        print(f"quiet hour: none of {len(names)} alerts fired in {end - start:.0f} s of {self.load.made - made} requests")


def check_dashboards(prometheus, quiet, whole):
    """Each query of each dashboard has data: in the quiet time, or at the latest with the fault that it names."""
    count, late, wrong = 0, [], []
    for name, (_, _, panels) in dashboards.DASHBOARDS.items():
        page = json.loads((generate.HERE / "dashboards" / f"{name}.json").read_text())
        written = [target["expr"] for panel in page["panels"] for target in panel["targets"]]
        queries = [(panel, query) for panel in panels() for query in panel.queries]
        check(written == [query.expression for _, query in queries], f"{name}.json isn't what the generator makes")
        for panel, query in queries:
            count += 1
            expression = query.expression.replace(dashboards.WINDOW, "15s").replace("$cluster", ".*")
            if query.needs:
                late.append(f"{panel.title} ({query.needs})")
            found = prometheus.range(expression, *(whole if query.needs else quiet))
            missing = [label for label in re.findall(r"{{(\w+)}}", query.legend) if not all(label in it for it, _ in found)]
            if not found or missing:
                wrong.append(f"{name}: {panel.title}: {f'no labels {missing}' if found else 'no data'} for {expression}")
    check(not wrong, "\n".join(wrong))
    print(f"dashboards: {count} queries have data; {len(late)} of them only with a fault: {', '.join(late)}")


def check_texts(seen):
    """Annotations of alerts that fired are rendered whole."""
    for name, alert in seen.items():
        for key, text in alert["annotations"].items():
            check("<" not in text and "{{" not in text, f"{name}: {key}: {text}")


def attempt(part, *arguments):
    """Runs a part of the test, and returns its failure: the other parts are run all the same."""
    try:
        part(*arguments)
    except Failed as failed:
        print(f"FAILED: {failed}", flush=True)
        return [failed]
    return []


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--scale", type=int, default=60, help="divisor of all durations")
    parser.add_argument("--only", nargs="*", help="faults to make, by name; dashboards are not checked then")
    parser.add_argument("--quiet-hour", action="store_true", help="watch the unscaled rules for an hour without a fault")
    args = parser.parse_args()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: sys.exit("alerts: interrupted"))
    if wrong := faults.wrong(alerts.names()):
        sys.exit("alerts: FAILED: " + "; ".join(wrong))
    enter_own_namespaces()
    folder = folder_of_test()
    test = Test(folder, 1 if args.quiet_hour else args.scale)
    try:
        test.start()
        if args.quiet_hour:
            test.quiet_hour()
            return
        quiet = test.quiet()
        failures = attempt(try_commands, test.cluster, folder)
        for kinds in faults.GROUPS:
            if chosen := [kind for kind in kinds if not args.only or kind.__name__ in args.only]:
                failed = attempt(test.bring_about, chosen)
                failures += failed
                # Alerts of a group that failed must not be those of the next one.
                if failed:
                    attempt(test.settle)
        failures += attempt(check_texts, test.seen)
        if not args.only:
            failures += attempt(check_dashboards, test.prometheus, quiet, (quiet[0], time.time()))
        for name, reason in faults.NOT_MADE.items():
            print(f"{name} is not made: {reason}")
        check(not failures, f"{len(failures)} parts failed")
        print(f"alerts: {len(test.made)} fired and ended")
    except Failed as failed:
        sys.exit(f"alerts: FAILED: {failed}")
    finally:
        test.close()
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    main()
