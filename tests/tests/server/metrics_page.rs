//! Metrics pages of all roles: Prometheus' rules for names, types and units, by a check of these tests
//! and by promtool where it is installed.
#![allow(clippy::unwrap_used, reason = "all of this runs within tests")]

use std::collections::{BTreeMap, BTreeSet};
use std::io::Write;
use std::process::{Command, Stdio};

use bytes::Bytes;
use martlet_tests::Setup;
use martlet_tests::cluster::ClusterPlan;

/// Variable that names promtool, if it isn't in `PATH`.
const PROMTOOL: &str = "MARTLET_PROMTOOL";
/// Ends of names that are units, but no base units.
const OTHER_UNITS: [&str; 14] = [
    "ms",
    "us",
    "ns",
    "milliseconds",
    "microseconds",
    "minutes",
    "hours",
    "days",
    "kb",
    "mb",
    "gb",
    "kib",
    "mib",
    "percent",
];

/// Family of a page.
#[derive(Default)]
struct Family {
    kind: Option<String>,
    has_help: bool,
}

/// Faults of a page in Prometheus' text format.
fn faults(page: &str) -> Vec<String> {
    let mut faults = Vec::new();
    let mut families: BTreeMap<&str, Family> = BTreeMap::new();
    let mut series = BTreeSet::new();
    let mut current = "";
    for line in page.lines().filter(|line| !line.is_empty()) {
        let words: Vec<&str> = line.splitn(4, ' ').collect();
        match words.as_slice() {
            ["#", "HELP", name, help] => {
                let family = families.entry(name).or_default();
                if family.has_help || help.is_empty() {
                    faults.push(format!("{name} has two help texts, or an empty one"));
                }
                family.has_help = true;
            }
            ["#", "TYPE", name, kind] => {
                let family = families.entry(name).or_default();
                if family.kind.replace((*kind).to_owned()).is_some() {
                    faults.push(format!("{name} has two types"));
                }
                current = name;
            }
            ["#", ..] => faults.push(format!("unexpected: {line}")),
            _ => {
                let (name, _) = line.split_once(['{', ' ']).unwrap();
                let (labelled, value) = line.rsplit_once(' ').unwrap();
                let is_histogram =
                    families.get(current).is_some_and(|it| it.kind.as_deref() == Some("histogram"));
                let suffix = name.strip_prefix(current);
                let is_sample = match suffix {
                    Some("_bucket" | "_sum" | "_count") => is_histogram,
                    Some("") => !is_histogram,
                    _ => false,
                };
                if !is_sample {
                    faults.push(format!("{name} is no sample of {current}"));
                }
                if !series.insert(labelled) {
                    faults.push(format!("{labelled} is there twice"));
                }
                if value.parse::<f64>().is_err() {
                    faults.push(format!("{labelled} is no number: {value}"));
                }
            }
        }
    }
    for (name, family) in families {
        let Family { kind, has_help } = family;
        let kind = kind.unwrap_or_default();
        if !has_help || !["counter", "gauge", "histogram"].contains(&kind.as_str()) {
            faults.push(format!("{name} has no help or no type: {kind}"));
        }
        if (kind == "counter") != name.ends_with("_total") {
            faults.push(format!("{name} is a {kind}"));
        }
        let is_plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_';
        // Metrics of each process have the names of Prometheus' own clients.
        let has_prefix = name.starts_with("martlet_") || name.starts_with("process_");
        if !has_prefix || !name.chars().all(is_plain) {
            faults.push(format!("{name} is not lower-case with the prefix martlet_ or process_"));
        }
        let unit = name.trim_end_matches("_total").rsplit('_').next().unwrap();
        if OTHER_UNITS.contains(&unit) {
            faults.push(format!("{name} is in {unit}: use seconds or bytes"));
        }
    }
    faults
}

/// Checks a page with promtool. Returns false if there is none.
fn promtool(page: &str) -> bool {
    let program = std::env::var(PROMTOOL).unwrap_or_else(|_| "promtool".to_owned());
    let mut command = Command::new(program);
    command.args(["check", "metrics"]).stdin(Stdio::piped()).stderr(Stdio::piped());
    let Ok(mut running) = command.stdout(Stdio::piped()).spawn() else { return false };
    running.stdin.take().unwrap().write_all(page.as_bytes()).unwrap();
    let output = running.wait_with_output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    true
}

fn check(role: &str, page: &str) {
    assert!(page.lines().count() > 20, "{page}");
    let found = faults(page);
    assert!(found.is_empty(), "{role}: {found:#?}");
    if !promtool(page) {
        println!("SKIPPED promtool for {role}: it is not installed, and {PROMTOOL} names none");
    }
}

#[test]
fn faulty_pages_are_found() {
    let good = "# HELP martlet_x_total Things.\n# TYPE martlet_x_total counter\n\
                martlet_x_total{a=\"1\"} 3\nmartlet_x_total{a=\"2\"} 4\n";
    assert_eq!(faults(good), Vec::<String>::new());
    for (from, to, fault) in [
        ("# HELP martlet_x_total Things.\n", "", "no help"),
        ("martlet_x_total", "martlet_x", "is a counter"),
        ("counter", "gauge", "is a gauge"),
        ("a=\"2\"", "a=\"1\"", "is there twice"),
        ("martlet_x_total", "martlet_x_ms_total", "is in ms"),
        ("martlet_x_total", "martlet_X_total", "lower-case"),
        ("martlet_x_total{a=\"2\"}", "martlet_y{a=\"2\"}", "is no sample"),
        ("} 4", "} four", "is no number"),
    ] {
        let found = faults(&good.replace(from, to)).join("; ");
        assert!(found.contains(fault), "{fault}: {found}");
    }
}

#[tokio::test]
async fn the_page_of_a_server_follows_the_rules_of_prometheus() {
    let direct = Setup::new();
    let socket = direct.join("direct.sock");
    let server = direct.flags(&["--data-address", "127.0.0.1:0"]);
    let server = server.set("MARTLET_DIRECT_SOCKET", socket.to_str().unwrap()).start().await;
    let mut client = server.client();
    client.make_bucket("box").await;
    client.put("/box/k", Bytes::from(vec![1; 100_000])).await.unwrap();
    client.get("/box/k").await.unwrap();
    client.get("/box/nothing").await.unwrap();
    server.admin("/admin/v1/status").await.unwrap();
    check("server", &server.admin("/metrics").await.unwrap().text());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_pages_of_a_cluster_follow_the_rules_of_prometheus() {
    let cluster = ClusterPlan { nodes: 3, proxies: 1, ..ClusterPlan::default() }.start().await;
    for (role, member) in [
        ("storage node", &cluster.nodes[0]),
        ("proxy", &cluster.proxies[0]),
        ("replicator", &cluster.replicators[0]),
    ] {
        check(role, &member.admin("/metrics").await.unwrap().text());
    }
}
