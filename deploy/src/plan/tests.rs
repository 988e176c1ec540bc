//! Tests of plans: what they print, write and refuse.

use std::fs;
use std::os::unix::fs::PermissionsExt;

use martlet_admin_api::{DeviceLine, ProcessReport};

use super::*;
use crate::names::{CLUSTER_KEY, FIRST, MASTER_KEY, ROOT, SSE_MASTER_KEY};
use crate::spec::tests::THREE;

fn options() -> PlanOptions {
    PlanOptions {
        settle: false,
        force: false,
        bandwidth: Size(100_000_000),
        high_water: 0.9,
        settings: vec!["log", "memory", "first_tenant", "first_bucket", "first_key_file"],
    }
}

fn plan(text: &str, out: &Path, survey: Vec<NodeSurvey>) -> ClusterPlan {
    let spec = ClusterSpec::parse(text).unwrap();
    ClusterPlan::make(&spec, out, survey, &options(), &|_| None).unwrap()
}

fn refusal(text: &str, out: &Path, survey: Vec<NodeSurvey>, options: &PlanOptions) -> String {
    let spec = ClusterSpec::parse(text).unwrap();
    ClusterPlan::make(&spec, out, survey, options, &|_| None).err().unwrap().to_string()
}

fn locked(out: &Path) -> LockedOutput {
    LockedOutput::lock(out).unwrap()
}

/// The three machines with a first tenant.
fn with_first() -> String {
    format!("{THREE}\n[first]\ntenant = \"research\"\nbucket = \"datasets\"\n")
}

/// All files below a folder, with their contents.
fn contents(folder: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
    let mut all = BTreeMap::new();
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        let path = entry.path();
        if path.is_dir() {
            all.extend(contents(&path));
        } else {
            all.insert(path.clone(), fs::read(&path).unwrap());
        }
    }
    all
}

#[test]
fn a_plan_touches_nothing() {
    let place = tempfile::tempdir().unwrap();
    let out = place.path().join("out");
    let text = plan(THREE, &out, Vec::new()).to_text();
    assert!(!out.exists());
    assert!(text.contains("machine n3: new: "), "{text}");
    assert!(text.contains("ring index: epoch 1, 2^12 partitions × 3 on 6 devices"), "{text}");
}

#[test]
fn a_second_apply_has_nothing_to_change() {
    let place = tempfile::tempdir().unwrap();
    let out = place.path().join("out");
    plan(THREE, &out, Vec::new()).write(&locked(&out)).unwrap();
    let before = contents(&out);
    let again = plan(THREE, &out, Vec::new());
    assert!(again.is_empty(), "{}", again.to_text());
    assert!(again.to_text().contains("nothing to change"));
    again.write(&locked(&out)).unwrap();
    assert_eq!(contents(&out), before);
    for path in before.keys() {
        let mode = fs::metadata(path).unwrap().permissions().mode() & 0o777;
        assert_eq!(mode & 0o077, 0, "{} has mode {mode:o}", path.display());
    }
}

/// Checks that no key of an output folder is in a text.
fn check_no_secret(shown: &str, out: &Path) {
    for name in [CLUSTER_KEY, MASTER_KEY, SSE_MASTER_KEY, ROOT, FIRST, AUTHORITY_FILE] {
        let text = fs::read_to_string(out.join(CLUSTER_DIR).join(name)).unwrap();
        let secrets = text.lines().map(|line| line.split_once('=').map_or(line, |it| it.1));
        for secret in secrets.filter(|secret| secret.len() >= 16 && !secret.contains(' ')) {
            assert!(!shown.contains(secret), "{name} is printed");
        }
    }
}

#[test]
fn no_secret_is_printed_and_the_authoritys_key_stays_here() {
    let place = tempfile::tempdir().unwrap();
    let out = place.path().join("out");
    let first = plan(&with_first(), &out, Vec::new());
    first.write(&locked(&out)).unwrap();
    let shown = first.to_text() + &first.to_json().to_string();
    check_no_secret(&shown, &out);
    let folder = out.join(CLUSTER_DIR);
    for (path, bytes) in contents(&out.join("n1")) {
        let text = String::from_utf8_lossy(&bytes).into_owned();
        let key = fs::read_to_string(folder.join("authority.toml")).unwrap();
        let key = key.split("PRIVATE KEY-----\n").nth(1).unwrap().lines().next().unwrap();
        assert!(!text.contains(key), "{} has the authority's key", path.display());
    }
}

