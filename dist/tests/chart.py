#!/usr/bin/env python3
"""Checks the chart: each rendering against Kubernetes' schemas, and its objects against each other.

Usage: chart.py CHART, from chart.sh, with HELM or RENDERER in the environment.
"""

import itertools
import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import tomllib

import jsonschema
import kubernetes_validate
import yaml

# Oldest that Chart.yaml allows, the one from which pods may sleep before they stop, and the newest that there are
# schemas of.
KUBERNETES = ["1.27.0", "1.30.0", kubernetes_validate.latest_version()]
# Kinds that Kubernetes has no schema of.
CUSTOM = {"ServiceMonitor", "PrometheusRule"}
GIVEN = {"secret": "cluster-secrets", "rings": {"configMap": "cluster-rings"}}
EVERYTHING = {
    **GIVEN,
    "rings": {"configMap": "cluster-rings", "files": ["index.ring", "data-0.ring", "data-1.ring"]},
    "image": {"repository": "registry.example/martlet", "tag": "9.9.9", "pullSecrets": ["registry"]},
    "fullnameOverride": "store",
    "node": {"replicas": 6, "tag": "9.9.8", "antiAffinity": "soft",
             "devices": {"count": 12, "size": "14Ti", "storageClass": "local"}, "state": {"storageClass": "fast"},
             "resources": {"requests": {"cpu": "4", "memory": "8Gi"}, "limits": {"memory": "16Gi"}},
             "nodeSelector": {"disk": "many"}, "tolerations": [{"key": "storage", "operator": "Exists"}],
             "podAnnotations": {"team": "storage"},
             "settings": {"reserve": "64MiB", "max_requests": 2048, "log": "info,martlet=\"debug\""}},
    "replicator": {"resources": {"requests": {"cpu": "1"}},
                   "settings": {"audit_rate": "100MiB", "reclaim_age": "14d"}},
    "proxy": {"replicas": 4, "tag": "9.9.7", "resources": {"limits": {"memory": "4Gi"}}, "nodeSelector": {"edge": "yes"},
              "tolerations": [{"operator": "Exists"}], "podAnnotations": {"team": "edge"}, "stateLimit": "4Gi",
              "settings": {"default_policy": "ec", "domains": ["s3.example", "objects.example"],
                           "allow_signature_v2": True},
              "service": {"type": "LoadBalancer", "port": 443, "annotations": {"balancer": "internal"}}},
    "tls": {"s3Secret": "s3-tls", "membersSecret": "member-tls", "adminSecret": "admin-tls"},
    "networkPolicy": {"clients": [{"namespaceSelector": {"matchLabels": {"team": "training"}}}],
                      "monitoring": [{"namespaceSelector": {"matchLabels": {"name": "monitoring"}}}]},
    "serviceMonitor": {"enabled": True, "interval": "15s", "labels": {"release": "prometheus"}},
    "prometheusRule": {"enabled": True, "labels": {"release": "prometheus"}, "runbooks": "https://docs.example/RUNBOOKS.md"},
}
SMALL = {**GIVEN, "node": {"replicas": 1, "antiAffinity": "none"}, "proxy": {"replicas": 1},
         "podDisruptionBudget": {"enabled": False}, "networkPolicy": {"enabled": False}}
REFUSED = [
    ({"rings": {"configMap": "r"}}, "secret must name a Secret"),
    ({"secret": "s"}, "rings.configMap must name a ConfigMap"),
    ({**GIVEN, "nodes": {"replicas": 3}}, "nodes"),
    ({**GIVEN, "node": {"replicas": 0}}, "replicas"),
    ({**GIVEN, "node": {"settings": {"data_dir": "/elsewhere"}}}, "data_dir"),
    ({**GIVEN, "proxy": {"settings": {"root_secret_key": "in a ConfigMap"}}}, "root_secret_key"),
    ({**GIVEN, "rings": {"configMap": "r", "files": ["data-0.ring", "data-1.ring"]}}, "files"),
    ({**GIVEN, "proxy": {"settings": {"admin_tls_key": "/elsewhere"}}}, "admin_tls_key"),
    ({**GIVEN, "prometheusRule": {"runbooks": "RUNBOOKS.md"}}, "runbooks"),
]


class Wrong(Exception):
    """Something that the chart has wrong."""


def check(holds, sentence):
    """Fails with a sentence unless something holds."""
    if not holds:
        raise Wrong(sentence)


