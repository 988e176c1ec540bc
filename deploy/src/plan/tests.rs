//! Tests of plans: what they print, write and refuse.

use std::fs;
use std::os::unix::fs::PermissionsExt;

use martlet_admin_api::{DeviceLine, ProcessReport};

use super::*;
use crate::secrets::{CLUSTER_KEY, MASTER_KEY, ROOT, SSE_MASTER_KEY};
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
    plan(THREE, &out, Vec::new()).write(&out).unwrap();
    let before = contents(&out);
    let again = plan(THREE, &out, Vec::new());
    assert!(again.is_empty(), "{}", again.to_text());
    assert!(again.to_text().contains("nothing to change"));
    again.write(&out).unwrap();
    assert_eq!(contents(&out), before);
    for path in before.keys() {
        let mode = fs::metadata(path).unwrap().permissions().mode() & 0o777;
        assert_eq!(mode & 0o077, 0, "{} has mode {mode:o}", path.display());
    }
}

#[test]
fn no_secret_is_printed_and_the_authoritys_key_stays_here() {
    let place = tempfile::tempdir().unwrap();
    let out = place.path().join("out");
    let first = plan(&format!("{THREE}\n[first]\ntenant = \"research\"\n"), &out, Vec::new());
    first.write(&out).unwrap();
    let shown = first.to_text() + &first.to_json().to_string();
    let folder = out.join(CLUSTER_DIR);
    for name in [CLUSTER_KEY, MASTER_KEY, SSE_MASTER_KEY, ROOT, "first-key", "authority.toml"] {
        let text = fs::read_to_string(folder.join(name)).unwrap();
        let secrets = text.lines().map(|line| line.split_once('=').map_or(line, |it| it.1));
        for secret in secrets.filter(|secret| secret.len() >= 16 && !secret.contains(' ')) {
            assert!(!shown.contains(secret), "{name} is printed");
        }
    }
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
    plan(THREE, &out, Vec::new()).write(&out).unwrap();
    let before = contents(&out);
    for name in ["n1/node.toml", "n2/index.ring", "n3/cluster.key", "n1/martlet-node.service"] {
        fs::remove_file(out.join(name)).unwrap();
    }
    let repair = plan(THREE, &out, Vec::new());
    assert_eq!(repair.machines_to_copy(), ["n1", "n2", "n3"]);
    repair.write(&out).unwrap();
    assert_eq!(contents(&out), before);
}

#[test]
fn a_lost_builder_is_not_replaced_by_another() {
    let place = tempfile::tempdir().unwrap();
    let out = place.path().join("out");
    plan(THREE, &out, Vec::new()).write(&out).unwrap();
    fs::remove_file(out.join("cluster/data-0.builder")).unwrap();
    let spec = ClusterSpec::parse(THREE).unwrap();
    let refusal = ClusterPlan::make(&spec, &out, Vec::new(), &options(), &|_| None).err().unwrap();
    assert!(refusal.to_string().contains("reconstruct"), "{refusal}");
}

fn survey(epochs: u64) -> Vec<NodeSurvey> {
    let line = |name: &str| RingLine { name: name.into(), epoch: epochs, hash: String::new() };
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
    plan(THREE, &out, Vec::new()).write(&out).unwrap();
    assert!(plan(THREE, &out, survey(1)).is_empty(), "silent nodes read their folders");
    let drained = THREE.replacen("weight = 4000", "weight = 0", 1);
    let next = plan(&drained, &out, survey(1));
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