#[test]
fn a_lost_file_is_written_again_as_it_was() {
    let place = tempfile::tempdir().unwrap();
    let out = place.path().join("out");
    plan(THREE, &out, Vec::new()).write(&locked(&out)).unwrap();
    let before = contents(&out);
    for name in ["n1/node.toml", "n2/index.ring", "n3/cluster.key", "n1/martlet-node.service"] {
        fs::remove_file(out.join(name)).unwrap();
    }
    let repair = plan(THREE, &out, Vec::new());
    assert_eq!(repair.machines_to_copy(), ["n1", "n2", "n3"]);
    repair.write(&locked(&out)).unwrap();
    assert_eq!(contents(&out), before);
}

#[test]
fn a_lost_builder_is_not_replaced_by_another() {
    let place = tempfile::tempdir().unwrap();
    let out = place.path().join("out");
    plan(THREE, &out, Vec::new()).write(&locked(&out)).unwrap();
    fs::remove_file(out.join("cluster/data-0.builder")).unwrap();
    let refused = refusal(THREE, &out, Vec::new(), &options());
    assert!(refused.contains("reconstruct"), "{refused}");
    fs::remove_file(out.join("cluster/data-0.ring")).unwrap();
    let refused = refusal(THREE, &out, Vec::new(), &options());
    assert!(refused.contains("n1/data-0.ring"), "machines have the ring too: {refused}");
}

#[test]
fn a_lost_key_is_not_replaced_and_machines_keep_theirs() {
    let place = tempfile::tempdir().unwrap();
    let out = place.path().join("out");
    plan(&with_first(), &out, Vec::new()).write(&locked(&out)).unwrap();
    let before = contents(&out);
    for name in [CLUSTER_KEY, MASTER_KEY, SSE_MASTER_KEY, ROOT, FIRST, AUTHORITY_FILE] {
        let path = out.join(CLUSTER_DIR).join(name);
        fs::remove_file(&path).unwrap();
        let refused = refusal(&with_first(), &out, Vec::new(), &options());
        let words = format!("{} is missing: restore it from a copy", path.display());
        assert!(refused.contains(&words), "{refused}");
        fs::write(&path, &before[&path]).unwrap();
    }
    // Without the whole folder, the rings of the machines are the traces of the cluster.
    fs::remove_dir_all(out.join(CLUSTER_DIR)).unwrap();
    let refused = refusal(&with_first(), &out, Vec::new(), &options());
    assert!(refused.contains("is missing"), "{refused}");
    for (path, bytes) in before.iter().filter(|(path, _)| path.ends_with(FIRST)) {
        assert!(path.starts_with(out.join(CLUSTER_DIR)) || fs::read(path).unwrap() == *bytes);
    }
}

#[test]
fn a_first_tenant_and_tls_may_come_later() {
    let place = tempfile::tempdir().unwrap();
    let out = place.path().join("out");
    let plain = format!("{THREE}\n[tls]\nmembers = false\ns3 = false\n");
    plan(&plain, &out, Vec::new()).write(&locked(&out)).unwrap();
    let later = plan(&with_first(), &out, Vec::new());
    later.write(&locked(&out)).unwrap();
    for name in ["cluster/first-key", "cluster/authority.toml", "n1/first-key", "n3/ca.crt"] {
        assert!(out.join(name).exists(), "{name}");
    }
}

#[test]
fn admin_ports_for_other_machines_get_certificates() {
    let place = tempfile::tempdir().unwrap();
    let out = place.path().join("out");
    plan(THREE, &out, Vec::new()).write(&locked(&out)).unwrap();
    assert!(!out.join("n1/admin.crt").exists());
    let text = format!("{THREE}\n[tls]\nmembers = false\ns3 = false\nadmin = true\n");
    plan(&text, &out, Vec::new()).write(&locked(&out)).unwrap();
    for name in ["n1/admin.crt", "n1/admin.key", "n3/admin.crt", "n3/ca.crt"] {
        assert!(out.join(name).exists(), "{name}");
    }
    assert!(plan(&text, &out, Vec::new()).is_empty(), "the certificates stay");
}

