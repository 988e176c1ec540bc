//! Ring files: readable, of one cluster, equal among peers, and in agreement with the devices of
//! this machine.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use martlet_admin_api::RingLine;
use martlet_membership::{RingName, RingSet, read_ring_file, ring_tag};
use martlet_protocol::DeviceId;
use martlet_ring::Ring;
use martlet_storage_node::FolderFormat;

use crate::finding::{Finding, shortened};
use crate::peers::PeerFacts;
use crate::target::{DeviceTarget, MemberTarget};

const RING: &str = "ring";
const DEVICES: &str = "ring devices";
const IDS: &str = "device id";
/// Most ring files that are read, of all folders together.
const FILES_MAX: usize = 256;

/// Newest ring of each name, and findings about files.
#[derive(Default)]
pub(crate) struct ReadRings {
    pub(crate) rings: BTreeMap<RingName, Arc<Ring>>,
    pub(crate) findings: Vec<Finding>,
}

/// Reads ring files and folders with ring files. A missing folder has none.
pub(crate) fn read(paths: &[PathBuf]) -> ReadRings {
    let mut read = ReadRings::default();
    for file in paths.iter().flat_map(|path| ring_files(path)).take(FILES_MAX) {
        match read_ring_file(&file) {
            Ok((name, ring)) => {
                let newest = read.rings.entry(name).or_insert_with(|| ring.clone());
                if ring.epoch() > newest.epoch() {
                    *newest = ring;
                }
            }
            Err(error) => {
                let advice =
                    "copy the ring again from its builder's folder or from another machine";
                let subject = file.display().to_string();
                read.findings.push(Finding::ok(RING, subject, error.to_string()).fail(advice));
            }
        }
    }
    for (name, ring) in &read.rings {
        let (partitions, devices) = (ring.partitions().count(), ring.devices().len());
        let seen = format!("epoch {}, {partitions} partitions, {devices} devices", ring.epoch());
        read.findings.push(Finding::ok(RING, name.to_string(), seen));
    }
    if let Err(error) = RingSet::new(read.rings.clone()) {
        let advice = "use the rings of one cluster, built with the same devices in the same order";
        read.findings.push(Finding::ok(RING, "all", error).fail(advice));
    }
    read
}

/// Returns a file, or the rings in a folder.
fn ring_files(path: &Path) -> Vec<PathBuf> {
    if !path.is_dir() {
        let is_folder = path.extension().is_none() && !path.exists();
        return if is_folder { Vec::new() } else { vec![path.to_owned()] };
    }
    let entries = fs::read_dir(path).into_iter().flatten().flatten().take(FILES_MAX);
    let files = entries.map(|entry| entry.path());
    files.filter(|file| file.extension().is_some_and(|end| end == "ring")).collect()
}

/// Returns the internal addresses of all other nodes in the rings.
pub(crate) fn other_nodes(
    rings: &BTreeMap<RingName, Arc<Ring>>,
    own: &str,
) -> BTreeMap<String, String> {
    let devices = rings.values().flat_map(|ring| ring.devices());
    let others = devices.filter(|device| device.node.name != own);
    others.map(|device| (device.node.name.clone(), device.node.address.clone())).collect()
}

/// Returns the host of a node in the rings.
pub(crate) fn own_host(rings: &BTreeMap<RingName, Arc<Ring>>, own: &str) -> Option<String> {
    let mut devices = rings.values().flat_map(|ring| ring.devices());
    let device = devices.find(|device| device.node.name == own)?;
    let (host, _) = device.node.address.rsplit_once(':')?;
    Some(host.trim_start_matches('[').trim_end_matches(']').to_owned())
}

/// Judges the own rings beside those of nodes that answered.
pub(crate) fn judge_peers(
    rings: &BTreeMap<RingName, Arc<Ring>>,
    peers: &[PeerFacts],
) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (name, ring) in rings {
        let own = tag_line(*name, ring);
        let answers = peers.iter().filter_map(|peer| Some((peer, peer.answer.as_ref().ok()?)));
        for (peer, answer) in answers {
            let theirs = answer.rings.iter().find(|line| line.name == own.name);
            findings.extend(theirs.and_then(|line| judge_line(&own, line, &peer.name)));
        }
    }
    shortened(findings)
}

