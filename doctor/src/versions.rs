//! Versions: of this program beside those of other nodes, and of formats on devices.

use std::collections::{BTreeMap, BTreeSet};

use martlet_protocol::Release;
use martlet_protocol::release::FORMATS;
use martlet_storage_node::FolderFormat;

use crate::finding::Finding;
use crate::peers::PeerFacts;
use crate::target::DeviceTarget;

const PROGRAM: &str = "version";
const FORMAT: &str = "format";
const LEVEL: &str = "format level";
/// Version of this program.
const OWN: &str = env!("CARGO_PKG_VERSION");

/// Judges the versions of nodes that answered.
pub(crate) fn judge_peers(peers: &[PeerFacts]) -> Finding {
    let mut by_version: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for peer in peers {
        if let Ok(answer) = &peer.answer {
            by_version.entry(&answer.version).or_default().push(&peer.name);
        }
    }
    let others = by_version.iter().filter(|(version, _)| **version != OWN);
    let others: Vec<String> = others
        .map(|(version, names)| format!("{version} on {} nodes such as {}", names.len(), names[0]))
        .collect();
    if others.is_empty() {
        return Finding::ok(PROGRAM, "martlet", OWN);
    }
    Finding::ok(PROGRAM, "martlet", format!("{OWN} here, {}", others.join(", ")))
        .warn("upgrade all machines to one version, in the order of docs/UPGRADES.md")
}

/// Judges the format levels of nodes that answered. Nodes of releases before levels have the first.
pub(crate) fn judge_levels(peers: &[PeerFacts]) -> Finding {
    let answers = peers.iter().filter_map(|peer| peer.answer.as_ref().ok());
    let before = Release::unannounced().level;
    let levels: BTreeSet<u16> =
        answers.map(|answer| answer.release.map_or(before, |it| it.format_level)).collect();
    let newest = FORMATS.newest;
    let seen: Vec<String> = levels.iter().map(u16::to_string).collect();
    let finding = |seen: String| Finding::ok(LEVEL, "martlet", seen);
    match levels.first() {
        None => finding("no other node answers".to_owned()),
        Some(lowest) if *lowest < newest => finding(format!("{} of {newest}", seen.join(" and ")))
            .warn(
                "once all processes run this release and it has proved itself, run martlet admin \
                 cluster finalize: see docs/UPGRADES.md",
            ),
        Some(_) => finding(format!("{} of {newest}", seen.join(" and "))),
    }
}

/// Examines the formats of all devices.
pub(crate) fn examine_formats(devices: &[DeviceTarget]) -> Vec<Finding> {
    devices.iter().map(examine_format).collect()
}

fn examine_format(device: &DeviceTarget) -> Finding {
    judge_format(
        &device.shown(),
        FolderFormat::read(&device.path).map_err(|error| error.to_string()),
    )
}

fn judge_format(subject: &str, format: Result<Option<FolderFormat>, String>) -> Finding {
    let finding = |seen: String| Finding::ok(FORMAT, subject, seen);
    match format {
        Ok(None) => finding("no device yet: the first start makes it".to_owned()),
        Ok(Some(format)) if format.is_replaced => {
            finding("the other nodes know another device in this place".to_owned()).fail(
                "this disk was replaced: see \"New and replaced disks\" in docs/OPERATIONS.md",
            )
        }
        Ok(Some(format)) => {
            let (version, newest) = (format.version, FolderFormat::VERSION_MAX);
            finding(format!("version {version} of {newest}"))
        }
        Err(error) => finding(error).fail(
            "use the martlet that wrote the device, mount the right disk, or restore its format.json",
        ),
    }
}

#[cfg(test)]
mod tests {
    use martlet_admin_api::ReleaseLine;

    use super::*;
    use crate::finding::Verdict;
    use crate::peers::PeerAnswer;

    fn peer(name: &str, version: &str) -> PeerFacts {
        let answer = PeerAnswer { version: version.into(), ..PeerAnswer::default() };
        PeerFacts {
            name: name.into(),
            address: String::new(),
            answer: Ok(answer),
            is_foreign: false,
        }
    }

    #[test]
    fn other_versions_are_counted() {
        assert_eq!(judge_peers(&[]).verdict, Verdict::Ok);
        assert_eq!(judge_peers(&[peer("n1", OWN)]).verdict, Verdict::Ok);
        let finding = judge_peers(&[peer("n1", OWN), peer("n2", "9.9.9"), peer("n3", "9.9.9")]);
        assert_eq!(finding.verdict, Verdict::Warn);
        assert!(finding.seen.contains("9.9.9 on 2 nodes such as n2"), "{}", finding.seen);
    }

    #[test]
    fn a_level_below_the_newest_needs_finalization() {
        let at = |level: u16| {
            let release = Some(ReleaseLine { format_level: level, ..ReleaseLine::default() });
            let answer = PeerAnswer { release, ..PeerAnswer::default() };
            PeerFacts { answer: Ok(answer), ..peer("n1", OWN) }
        };
        assert_eq!(judge_levels(&[]).verdict, Verdict::Ok);
        assert_eq!(judge_levels(&[peer("n1", OWN), at(FORMATS.newest)]).verdict, Verdict::Ok);
        let finding = judge_levels(&[at(FORMATS.newest), at(FORMATS.newest - 1)]);
        assert_eq!((finding.verdict, finding.seen.as_str()), (Verdict::Warn, "1 and 2 of 2"));
    }

    #[test]
    fn formats_are_read_without_opening_devices() {
        let place = tempfile::tempdir().unwrap();
        let device = DeviceTarget { name: "d1".into(), path: place.path().to_owned() };
        assert_eq!(examine_format(&device).verdict, Verdict::Ok);
        std::fs::write(place.path().join("format.json"), "{}").unwrap();
        let finding = examine_format(&device);
        assert_eq!(finding.verdict, Verdict::Fail);
        assert!(finding.seen.contains("not a format"), "{}", finding.seen);
        let format = FolderFormat { version: 2, id: None, place: None, is_replaced: false };
        assert_eq!(judge_format("d1", Ok(Some(format.clone()))).seen, "version 2 of 2");
        let replaced = FolderFormat { is_replaced: true, ..format };
        assert_eq!(judge_format("d1", Ok(Some(replaced))).verdict, Verdict::Fail);
    }
}