class Chart:
    """Chart in a folder, and the program that renders it."""

    def __init__(self, folder):
        self.folder = folder
        self.schema = json.loads((folder / "values.schema.json").read_text())
        self.defaults = yaml.safe_load((folder / "values.yaml").read_text())

    def render(self, values, kubernetes, name="martlet", namespace="storage"):
        """Returns the rendered objects by kind and name. Refusals raise `Wrong` with the renderer's words."""
        with tempfile.NamedTemporaryFile("w", suffix=".yaml") as file:
            yaml.safe_dump(values, file)
            file.flush()
            if os.environ.get("HELM"):
                command = [os.environ["HELM"], "template", name, str(self.folder), "--namespace", namespace,
                           "--kube-version", kubernetes, "--values", file.name]
            else:
                self.check_values(values)
                command = [os.environ["RENDERER"], str(self.folder), name, namespace, "v" + kubernetes, file.name]
            done = subprocess.run(command, capture_output=True, text=True, check=False)
        check(done.returncode == 0, done.stderr)
        # Notes are text for people, and no object.
        parts = [part for part in done.stdout.split("\n---\n") if "/NOTES.txt" not in part[:80]]
        documents = [it for it in itertools.chain(*(yaml.safe_load_all(part) for part in parts)) if it]
        objects = {(it["kind"], it["metadata"]["name"]): it for it in documents}
        check(len(objects) == len(documents), "two objects of one kind share a name")
        return objects

    def check_values(self, values):
        """Holds merged values against the schema, as helm does."""
        def merge(base, over):
            both = isinstance(base, dict) and isinstance(over, dict)
            return {**base, **{key: merge(base.get(key), value) for key, value in over.items()}} if both else over

        try:
            jsonschema.validate(merge(self.defaults, values), self.schema)
        except jsonschema.ValidationError as error:
            raise Wrong(f"{list(error.path)}: {error.message}") from None


def check_schemas(objects, kubernetes):
    """Every object is one that Kubernetes of this version takes, without unknown fields."""
    for (kind, name), it in objects.items():
        if kind not in CUSTOM:
            try:
                kubernetes_validate.validate(it, ".".join(kubernetes.split(".")[:2]), strict=True)
            except kubernetes_validate.ValidationError as error:
                raise Wrong(f"{kind} {name} for {kubernetes}: {list(error.path)}: {error.message}") from None


def of_kind(objects, kind):
    """Returns the objects of a kind."""
    return [it for (found, _), it in objects.items() if found == kind]


def workloads(objects):
    """Returns the objects that make pods."""
    return of_kind(objects, "StatefulSet") + of_kind(objects, "Deployment")


def selects(selector, labels):
    """Returns true if a selector of labels matches."""
    return all(labels.get(key) == value for key, value in selector.items())


def pods(objects, selector):
    """Returns the pod templates that a selector matches."""
    return [it["spec"]["template"] for it in workloads(objects) if selects(selector, it["spec"]["template"]["metadata"]["labels"])]


def ports(template):
    """Returns the named ports of a pod, by number."""
    named = [port for container in template["spec"]["containers"] for port in container["ports"]]
    return {port["name"]: port["containerPort"] for port in named}


def check_references(objects):
    """What refers to another object finds it: services, budgets, policies, monitors, volumes, probes."""
    for it in workloads(objects):
        template = it["spec"]["template"]
        check(selects(it["spec"]["selector"]["matchLabels"], template["metadata"]["labels"]), "a workload loses its pods")
        claims = {claim["metadata"]["name"] for claim in it["spec"].get("volumeClaimTemplates", [])}
        volumes = claims | {volume["name"] for volume in template["spec"]["volumes"]}
        for volume in template["spec"]["volumes"]:
            name = volume.get("configMap", {}).get("name")
            check(name in (None, "cluster-rings") or ("ConfigMap", name) in objects, f"ConfigMap {name} is missing")
        for container in template["spec"]["containers"]:
            mounts = [mount["name"] for mount in container["volumeMounts"]]
            check(set(mounts) <= volumes, f"{container['name']} mounts {set(mounts) - volumes}")
            own = {port["name"] for port in container["ports"]}
            for probe in ("startupProbe", "livenessProbe", "readinessProbe"):
                check(container.get(probe, {}).get("httpGet", {}).get("port", next(iter(own))) in own, f"{probe} of nothing")
    for service in of_kind(objects, "Service"):
        found = pods(objects, service["spec"]["selector"])
        check(len(found) == 1, f"{service['metadata']['name']} selects {len(found)} kinds of pods")
        for port in service["spec"]["ports"]:
            check(port["targetPort"] in ports(found[0]), f"no port {port['targetPort']}")
    for budget in of_kind(objects, "PodDisruptionBudget"):
        check(len(pods(objects, budget["spec"]["selector"]["matchLabels"])) == 1, "a budget of nothing")
    for policy in of_kind(objects, "NetworkPolicy"):
        found = pods(objects, policy["spec"]["podSelector"]["matchLabels"])
        check(len(found) == 1, "a policy of nothing")
        for port in itertools.chain(*(rule["ports"] for rule in policy["spec"]["ingress"])):
            check(port["port"] in ports(found[0]), f"a policy of port {port}")
    for monitor in of_kind(objects, "ServiceMonitor"):
        selector = monitor["spec"]["selector"]["matchLabels"]
        found = [it for it in of_kind(objects, "Service") if selects(selector, it["metadata"]["labels"])]
        check(len(found) == 1, f"{monitor['metadata']['name']} selects {len(found)} services")
        served = {port["name"] for port in found[0]["spec"]["ports"]}
        check({it["port"] for it in monitor["spec"]["endpoints"]} <= served, "a monitor of a port that is not served")