fn tag_line(name: RingName, ring: &Ring) -> RingLine {
    let tag = ring_tag(name, ring);
    let hash = hex::encode(tag.hash);
    RingLine { name: tag.name, epoch: tag.epoch, hash }
}

/// Judges one ring beside a peer's.
fn judge_line(own: &RingLine, theirs: &RingLine, peer: &str) -> Option<Finding> {
    if own == theirs {
        return None;
    }
    let subject = format!("{} {peer}", own.name);
    let seen = format!(
        "epoch {} ({}) here, epoch {} ({}) on {peer}",
        own.epoch, own.hash, theirs.epoch, theirs.hash
    );
    let finding = Finding::ok(RING, subject, seen);
    Some(match own.epoch.cmp(&theirs.epoch) {
        std::cmp::Ordering::Equal => finding.fail(
            "two rings of one epoch: build a newer ring from the right builder and push it: martlet \
             admin ring push",
        ),
        std::cmp::Ordering::Less => finding
            .warn("this machine's files are older: a running process fetches the newer ring itself"),
        std::cmp::Ordering::Greater => finding
            .warn("the node has an older ring: push the newer one, or wait until it has spread"),
    })
}

/// Examines the devices of this node: those of the rings, those of the settings, and the ids on
/// disk.
pub(crate) fn examine_devices(
    rings: &BTreeMap<RingName, Arc<Ring>>,
    member: &MemberTarget,
    devices: &[DeviceTarget],
) -> Vec<Finding> {
    if rings.is_empty() || !member.stores {
        return Vec::new();
    }
    let mut in_rings: BTreeMap<String, DeviceId> = BTreeMap::new();
    for device in rings.values().flat_map(|ring| ring.devices()) {
        if device.node.name == member.name {
            in_rings.insert(device.name.clone(), device.id);
        }
    }
    let mut findings = judge_names(&member.name, &in_rings, devices);
    for device in devices {
        let format = FolderFormat::read(&device.path).ok().flatten();
        let on_disk = format.and_then(|format| format.id);
        if let (Some(ring), Some(on_disk)) = (in_rings.get(&device.name), on_disk) {
            findings.extend(judge_id(device, *ring, on_disk));
        }
    }
    findings
}

fn judge_names(
    node: &str,
    in_rings: &BTreeMap<String, DeviceId>,
    devices: &[DeviceTarget],
) -> Vec<Finding> {
    let configured: BTreeSet<&str> = devices.iter().map(|device| device.name.as_str()).collect();
    let mut findings = Vec::new();
    for name in in_rings.keys().filter(|name| !configured.contains(name.as_str())) {
        let seen =
            format!("the rings place data on {node}/{name}, and no setting names its folder");
        let advice = format!("add the device {name} to the settings, or take it out of the rings");
        findings.push(Finding::ok(DEVICES, name, seen).fail(advice));
    }
    for name in configured.iter().filter(|name| !in_rings.contains_key(**name)) {
        let seen = format!("no ring has the device {node}/{name}");
        let advice = "correct the device's name or the node's, or add the device to the rings; it \
                      stays unused meanwhile";
        findings.push(Finding::ok(DEVICES, *name, seen).warn(advice));
    }
    if findings.is_empty() {
        let seen =
            format!("{} devices of {node} are in the rings and in the settings", in_rings.len());
        findings.push(Finding::ok(DEVICES, node, seen));
    }
    shortened(findings)
}

fn judge_id(device: &DeviceTarget, in_rings: DeviceId, on_disk: DeviceId) -> Option<Finding> {
    if in_rings == on_disk {
        return None;
    }
    let seen = format!("device {on_disk} is in the folder, and the rings have {in_rings} here");
    let advice = "mount each disk where it was, or swap the folders in the settings";
    Some(Finding::ok(IDS, device.shown(), seen).fail(advice))
}

#[cfg(test)]
mod tests {
    use martlet_protocol::PolicyId;
    use martlet_ring::fixtures::device;

    use super::*;
    use crate::finding::Verdict;
    use crate::peers::PeerAnswer;

