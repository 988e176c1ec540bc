//! Ring files and builder files: files are read back unchanged, damaged files are refused, and the
//! first format stays readable.

use std::path::{Path, PathBuf};

use martlet_protocol::DeviceId;

use crate::builder::Builder;
use crate::builder::rebalance::RebalanceContext;
use crate::error::ErrorKind;
use crate::ring::Ring;
use crate::testing::{TestRng, add_zones, builder, new_device, rebalance};

fn testdata(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("testdata").join(name)
}

/// A small cluster with every feature of a ring file: removed ids, fractional weights and replicas,
/// open moves, metadata.
fn eventful() -> Builder {
    let mut builder = builder(6, 2.5);
    builder.set_min_part_hours(1);
    add_zones(&mut builder, 1..=3, 1, 2);
    rebalance(&mut builder, 1);
    builder.remove(DeviceId(2), false).unwrap();
    let mut device = new_device(2, 1, 1, 9, 33.3);
    "serial 7Q, ünïcode".clone_into(&mut device.meta);
    builder.add(device).unwrap();
    builder.record(1_000, "ada", "made a ring");
    builder.rebalance(RebalanceContext { now_ms: 5_000_000, seed: 2 }).unwrap();
    builder
}

#[test]
fn a_ring_comes_back_as_it_was_written() {
    let ring = eventful().ring().unwrap();
    let again = Ring::decode(&ring.encode()).unwrap();
    assert_eq!(again.identity(), ring.identity());
    assert_eq!(again.devices(), ring.devices());
    assert_eq!(again.moves(), ring.moves());
    assert!(!ring.moves().is_empty());
    assert_eq!(again.hash(), ring.hash());
    for partition in ring.partitions() {
        assert!(again.primaries(partition).eq(ring.primaries(partition)));
        assert!(again.handoffs(partition).eq(ring.handoffs(partition)));
    }
}

#[test]
fn a_slot_has_as_many_bits_as_the_device_count_needs() {
    for devices in [1, 2, 3, 4, 5, 16, 17, 256, 257] {
        let mut builder = builder(4, 1.0);
        add_zones(&mut builder, 1..=1, 1, devices);
        rebalance(&mut builder, 1);
        let ring = builder.ring().unwrap();
        let again = Ring::decode(&ring.encode()).unwrap();
        assert!(ring.partitions().all(|p| ring.primaries(p).eq(again.primaries(p))), "{devices}");
    }
}

fn refusal(bytes: &[u8]) -> String {
    let error = Ring::decode(bytes).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Corrupt, "{error}");
    error.to_string()
}

#[test]
fn a_ring_file_cut_short_at_any_byte_is_refused() {
    let bytes = eventful().ring().unwrap().encode();
    for length in 0..bytes.len() {
        let reason = refusal(&bytes[..length]);
        let expected = if length < 8 { "not a ring file" } else { "cut short" };
        assert!(reason.contains(expected), "{length} bytes: {reason}");
    }
}

#[test]
fn a_ring_file_with_any_bit_flipped_is_refused() {
    let mut bytes = eventful().ring().unwrap().encode();
    for at in 0..bytes.len() * 8 {
        bytes[at / 8] ^= 1 << (at % 8);
        refusal(&bytes);
        bytes[at / 8] ^= 1 << (at % 8);
    }
    assert!(Ring::decode(&bytes).is_ok());
}

#[test]
fn bytes_after_a_ring_file_are_refused() {
    let mut bytes = eventful().ring().unwrap().encode();
    bytes.push(0);
    assert!(refusal(&bytes).contains("followed by other bytes"));
    assert!(refusal(b"PK\x03\x04 something else altogether").contains("not a ring file"));
    let mut newer = eventful().ring().unwrap().encode();
    newer[8] = 3;
    assert!(refusal(&newer).contains("format 3, and this program reads formats 1 to 2"));
}