def check_alerts(objects, values):
    """Rules are there if they are wanted. They link to the given runbooks, and match the jobs that monitors make."""
    wanted = values.get("prometheusRule", {}).get("enabled", False)
    found = of_kind(objects, "PrometheusRule")
    check(len(found) == wanted, f"{len(found)} objects of rules")
    for rules in found:
        alerts = [alert for group in rules["spec"]["groups"] for alert in group["rules"]]
        links = {alert["annotations"]["runbook_url"].split("#")[0] for alert in alerts}
        check(links == {values["prometheusRule"]["runbooks"]}, f"alerts link to {links}")
        matchers = {it for alert in alerts for it in re.findall(r'job=~"([^"]*)"', alert["expr"])}
        monitored = [it["spec"]["selector"]["matchLabels"] for it in of_kind(objects, "ServiceMonitor")]
        jobs = [it["metadata"]["name"] for it in of_kind(objects, "Service")
                if any(selects(selector, it["metadata"]["labels"]) for selector in monitored)]
        for matcher in matchers:
            check(jobs and all(re.fullmatch(matcher, job) for job in jobs), f"{matcher} doesn't match {jobs}")


def check_security(objects):
    """No pod runs as root, writes to its root, or has a capability; no secret stands in a ConfigMap or a command."""
    for it in workloads(objects):
        spec = it["spec"]["template"]["spec"]
        check(spec["securityContext"]["runAsNonRoot"] and not spec["automountServiceAccountToken"], "a pod of root")
        for container in spec["containers"]:
            context = container["securityContext"]
            check(context["readOnlyRootFilesystem"] and not context["allowPrivilegeEscalation"], container["name"])
            check(context["capabilities"] == {"drop": ["ALL"]}, container["name"])
            values = [it for it in container["env"] if "value" in it]
            check(not values, f"{container['name']} has values in its environment: {values}")
    check(not of_kind(objects, "Secret"), "the chart makes a secret")


def check_cluster(objects, values):
    """Nodes start together, are replaced one by one, keep their volumes, and are named as the rings name them."""
    (nodes,) = of_kind(objects, "StatefulSet")
    name = nodes["metadata"]["name"]
    service = objects["Service", nodes["spec"]["serviceName"]]
    check(service["spec"]["clusterIP"] == "None" and service["spec"]["publishNotReadyAddresses"], "nodes have no names")
    check(nodes["spec"]["podManagementPolicy"] == "Parallel", "the first node waits for others that never start")
    check(set(nodes["spec"]["persistentVolumeClaimRetentionPolicy"].values()) == {"Retain"}, "volumes are deleted")
    settings = {role: tomllib.loads(text) for role, text in settings_of(objects).items()}
    devices = settings["node.toml"]["devices"]
    count = values.get("node", {}).get("devices", {}).get("count", 1)
    check(list(devices) == [f"d{at}" for at in range(1, count + 1)], f"{devices}")
    mounts = {it["mountPath"] for it in nodes["spec"]["template"]["spec"]["containers"][0]["volumeMounts"]}
    check(set(devices.values()) <= mounts, "a device without a volume")
    for role in ("node", "replicator", "proxy"):
        for key, value in values.get(role, {}).get("settings", {}).items():
            check(settings[f"{role}.toml"][key] == value, f"{role}: {key} is {settings[f'{role}.toml'].get(key)}")
    if budgets := of_kind(objects, "PodDisruptionBudget"):
        check({it["spec"]["maxUnavailable"] for it in budgets} == {1} and len(budgets) == 2, "two may be out at once")
    check(name in (f"{values.get('fullnameOverride', 'martlet')}-node",), f"nodes are called {name}")