#[test]
fn one_machine_makes_the_first_tenant_and_no_other_takes_over() {
    let place = tempfile::tempdir().unwrap();
    let out = place.path().join("out");
    let makers = |text: &str| -> Vec<String> {
        plan(text, &out, Vec::new()).write(&locked(&out)).unwrap();
        let spec = ClusterSpec::parse(text).unwrap();
        let names = spec.nodes.iter().map(|node| node.name().to_owned());
        let has = |name: &String| {
            let settings = fs::read_to_string(out.join(name).join("node.toml")).unwrap();
            settings.contains("first_tenant")
        };
        names.filter(has).collect()
    };
    assert_eq!(makers(&with_first()), ["n1"]);
    assert!(!out.join("n2/first-key").exists(), "the others need no key");
    let node = "[[node]]\nname = \"n0\"\naddress = \"10.0.0.9\"\nzone = 1\nroles = [\"proxy\"]\n\n";
    let more = with_first().replacen("[[node]]", &format!("{node}[[node]]"), 1);
    assert_eq!(makers(&more), ["n1"], "a machine that joins doesn't make it again");
    let roles = "zone = 1\nroles = [\"storage-node\", \"replicator\"]\ndevice";
    let without = more.replacen("zone = 1\ndevice", roles, 1);
    assert!(makers(&without).is_empty(), "the first tenant is made");
    fs::remove_file(out.join("n1/first-key")).unwrap();
    assert!(makers(&more).is_empty(), "no machine is known to have the task");
}

#[test]
fn nothing_is_written_while_the_rings_wait() {
    let place = tempfile::tempdir().unwrap();
    let out = place.path().join("out");
    plan(THREE, &out, Vec::new()).write(&locked(&out)).unwrap();
    let drained = THREE.replacen("weight = 4000", "weight = 0", 1);
    plan(&drained, &out, Vec::new()).write(&locked(&out)).unwrap();
    let before = contents(&out);
    let policy = format!("{THREE}\n[[policy]]\nname = \"ec\"\ncode = \"2+1\"\n");
    let early = plan(&policy, &out, survey(&out, 1));
    assert!(early.waits().is_some(), "the drain is too young");
    let refused = early.write(&locked(&out)).unwrap_err().to_string();
    assert!(refused.contains("nothing is written"), "{refused}");
    assert_eq!(contents(&out), before);
    let stale: Vec<&str> = early.stale_rings().into_iter().map(|(name, _)| name).collect();
    assert_eq!(stale, ["data-0", "index"], "rings that are there can be pushed");
}

#[test]
fn changed_settings_are_printed_without_secrets() {
    let place = tempfile::tempdir().unwrap();
    let out = place.path().join("out");
    plan(&with_first(), &out, Vec::new()).write(&locked(&out)).unwrap();
    let path = out.join("n1/node.toml");
    let text = fs::read_to_string(&path).unwrap();
    let secrets: Vec<String> = [MASTER_KEY, SSE_MASTER_KEY]
        .iter()
        .map(|name| fs::read_to_string(out.join(CLUSTER_DIR).join(name)).unwrap().trim().to_owned())
        .collect();
    let (first, second) = (&secrets[0], &secrets[1]);
    let by_hand = format!(
        "root_secret_key = \"{second}\"\nmaster_keys = [\n  \"{first}\",\n]\n{text}\n\
         [notifications.hook]\nurl = \"https://me:{second}@example.org/\"\n"
    );
    for by_hand in [by_hand.clone(), format!("mangled {by_hand}")] {
        fs::write(&path, &by_hand).unwrap();
        let changed = with_first() + "[settings]\nlog = \"warn\"\n";
        let next = plan(&changed, &out, Vec::new());
        let shown = next.to_text() + &next.to_json().to_string();
        check_no_secret(&shown, &out);
        assert!(shown.contains("+ log = \"warn\"") || by_hand.starts_with("mangled"), "{shown}");
        assert_eq!(next.to_json()["machines_to_copy"], serde_json::json!(["n1", "n2", "n3"]));
    }
}

#[test]
fn an_apply_continues_after_a_crash_between_any_two_writes() {
    let small = |text: String| text.replacen("name", "part_power = 8\nname", 1);
    let policy = "\n[[policy]]\nname = \"ec\"\ncode = \"2+1\"\n";
    let grown = small(with_first() + policy);
    for start in [None, Some(small(THREE.to_owned()))] {
        let whole = plan_of_start(start.as_deref(), &grown, None);
        let mut steps = 0;
        while steps < whole {
            plan_of_start(start.as_deref(), &grown, Some(steps));
            // Each write of a key or builder, and some of the files of machines.
            steps += if steps < 12 { 1 } else { 7 };
        }
    }
}

