//! Fuzz target of the ring file: any bytes are refused, or are a ring that is written as it was read.

use martlet_protocol::testing::fuzz_target::FuzzTarget;
use martlet_protocol::{PolicyId, Redundancy};

use crate::builder::edit::NewDevice;
use crate::builder::rebalance::RebalanceContext;
use crate::builder::{Builder, RingSettings};
use crate::device::Node;
use crate::ring::Ring;

/// Ring files. An input is the low byte of a format version, then the fields and lists of a file
/// without magic, length and hash, which the check adds. The input alone is decoded too.
///
/// Properties: decoding never panics; its memory is bounded by 32 MiB and a small multiple of the
/// file; an accepted file of the current format is encoded to its own bytes; all lookups of an
/// accepted ring work.
pub const RING_FILE: FuzzTarget =
    FuzzTarget { name: "ring_file", check, seeds, heap_bytes_max: 64 << 20 };

const MAGIC: &[u8; 8] = b"MRTLRING";
/// Version of the files that are written.
const CURRENT: u8 = 2;
const FIELDS_AT: usize = 18;
const HASH_BYTES: usize = 32;
/// Most devices of a ring whose order of handoffs is computed. A device has up to 16,384 places in
/// that order.
const HANDOFF_DEVICES_MAX: usize = 4;

fn check(input: &[u8]) -> bool {
    let _ = Ring::decode(input);
    let Some((version, fields)) = input.split_first() else { return false };
    let bytes = file_of(*version, fields);
    let Ok(ring) = Ring::decode(&bytes) else { return false };
    let again = Ring::decode(&ring.encode()).expect("an encoded ring can be decoded");
    assert_eq!(again.identity(), ring.identity());
    assert_eq!(again.devices(), ring.devices());
    assert_eq!(again.moves(), ring.moves());
    assert_eq!(again.table, ring.table);
    if *version == CURRENT {
        assert_eq!(ring.encode(), bytes, "a ring has one file");
        assert_eq!(again.hash(), ring.hash());
    }
    look_up(&ring);
    true
}

/// Returns the file with these fields and lists, complete with length and hash.
fn file_of(version: u8, fields: &[u8]) -> Vec<u8> {
    let length = (FIELDS_AT + fields.len() + HASH_BYTES) as u64;
    let mut bytes = MAGIC.to_vec();
    bytes.extend_from_slice(&[version, 0]);
    bytes.extend_from_slice(&length.to_le_bytes());
    bytes.extend_from_slice(fields);
    let hash = blake3::hash(&bytes);
    bytes.extend_from_slice(hash.as_bytes());
    bytes
}

fn look_up(ring: &Ring) {
    for placement in [0, 1 << 40, u64::MAX / 3, u64::MAX] {
        let partition = ring.partition(placement);
        let span = ring.span(partition);
        assert!((span.first..=span.last).contains(&placement));
        let primaries: Vec<_> = ring.primaries(partition).collect();
        assert!((1..=ring.replicas()).contains(&primaries.len()) || ring.replicas_exact() < 1.0);
        assert!(primaries.iter().all(|id| ring.device(*id).is_some()));
        if ring.devices().len() <= HANDOFF_DEVICES_MAX {
            let handoffs: Vec<_> = ring.handoffs(partition).collect();
            assert!(handoffs.iter().all(|id| !primaries.contains(id)));
            let others = ring.devices().iter().filter(|it| !primaries.contains(&it.id)).count();
            assert_eq!(handoffs.len(), others);
        }
    }
    for step in ring.moves() {
        let previous = ring.previous(step.partition, usize::from(step.replica));
        assert!(previous.is_some());
    }
}

fn seeds() -> Vec<Vec<u8>> {
    let rings = [ring(0, 1.0, 1), ring(4, 1.0, 1), ring(4, 2.5, 4), ring(6, 3.0, 9)];
    let files = rings.iter().chain([&moving()]).map(Ring::encode).collect::<Vec<_>>();
    let seed = |file: &Vec<u8>| [&[CURRENT], &file[FIELDS_AT..file.len() - HASH_BYTES]].concat();
    files.iter().map(seed).collect()
}

fn builder(part_power: u8, replicas: f64, devices: u32) -> Builder {
    let settings = RingSettings {
        policy: PolicyId(0),
        policy_name: "default".to_owned(),
        redundancy: Redundancy::Replicated,
        part_power,
        replicas,
        min_part_hours: 0,
        overload: 0.0,
    };
    let mut builder = Builder::create(settings, [7; 16]).expect("the settings are possible");
    for number in 0..devices {
        add(&mut builder, number);
    }
    rebalance(&mut builder);
    builder
}

fn add(builder: &mut Builder, number: u32) {
    let node = Node { name: format!("n{number}"), address: format!("10.0.0.{number}:6200") };
    let name = format!("sd{number}");
    let weight = 100.0 + f64::from(number % 3) * 50.0;
    let device =
        NewDevice { region: 1, zone: 1 + number % 3, node, name, weight, meta: "é".into() };
    builder.add(device).expect("the device is new");
}

fn rebalance(builder: &mut Builder) {
    let context = RebalanceContext { now_ms: 1_000_000_000, seed: 1 };
    builder.rebalance(context).expect("there are enough devices");
}

fn ring(part_power: u8, replicas: f64, devices: u32) -> Ring {
    builder(part_power, replicas, devices).ring().expect("the ring was balanced")
}

/// A ring with open moves.
fn moving() -> Ring {
    let mut builder = builder(4, 3.0, 5);
    add(&mut builder, 5);
    rebalance(&mut builder);
    let ring = builder.ring().expect("the ring was balanced");
    assert!(!ring.moves().is_empty(), "the new device takes replicas");
    ring
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kept_inputs_of_the_ring_file() {
        let replayed = RING_FILE.replay();
        assert!(replayed.accepted >= replayed.seeds, "{replayed:?}");
    }
}