/// Invalid contents with a correct hash, as from a faulty writer or a forger.
#[test]
fn contradictions_under_a_right_hash_are_refused() {
    let good = eventful().ring().unwrap().encode();
    let mut lots = TestRng::new(3);
    let (mut refused, body) = (0, good.len() - 32);
    for _ in 0..3000 {
        let mut bytes = good.clone();
        // Header and lists; within the slots almost any bytes are valid.
        let at = 18 + lots.below(400) as usize;
        bytes[at] = u8::try_from(lots.below(256)).unwrap();
        let hash = blake3::hash(&bytes[..body]);
        bytes[body..].copy_from_slice(hash.as_bytes());
        refused += u32::from(Ring::decode(&bytes).is_err());
    }
    assert!(refused > 300, "{refused} of 3000");
    // A shape that would take 2 GiB is refused before memory is allocated.
    let mut huge = good;
    (huge[88], huge[89]) = (24, 6);
    let hash = blake3::hash(&huge[..body]);
    huge[body..].copy_from_slice(hash.as_bytes());
    assert!(refusal(&huge).contains("too few or too many replicas"));
}

fn resealed(mut bytes: Vec<u8>) -> Vec<u8> {
    let body = bytes.len() - 32;
    let hash = blake3::hash(&bytes[..body]);
    bytes[body..].copy_from_slice(hash.as_bytes());
    bytes
}

/// The slots of a single device take no bits: 2^30 of them would take 2 GiB, for a file of 200 bytes.
#[test]
fn a_ring_of_one_device_cannot_claim_many_replicas() {
    let mut builder = builder(4, 1.0);
    add_zones(&mut builder, 1..=1, 1, 1);
    rebalance(&mut builder, 1);
    let good = builder.ring().unwrap().encode();
    for (part_power, width) in [(24, 64), (24, 2), (4, 2)] {
        let mut bytes = good.clone();
        (bytes[88], bytes[89]) = (part_power, width);
        assert!(refusal(&resealed(bytes)).contains("impossible dimensions"), "{width}");
    }
    let mut bytes = good;
    (bytes[88], bytes[90]) = (5, 32);
    let ring = Ring::decode(&resealed(bytes)).unwrap();
    assert_eq!(ring.partitions().count(), 32);
    assert!(ring.partitions().all(|partition| ring.primaries(partition).len() == 1));
}

/// Three replicas on two devices take as many bytes as two.
#[test]
fn a_ring_cannot_claim_more_replicas_than_devices() {
    let mut builder = builder(0, 2.0);
    add_zones(&mut builder, 1..=2, 1, 1);
    rebalance(&mut builder, 1);
    let mut bytes = builder.ring().unwrap().encode();
    assert!(Ring::decode(&bytes).is_ok());
    bytes[89] = 3;
    assert!(refusal(&resealed(bytes)).contains("impossible dimensions"));
}

#[test]
fn a_ring_has_one_file() {
    // 2^0 partitions with 3 replicas on 3 devices: 6 bits of the last byte.
    let mut builder = builder(0, 3.0);
    add_zones(&mut builder, 1..=3, 1, 1);
    rebalance(&mut builder, 1);
    let mut bytes = builder.ring().unwrap().encode();
    assert_eq!(Ring::decode(&bytes).unwrap().encode(), bytes);
    let last = bytes.len() - 33;
    bytes[last] |= 0x40;
    assert!(refusal(&resealed(bytes)).contains("bits after its last replica"));
}

#[test]
fn files_are_replaced_whole_and_name_themselves_when_refused() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("data.ring");
    let ring = eventful().ring().unwrap();
    std::fs::write(&path, "older").unwrap();
    ring.save(&path).unwrap();
    assert_eq!(Ring::load(&path).unwrap().hash(), ring.hash());
    let names: Vec<_> = std::fs::read_dir(folder.path()).unwrap().collect();
    assert_eq!(names.len(), 1, "nothing is left beside it: {names:?}");
    std::fs::write(&path, "MRTLRING").unwrap();
    assert!(Ring::load(&path).unwrap_err().to_string().contains("data.ring: the ring file is cut"));
    assert_eq!(Ring::load(folder.path()).unwrap_err().kind(), ErrorKind::Io);
}