/// Applies `start`, does `steps` writes of the plan of `text`, and applies `text`. Returns the
/// number of writes.
fn plan_of_start(start: Option<&str>, text: &str, steps: Option<usize>) -> usize {
    let place = tempfile::tempdir().unwrap();
    let out = place.path().join("out");
    if let Some(start) = start {
        plan(start, &out, Vec::new()).write(&locked(&out)).unwrap();
    }
    let cut = plan(text, &out, Vec::new());
    let writes = cut.writes();
    let lock = locked(&out);
    for write in &writes[..steps.unwrap_or(writes.len())] {
        write.run(lock.path()).unwrap();
    }
    drop(lock);
    let before = contents(&out);
    plan(text, &out, Vec::new()).write(&locked(&out)).unwrap();
    let after = contents(&out);
    for (path, bytes) in &before {
        let name = path.file_name().unwrap().to_str().unwrap();
        let is_kept = name.ends_with(".builder")
            || [CLUSTER_KEY, MASTER_KEY, SSE_MASTER_KEY, ROOT, FIRST].contains(&name);
        let is_new = start.is_some() && name.ends_with(".builder");
        assert!(!is_kept || is_new || after[path] == *bytes, "{steps:?}: {name} is replaced");
    }
    let again = plan(text, &out, Vec::new());
    assert!(again.is_empty(), "{steps:?} of {}: {}", writes.len(), again.to_text());
    writes.len()
}

#[test]
fn settling_needs_the_running_nodes() {
    let place = tempfile::tempdir().unwrap();
    let out = place.path().join("out");
    plan(THREE, &out, Vec::new()).write(&locked(&out)).unwrap();
    let settling = PlanOptions { settle: true, ..options() };
    let refused = refusal(THREE, &out, Vec::new(), &settling);
    assert!(refused.contains("--settle needs the running nodes"), "{refused}");
}

/// The first node with rings of this epoch, and a silent one.
fn survey(out: &Path, epoch: u64) -> Vec<NodeSurvey> {
    let line = |name: &str| {
        let ring = Ring::load(&out.join(CLUSTER_DIR).join(format!("{name}.ring"))).unwrap();
        RingLine { name: name.into(), epoch, hash: hex::encode(&ring.hash()[..8]) }
    };
    let device = |device| DeviceLine {
        device,
        total_bytes: 4_000_000_000_000,
        free_bytes: 3_000_000_000_000,
        ..serde_json::from_str(
            r#"{"device":0,"path":"/x","health":"ready","voting":true,"total_bytes":0,
                "free_bytes":0,"extents":0,"extent_bytes":0,"quarantined":0,"hints":0}"#,
        )
        .unwrap()
    };
    let report = ProcessReport {
        rings: vec![line("index"), line("data-0")],
        devices: (0..6).map(device).collect(),
        ..ProcessReport::of("storage node n1")
    };
    let silent = Err("connection refused".to_owned());
    vec![
        NodeSurvey { name: "n1".into(), address: "10.0.0.1:6200".into(), report: Ok(report) },
        NodeSurvey { name: "n2".into(), address: "10.0.0.2:6200".into(), report: silent },
    ]
}

#[test]
fn rings_are_pushed_to_nodes_that_lack_them_extents_first() {
    let place = tempfile::tempdir().unwrap();
    let out = place.path().join("out");
    plan(THREE, &out, Vec::new()).write(&locked(&out)).unwrap();
    assert!(plan(THREE, &out, survey(&out, 1)).is_empty(), "silent nodes read their folders");
    let drained = THREE.replacen("weight = 4000", "weight = 0", 1);
    let next = plan(&drained, &out, survey(&out, 1));
    let names: Vec<&str> = next.stale_rings().into_iter().map(|(name, _)| name).collect();
    assert_eq!(names, ["data-0", "index"]);
    let text = next.to_text();
    for words in [
        "n1/d2 drains",
        "hours at 100.0 MB a second",
        "at most ",
        "node n2 at 10.0.0.2:6200 is not reached: connection refused",
        "rings to push: data-0, index",
    ] {
        assert!(text.contains(words), "{text}\nlacks: {words}");
    }
    assert!(next.to_json()["rings"][0]["cost"]["bytes"].as_u64().unwrap() > 0);
}