    fn ring() -> Arc<Ring> {
        let devices = [
            device(1, "n1".to_owned(), "d1"),
            device(2, "n1".to_owned(), "d2"),
            device(3, "n2".to_owned(), "d1"),
        ];
        Arc::new(Ring::of_devices(PolicyId(0), 1, &devices).unwrap())
    }

    fn member() -> MemberTarget {
        MemberTarget { name: "n1".into(), stores: true, key_file: "key".into(), tls: None }
    }

    fn folder(name: &str) -> DeviceTarget {
        DeviceTarget { name: name.into(), path: format!("/nowhere/{name}").into() }
    }

    #[test]
    fn files_are_read_and_the_newest_counts() {
        let place = tempfile::tempdir().unwrap();
        ring().save(&place.path().join("index.ring")).unwrap();
        ring().save(&place.path().join("data-0.ring")).unwrap();
        fs::write(place.path().join("data-1.ring"), "damaged").unwrap();
        fs::write(place.path().join("notes.txt"), "no ring").unwrap();
        let missing = place.path().join("later");
        let read = read(&[place.path().to_owned(), missing]);
        assert_eq!(read.rings.len(), 2);
        let failed: Vec<_> =
            read.findings.iter().filter(|it| it.verdict == Verdict::Fail).collect();
        assert_eq!(failed.len(), 1);
        assert!(failed[0].subject.ends_with("data-1.ring"), "{failed:?}");
        let others = other_nodes(&read.rings, "n1");
        assert_eq!(others.keys().collect::<Vec<_>>(), ["n2"]);
        let lost = super::read(&[place.path().join("lost.ring")]);
        assert_eq!(lost.findings[0].verdict, Verdict::Fail, "a named file is there");
    }

    #[test]
    fn rings_of_peers_are_equal_or_one_is_newer() {
        let own = tag_line(RingName::Index, &ring());
        let judged = |epoch: u64, hash: &str| {
            let theirs = RingLine { name: "index".into(), epoch, hash: hash.into() };
            let answer = PeerAnswer { rings: vec![theirs], ..PeerAnswer::default() };
            let peer = PeerFacts {
                name: "n2".into(),
                address: "x".into(),
                answer: Ok(answer),
                is_foreign: false,
            };
            let findings = judge_peers(&BTreeMap::from([(RingName::Index, ring())]), &[peer]);
            findings.into_iter().next().map(|finding| finding.verdict)
        };
        assert_eq!(judged(own.epoch, &own.hash), None);
        assert_eq!(judged(own.epoch, "0011223344556677"), Some(Verdict::Fail));
        assert_eq!(judged(own.epoch + 1, "0011223344556677"), Some(Verdict::Warn));
    }

    #[test]
    fn devices_of_the_rings_are_those_of_the_settings() {
        let rings = BTreeMap::from([(RingName::Index, ring())]);
        let judged = |devices: &[DeviceTarget]| -> Vec<(String, Verdict)> {
            let findings = examine_devices(&rings, &member(), devices);
            findings.into_iter().map(|it| (it.subject, it.verdict)).collect()
        };
        assert_eq!(judged(&[folder("d1"), folder("d2")]), [("n1".into(), Verdict::Ok)]);
        assert_eq!(judged(&[folder("d1")]), [("d2".into(), Verdict::Fail)]);
        let more = [folder("d1"), folder("d2"), folder("d9")];
        assert_eq!(judged(&more), [("d9".into(), Verdict::Warn)]);
        assert!(examine_devices(&BTreeMap::new(), &member(), &more).is_empty());
        let proxy = MemberTarget { stores: false, ..member() };
        assert!(examine_devices(&rings, &proxy, &[]).is_empty());
    }

    #[test]
    fn disks_in_each_others_places_are_found() {
        assert_eq!(judge_id(&folder("d1"), DeviceId(1), DeviceId(1)), None);
        let swapped = judge_id(&folder("d1"), DeviceId(1), DeviceId(2)).unwrap();
        assert_eq!(swapped.verdict, Verdict::Fail);
        assert!(swapped.advice.unwrap().contains("mount each disk where it was"));
    }
}