#[test]
fn a_builder_comes_back_as_it_was_written() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("data.builder");
    let mut builder = eventful();
    builder.set_weight(DeviceId(0), 0.1 + 0.2).unwrap();
    builder.drain(DeviceId(1), 3).unwrap();
    builder.remove(DeviceId(3), true).unwrap();
    builder.save(&path).unwrap();
    assert_eq!(Builder::load(&path).unwrap(), builder);
    let fresh = Builder::create(builder.settings().clone(), [1; 16]).unwrap();
    fresh.save(&path).unwrap();
    assert_eq!(Builder::load(&path).unwrap(), fresh);
}

/// A device lost during moves leads to a second, concurrent rebalance.
#[test]
fn moves_of_several_rebalances_come_back_in_their_order() {
    let mut builder = eventful();
    builder.remove(DeviceId(0), true).unwrap();
    builder.rebalance(RebalanceContext { now_ms: 5_060_000, seed: 3 }).unwrap();
    let ring = builder.ring().unwrap();
    let mut changes: Vec<u64> = ring.moves().iter().map(|step| step.change).collect();
    changes.sort_unstable();
    changes.dedup();
    assert_eq!(changes.len(), 2, "moves of two changes are under way");
    let again = Builder::from_json(&builder.to_json()).unwrap();
    assert_eq!(again, builder);
    assert_eq!(again.ring().unwrap().hash(), ring.hash());
}

/// Floating-point numbers keep every bit, or the file's own hash would not match.
#[test]
fn any_weight_comes_back() {
    let (mut lots, mut builder) = (TestRng::new(5), builder(4, 1.0));
    // The bits of positive numbers have the order of the numbers.
    let (least, most) = (1e-9_f64.to_bits(), 1e15_f64.to_bits());
    for disk in 0..2000 {
        let weight = f64::from_bits(least + lots.next() % (most - least));
        builder.add(new_device(1, 1, 1, disk, weight)).unwrap();
    }
    assert_eq!(Builder::from_json(&builder.to_json()).unwrap(), builder);
}

#[test]
fn a_builder_file_is_edited_knowingly_or_not_at_all() {
    let text = eventful().to_json();
    let edited = text.replace("\"weight\": 33.3", "\"weight\": 44.4");
    let error = Builder::from_json(&edited).unwrap_err();
    assert!(error.to_string().contains("remove its `blake3` line"), "{error}");
    let line = edited.lines().find(|line| line.contains("\"blake3\"")).unwrap();
    let knowingly = edited.replace(line, "").replace("],\n\n}", "]\n}");
    let builder = Builder::from_json(&knowingly).unwrap();
    assert!(builder.devices().any(|device| (device.weight - 44.4).abs() < 1e-9));
    for damage in ["{", "[]", "", "{\"martlet_ring_builder\": 1}"] {
        let error = Builder::from_json(damage).unwrap_err();
        assert!(error.to_string().contains("`reconstruct`"), "{error}");
    }
    let newer = text.replace("\"martlet_ring_builder\": 1", "\"martlet_ring_builder\": 2");
    assert!(Builder::from_json(&newer).unwrap_err().to_string().contains("has format 2"));
}

#[test]
fn history_has_author_change_and_time() {
    let builder = Builder::from_json(&eventful().to_json()).unwrap();
    let [entry] = builder.history() else { panic!("{:?}", builder.history()) };
    assert_eq!(
        (entry.at_ms, entry.who.as_str(), entry.what.as_str()),
        (1_000, "ada", "made a ring")
    );
}

