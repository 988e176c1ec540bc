//! Fragments of an extent and their lengths. This is a second implementation of the documented
//! layout of erasure codes, so that an error common to writers and readers shows.

use martlet_protocol::extent::ExtentRef;
use martlet_protocol::limits::BLOCK_BYTES;
use martlet_protocol::{DeviceId, ExtentId, Redundancy};
use martlet_ring::Ring;

/// Expected location of a copy or fragment of an extent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExpectedHomes {
    /// Id under which devices store the copy or fragment.
    pub id: ExtentId,
    /// Devices that should hold the copy or fragment; none for a fragment without bytes.
    pub homes: Vec<DeviceId>,
    /// Length in bytes.
    pub length: u64,
}

/// Returns the expected locations of an extent that a manifest names, by the newest ring of its
/// policy.
pub fn places(ring: &Ring, extent: &ExtentRef) -> Vec<ExpectedHomes> {
    let homes: Vec<_> = ring.primaries(ring.partition(extent.id.placement())).collect();
    let length = u64::from(extent.length);
    let Redundancy::Erasure { k, m } = ring.identity().redundancy else {
        return vec![ExpectedHomes { id: extent.id, homes, length }];
    };
    assert_eq!(homes.len(), usize::from(k + m), "a ring has a replica for each fragment");
    let place = |number: u8| {
        let length = stored_bytes(k, number, length);
        let home = if length == 0 { Vec::new() } else { vec![homes[usize::from(number)]] };
        ExpectedHomes { id: extent.id.fragment(number), homes: home, length }
    };
    (0..k + m).map(place).collect()
}

/// Bytes of the extent from the beginning of one data fragment to the next.
pub fn fragment_bytes(k: u8, length: u64) -> u64 {
    length.div_ceil(u64::from(k)).next_multiple_of(BLOCK_BYTES)
}

/// Bytes of one fragment of an extent. Parity fragments are as long as the first data fragment.
fn stored_bytes(k: u8, number: u8, length: u64) -> u64 {
    let fragment_bytes = fragment_bytes(k, length);
    let before = if number < k { u64::from(number) * fragment_bytes } else { 0 };
    length.saturating_sub(before).min(fragment_bytes)
}

#[cfg(test)]
mod tests {
    use martlet_protocol::PolicyId;

    use super::*;

    fn lengths(k: u8, m: u8, length: u64) -> Vec<u64> {
        (0..k + m).map(|number| stored_bytes(k, number, length)).collect()
    }

    #[test]
    fn fragments_are_as_long_as_documented() {
        let full = 256 << 10;
        assert_eq!(lengths(4, 2, 900_000), [full, full, full, 113_568, full, full]);
        assert_eq!(lengths(4, 2, 10_000), [10_000, 0, 0, 0, 10_000, 10_000]);
        assert_eq!(lengths(2, 1, 65_536), [65_536, 0, 65_536]);
        assert_eq!(lengths(2, 1, 65_537), [65_536, 1, 65_536]);
        assert_eq!(lengths(1, 2, 70_000), [70_000; 3]);
    }

    fn device(number: u32) -> martlet_ring::Device {
        let name = format!("n{number}");
        let node = martlet_ring::Node { address: format!("{name}:1"), name };
        let (region, zone, weight) = (1, number, 1.0);
        let (name, meta) = ("d1".to_owned(), String::new());
        martlet_ring::Device { id: DeviceId(number), region, zone, node, name, weight, meta }
    }

    #[test]
    fn a_fragment_belongs_to_the_replica_of_its_number() {
        let devices: Vec<_> = (0..7).map(device).collect();
        let code = Redundancy::erasure(4, 2).unwrap();
        let ring = Ring::of_code(PolicyId(0), "coded", code, &devices).unwrap();
        let extent = ExtentRef { id: ExtentId([0xe0; 16]), length: 10_000, blake3: [0; 32] };
        let primaries: Vec<_> = ring.primaries(ring.partition(extent.id.placement())).collect();
        for (number, place) in (0..).zip(places(&ring, &extent)) {
            assert_eq!(place.id, extent.id.fragment(number));
            let is_empty = (1..4).contains(&number);
            let home = primaries[usize::from(number)];
            assert_eq!(place.homes, if is_empty { vec![] } else { vec![home] }, "{number}");
            assert_eq!(place.length, if is_empty { 0 } else { 10_000 });
        }
    }
}
