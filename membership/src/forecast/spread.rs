//! Balance and dispersion of the rings in use.

use martlet_admin_api::forecast::{CrowdedLine, DeviceSpread, RingSpread};
use martlet_ring::{DeviceFigures, Figures, Ring};

/// Maximum number of devices, and of crowded places, in a report.
const NAMED: usize = 10;

/// Returns the balance and dispersion of a ring, with its worst devices and crowded places.
pub fn of(name: &str, ring: &Ring) -> RingSpread {
    let Figures { balance, dispersion, mut devices, crowded } = Figures::of_ring(ring);
    devices.sort_by(|a, b| b.balance.abs().total_cmp(&a.balance.abs()).then(a.id.cmp(&b.id)));
    let count = |number: usize| u64::try_from(number).unwrap_or(u64::MAX);
    let place = |figures: &DeviceFigures| {
        ring.device(figures.id).map(ToString::to_string).unwrap_or_default()
    };
    RingSpread {
        ring: name.to_owned(),
        epoch: ring.epoch(),
        hash: hex::encode(&ring.hash()[..8]),
        partitions: count(ring.partitions().count()),
        replicas: ring.replicas_exact(),
        devices: count(devices.len()),
        balance,
        dispersion,
        replicas_moving: count(ring.moves().len()),
        worst: devices
            .iter()
            .take(NAMED)
            .map(|figures| DeviceSpread {
                device: figures.id.0,
                place: place(figures),
                replicas: figures.parts.into(),
                desired: figures.desired,
                deviation: figures.balance,
            })
            .collect(),
        crowded: crowded
            .into_iter()
            .take(NAMED)
            .map(|it| CrowdedLine {
                place: it.place,
                replicas_max: it.most.into(),
                partitions: it.partitions.into(),
            })
            .collect(),
    }
}

#[cfg(test)]
mod tests {
    use martlet_protocol::DeviceId;

    use super::*;
    use crate::testing::{builder, device, next, ring};

    #[test]
    fn even_rings_are_balanced_and_dispersed() {
        let spread = of("index", &ring(0, 3));
        assert_eq!((spread.partitions, spread.devices, spread.replicas_moving), (16, 3, 0));
        assert!(spread.balance.abs() < 1e-9 && spread.dispersion.abs() < 1e-9, "{spread:?}");
        assert!(spread.crowded.is_empty() && spread.worst.len() == 3);
    }

    #[test]
    fn two_rings_of_one_epoch_differ_by_their_hashes() {
        let (mut one, mut other) = (builder(0, 3), builder(0, 3));
        other.add(device(4, "d1")).unwrap();
        let [one, other] = [&mut one, &mut other].map(|it| of("index", &next(it)));
        assert_eq!((one.epoch, one.hash.len()), (other.epoch, 16));
        assert_ne!(one.hash, other.hash);
    }

    #[test]
    fn nodes_that_hold_two_replicas_of_a_partition_are_named() {
        // The third node's low weight gives it few replicas, so the other nodes hold two of most
        // partitions.
        let mut uneven = builder(0, 3);
        uneven.set_weight(DeviceId(2), 0.1).unwrap();
        for node in [1, 2] {
            uneven.add(device(node, "d2")).unwrap();
        }
        let spread = of("data-0", &next(&mut uneven));
        assert!(spread.dispersion > 10.0, "{spread:?}");
        assert!(spread.crowded.iter().any(|it| it.place.starts_with("r1z")), "{spread:?}");
        assert!(spread.worst[0].deviation.abs() >= spread.worst[4].deviation.abs());
    }
}