def check_admin_tls(objects, values):
    """Admin ports have TLS where there is a secret for it, in settings, volumes, probes and monitors alike."""
    secret = values.get("tls", {}).get("adminSecret")
    for role, text in settings_of(objects).items():
        settings = tomllib.loads(text)
        check(settings.get("admin_allow_clear", False) == (not secret), f"{role}: the admin port in clear")
        check(("admin_tls_certificate" in settings) == bool(secret), f"{role}: a certificate for the admin port")
    for it in workloads(objects):
        spec = it["spec"]["template"]["spec"]
        secrets = {volume["name"]: volume["secret"]["secretName"] for volume in spec["volumes"] if "secret" in volume}
        check(secrets.get("admin") == secret, f"volumes of {secrets}")
        for container in spec["containers"]:
            mounts = {mount["name"]: mount["mountPath"] for mount in container["volumeMounts"]}
            check(mounts.get("admin") == ("/etc/martlet/admin" if secret else None), f"{container['name']}: {mounts}")
            probes = [container[probe]["httpGet"] for probe in container if probe.endswith("Probe")]
            schemes = {probe.get("scheme", "HTTP") for probe in probes}
            check(schemes == {"HTTPS" if secret else "HTTP"}, f"{container['name']} is probed by {schemes}")
    services = {f"{it['metadata']['name']}.storage.svc" for it in of_kind(objects, "Service")}
    for endpoint in itertools.chain(*(it["spec"]["endpoints"] for it in of_kind(objects, "ServiceMonitor"))):
        check(endpoint.get("scheme", "http") == ("https" if secret else "http"), f"scraped by {endpoint}")
        if secret:
            tls = endpoint["tlsConfig"]
            check(tls["ca"]["secret"] == {"name": secret, "key": "ca.crt"}, f"authority of {tls}")
            check(tls["serverName"] in services, f"{tls['serverName']} is no service")


def settings_of(objects):
    """Returns the texts of the settings files."""
    (found,) = [it for it in of_kind(objects, "ConfigMap")]
    return found["data"]


def check_program(objects, binary):
    """The binary takes all settings and flags: it stops at a key that it can't read, and at nothing before."""
    for it in workloads(objects):
        for container in it["spec"]["template"]["spec"]["containers"]:
            with tempfile.TemporaryDirectory() as folder:
                replaced = [part.replace("$(POD_NAME)", "martlet-node-0") for part in container["args"]]
                at = replaced.index("--config") + 1
                file = pathlib.Path(folder) / "settings.toml"
                text = settings_of(objects)[pathlib.PurePath(replaced[at]).name]
                file.write_text(text.replace("/etc/martlet/", f"{folder}/"))
                replaced[at] = str(file)
                keys = {"MARTLET_ROOT_ACCESS_KEY": "operator", "MARTLET_ROOT_SECRET_KEY": "x" * 32}
                done = subprocess.run([binary, *replaced], capture_output=True, text=True, env=keys, timeout=60, check=False)
                told = done.stderr.strip().splitlines()[-1]
                check(done.returncode == 1 and "cluster key" in told, f"{container['name']}: {told}")


def check_upgrade(chart):
    """A step of an upgrade replaces the pods of its own role alone."""
    templates = []
    for tags in (("1", "1"), ("2", "1"), ("2", "2")):
        values = {**GIVEN, "node": {"tag": tags[0]}, "proxy": {"tag": tags[1]}}
        objects = chart.render(values, KUBERNETES[0])
        templates.append({it["kind"]: it["spec"]["template"] for it in workloads(objects)})
    before, nodes, all_ = templates
    check(before["StatefulSet"] != nodes["StatefulSet"] and before["Deployment"] == nodes["Deployment"], "nodes first")
    check(nodes["StatefulSet"] == all_["StatefulSet"] and nodes["Deployment"] != all_["Deployment"], "then proxies")


def main():
    chart = Chart(pathlib.Path(sys.argv[1]))
    count = 0
    try:
        if os.environ.get("HELM"):
            subprocess.run([os.environ["HELM"], "lint", "--strict", str(chart.folder), "--set",
                            "secret=s,rings.configMap=r"], check=True)
        for kubernetes, values in itertools.product(KUBERNETES, (GIVEN, EVERYTHING, SMALL)):
            objects = chart.render(values, kubernetes)
            check_schemas(objects, kubernetes)
            check_references(objects)
            check_security(objects)
            check_alerts(objects, values)
            check_cluster(objects, values)
            check_admin_tls(objects, values)
            count += len(objects)
        if binary := os.environ.get("MARTLET_BIN"):
            for tls in ({}, {"adminSecret": "admin-tls"}):
                check_program(chart.render({**GIVEN, "tls": tls}, KUBERNETES[0]), binary)
        check_upgrade(chart)
        for values, reason in REFUSED:
            try:
                chart.render(values, KUBERNETES[0])
            except Wrong as refusal:
                check(reason in str(refusal), f"{values} is refused for another reason: {refusal}")
            else:
                raise Wrong(f"{values} is not refused")
    except Wrong as wrong:
        sys.exit(f"chart: FAILED: {wrong}")
    renderer = "helm" if os.environ.get("HELM") else "Go's templates and sprig"
    print(f"chart: {count} objects are valid for Kubernetes {', '.join(KUBERNETES)}; rendered by {renderer}")


if __name__ == "__main__":
    main()