/// A builder recreated from its ring moves no data, and continues from there.
#[test]
fn a_builder_made_again_from_its_ring_moves_nothing() {
    let mut lost = eventful();
    let ring = lost.ring().unwrap();
    let now_ms = 5_000_000;
    let mut again = Builder::from_ring(&ring, 1, 0.0, now_ms).unwrap();
    assert_eq!(again.ring().unwrap().hash(), ring.hash());
    assert_eq!(again.moving(), ring.moves().len());
    let later = RebalanceContext { now_ms: now_ms + 2 * 3_600_000, seed: 3 };
    assert_eq!(again.rebalance(later).unwrap().moved, lost.rebalance(later).unwrap().moved);
    assert_eq!(again.ring().unwrap().hash(), lost.ring().unwrap().hash());
    let id = again.add(new_device(1, 1, 1, 77, 100.0)).unwrap();
    assert_eq!(id, DeviceId(7), "ids of devices that are gone aren't given again");
}

/// Reads the golden pair of a format and checks the contents of both: the eventful cluster.
fn golden(version: u16) -> (Ring, Vec<u8>, Builder) {
    let ring_path = testdata(&format!("v{version}.ring"));
    let bytes = std::fs::read(&ring_path).unwrap();
    assert_eq!(bytes[8..10], version.to_le_bytes());
    let ring = Ring::load(&ring_path).unwrap();
    assert_eq!((ring.epoch(), ring.change()), (2, 2));
    assert_eq!((ring.part_power(), ring.replicas(), ring.moves().len()), (6, 3, GOLDEN_MOVES));
    assert!(ring.moves().iter().all(|step| step.change == 2));
    assert_eq!(ring.device(DeviceId(6)).unwrap().meta, "serial 7Q, ünïcode");
    let first: Vec<u32> = ring.primaries(martlet_protocol::Partition(0)).map(|id| id.0).collect();
    assert_eq!(first, GOLDEN_PRIMARIES);
    let builder = Builder::load(&testdata(&format!("v{version}.builder.json"))).unwrap();
    assert_eq!(builder.history().len(), 1);
    (ring, bytes, builder)
}

/// Golden: one pair for each format version, kept forever. If this test fails, rings and builders
/// of existing clusters can't be read.
#[test]
fn version_1_is_read_for_ever() {
    let (ring, bytes, builder) = golden(1);
    assert_eq!(ring.hash()[..], bytes[bytes.len() - 32..], "its child names the hash of its file");
    let again = builder.ring().unwrap();
    assert_eq!(again.identity(), ring.identity());
    assert_eq!(again.moves(), ring.moves());
    for partition in ring.partitions() {
        assert!(ring.primaries(partition).eq(again.primaries(partition)));
    }
}

/// As [`version_1_is_read_for_ever`], for the format that is written.
#[test]
fn version_2_is_read_for_ever() {
    if std::env::var_os("MARTLET_WRITE_GOLDEN").is_some() {
        eventful().ring().unwrap().save(&testdata("v2.ring")).unwrap();
        eventful().save(&testdata("v2.builder.json")).unwrap();
    }
    let (ring, bytes, builder) = golden(2);
    assert_eq!(ring.encode(), bytes);
    assert_eq!(builder.ring().unwrap().hash(), ring.hash());
}

const GOLDEN_MOVES: usize = 28;
const GOLDEN_PRIMARIES: [u32; 3] = [4, 1, 6];

/// Golden: an embedded server builds its ring again at each start. If a later version built another
/// ring, the server would not find its data.
#[test]
fn rings_dealt_afresh_are_the_same_in_every_version() {
    let devices: Vec<_> =
        (0..5).map(|id| crate::testing::device(id, 1, 1 + id % 3, &format!("n{id}"))).collect();
    let dealt = |replicas| {
        let ring = Ring::of_devices(martlet_protocol::PolicyId(0), replicas, &devices).unwrap();
        let holders = ring.partitions().flat_map(|partition| ring.primaries(partition));
        let bytes: Vec<u8> = holders.map(|id| u8::try_from(id.0).unwrap()).collect();
        blake3::hash(&bytes).to_hex()[..16].to_owned()
    };
    assert_eq!([dealt(1), dealt(3)], ["cab8f10af2bca909", "5429b790e4a25851"]);
}
