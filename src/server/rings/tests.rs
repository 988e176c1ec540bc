//! Tests of rings: stored, made, grown and refused.

use std::path::{Path, PathBuf};

use super::super::devices::FolderContents;
use super::*;

fn cluster(file: &mut ClusterFile, paths: &[&str]) {
    let configured: Vec<PathBuf> = paths.iter().map(PathBuf::from).collect();
    let name = |path: &Path| Ok(FolderContents::Device(path.display().to_string()));
    file.settle(&configured, "/none".into(), name).unwrap();
    file.learn(name).unwrap();
}

fn fresh(paths: &[&str]) -> (tempfile::TempDir, DataFolder, ClusterFile) {
    let place = tempfile::tempdir().unwrap();
    let folder = DataFolder::open(place.path()).unwrap();
    let mut file = ClusterFile::load(&folder).unwrap();
    cluster(&mut file, paths);
    (place, folder, file)
}

fn codes(texts: &[&str]) -> Vec<NamedCode> {
    NamedCode::parse_all(texts).unwrap()
}

/// Number, name and redundancy of each policy.
fn policies(rings: &ServerRings) -> Vec<(u16, String, String)> {
    let identities = rings.data.iter().map(Ring::identity);
    let line = |it: &martlet_ring::RingIdentity| {
        (it.policy.0, it.policy_name.clone(), it.redundancy.to_string())
    };
    identities.map(line).collect()
}

fn named(number: u16, name: &str, redundancy: &str) -> (u16, String, String) {
    (number, name.to_owned(), redundancy.to_owned())
}

#[test]
fn a_ring_that_is_kept_wins_over_what_would_be_dealt() {
    let (_place, folder, file) = fresh(&["/a", "/b"]);
    let first = ServerRings::settle(&folder, &file, &[]).unwrap();
    let other = Ring::of_devices(POLICY, 2, &file.index_devices()).unwrap();
    assert_ne!(other.hash(), first.index.hash());
    fs::write(folder.join(INDEX), other.encode()).unwrap();
    let second = ServerRings::settle(&folder, &file, &[]).unwrap();
    assert_eq!(second.index.hash(), other.hash());
    assert_eq!(second.data[0].hash(), first.data[0].hash());
}

#[test]
fn a_new_device_takes_extents_and_leaves_entries_where_they_are() {
    let (_place, folder, mut file) = fresh(&["/a", "/b"]);
    let before = ServerRings::settle(&folder, &file, &[]).unwrap();
    cluster(&mut file, &["/a", "/b", "/c"]);
    let after = ServerRings::settle(&folder, &file, &[]).unwrap();
    assert_eq!(after.index.hash(), before.index.hash());
    assert_eq!((before.data[0].devices().len(), after.data[0].devices().len()), (2, 3));
}

#[test]
fn a_damaged_ring_is_refused_and_left_alone() {
    let (_place, folder, file) = fresh(&["/a", "/b", "/c"]);
    ServerRings::settle(&folder, &file, &codes(&["ec=2+1"])).unwrap();
    for name in [INDEX, "data-1.ring"] {
        let whole = fs::read(folder.join(name)).unwrap();
        let mut bytes = whole.clone();
        let middle = bytes.len() / 2;
        bytes[middle] ^= 1;
        fs::write(folder.join(name), &bytes).unwrap();
        let refusal = ServerRings::settle(&folder, &file, &[]).unwrap_err().to_string();
        assert!(refusal.contains(name), "{refusal}");
        assert_eq!(fs::read(folder.join(name)).unwrap(), bytes);
        fs::write(folder.join(name), whole).unwrap();
    }
}

#[test]
fn a_policy_that_was_there_once_stays_and_others_follow_it() {
    let (_place, folder, file) = fresh(&["/a", "/b", "/c", "/d"]);
    let first = ServerRings::settle(&folder, &file, &codes(&["ec=2+1"])).unwrap();
    let expected = [named(0, "default", "replicated"), named(1, "ec", "2+1")];
    assert_eq!(policies(&first), expected);
    let again = ServerRings::settle(&folder, &file, &[]).unwrap();
    assert_eq!(again.data[1].hash(), first.data[1].hash());
    let more = ServerRings::settle(&folder, &file, &codes(&["wide=3+1", "EC=2+1"])).unwrap();
    assert_eq!(policies(&more)[2], named(2, "wide", "3+1"));
    assert_eq!(more.data[1].hash(), first.data[1].hash());
}

#[test]
fn a_code_never_changes_and_too_few_devices_are_refused() {
    let (_place, folder, file) = fresh(&["/a", "/b", "/c"]);
    ServerRings::settle(&folder, &file, &codes(&["ec=2+1"])).unwrap();
    for (texts, words) in [
        (["ec=1+2"], "the policy ec is 2+1, and its code can't change"),
        (["wide=4+2"], "the policy wide can't be created: the erasure code 4+2 needs 6 devices"),
    ] {
        let Err(Failure::Refused(refusal)) = ServerRings::settle(&folder, &file, &codes(&texts))
        else {
            panic!("{texts:?} is allowed")
        };
        assert!(refusal.contains(words), "{refusal}");
    }
    assert_eq!(ServerRings::settle(&folder, &file, &[]).unwrap().data.len(), 2);
    check_devices(&codes(&["ec=2+1"]), 3).unwrap();
    let refusal = check_devices(&codes(&["ec=2+1"]), 2).unwrap_err().to_string();
    assert!(refusal.contains("ec=2+1 needs 3 devices"), "{refusal}");
}

#[test]
fn entries_outlive_as_many_devices_as_the_first_codes_do() {
    for (texts, devices, copies) in
        [(&[][..], 3, 1), (&["ec=2+1"], 3, 3), (&["ec=2+1", "safe=1+2"], 4, 3), (&["ec=4+2"], 6, 5)]
    {
        let paths = &["/a", "/b", "/c", "/d", "/e", "/f"][..devices];
        let (_place, folder, file) = fresh(paths);
        let rings = ServerRings::settle(&folder, &file, &codes(texts)).unwrap();
        assert_eq!(rings.index.replicas(), copies, "{texts:?}");
    }
    let (_place, folder, file) = fresh(&["/a", "/b", "/c"]);
    ServerRings::settle(&folder, &file, &[]).unwrap();
    let later = ServerRings::settle(&folder, &file, &codes(&["ec=2+1"])).unwrap();
    assert_eq!((later.index.replicas(), later.data.len()), (1, 2), "entries stay where they are");
}

#[test]
fn fragments_that_move_to_a_new_device_are_looked_for_where_they_were() {
    let (_place, folder, mut file) = fresh(&["/a", "/b", "/c"]);
    let before = ServerRings::settle(&folder, &file, &codes(&["ec=2+1"])).unwrap();
    cluster(&mut file, &["/a", "/b", "/c", "/d"]);
    let after = ServerRings::settle(&folder, &file, &[]).unwrap();
    let (old, new) = (&before.data[1], &after.data[1]);
    assert_eq!((new.devices().len(), new.identity().redundancy), (4, old.identity().redundancy));
    let mut moved = 0;
    for partition in new.partitions() {
        let pairs = old.primaries(partition).zip(new.primaries(partition)).enumerate();
        for (fragment, (from, to)) in pairs.filter(|(_, (from, to))| from != to) {
            assert_eq!((to.0, new.previous(partition, fragment)), (3, Some(from)));
            moved += 1;
        }
    }
    assert!(moved > 0, "the new device got nothing");
    assert_eq!(ServerRings::settle(&folder, &file, &[]).unwrap().data[1].hash(), new.hash());
}
