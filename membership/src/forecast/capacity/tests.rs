//! Forecasts for small clusters, checked against hand-computed values.

use super::*;
use crate::testing::{builder, device, next};

const GIB: u64 = 1 << 30;

/// Device of node `n{id + 1}` with 100 GiB, 10 GiB of them reserved.
fn report(id: u32, used_gib: u64) -> DeviceReport {
    DeviceReport {
        node: format!("n{}", id + 1),
        device: DeviceLine {
            device: id,
            name: "d1".into(),
            total_bytes: 100 * GIB,
            used_bytes: used_gib * GIB,
            extent_bytes: used_gib * GIB,
            reserve_bytes: 10 * GIB,
            ..DeviceLine::default()
        },
    }
}

fn close(bytes: u64, gib: u64) -> bool {
    bytes.abs_diff(gib * GIB) < 1 << 20
}

#[test]
fn without_moves_things_stay_as_they_are() {
    let ring = next(&mut builder(0, 3));
    let devices = [report(0, 30), report(1, 30), report(2, 30)];
    let capacity = project(&[ring], &devices, Vec::new());
    assert_eq!((capacity.replicas, capacity.used_bytes), (3, 90 * GIB));
    for device in &capacity.devices {
        assert_eq!((device.replicas, device.bytes_in, device.bytes_out), (16, 0, 0));
        let shares = [device.fullness, device.fullness_projected, device.fullness_peak];
        assert!(shares.iter().all(|it| (it - 0.3).abs() < 1e-9), "{device:?}");
        assert!((device.high_water - 0.9).abs() < 1e-9);
    }
    // Every device stores a copy of each byte.
    assert!(close(capacity.writable_until_first_full_bytes, 60));
    assert!(close(capacity.writable_until_all_full_bytes, 60));
    assert!(capacity.warnings.is_empty());
}

#[test]
fn the_fullest_device_is_the_first_and_handoffs_go_on_without_it() {
    let ring = next(&mut builder(0, 4));
    let devices = [report(0, 80), report(1, 30), report(2, 30), report(3, 30)];
    let capacity = project(&[ring], &devices, Vec::new());
    // 48 replicas over 4 devices: each device stores 3/4 of each byte.
    let first = capacity.writable_until_first_full_bytes;
    assert!(close(first * 3 / 4, 10), "{first}");
    // Free space of 10, 60, 60 and 60 GiB for three copies.
    assert!(close(capacity.writable_until_all_full_bytes * 3, 190));
}

#[test]
fn moves_fill_who_gets_and_free_who_gives() {
    let mut builder = builder(0, 3);
    next(&mut builder);
    builder.add(device(4, "d1")).unwrap();
    let ring = next(&mut builder);
    let devices = [report(0, 80), report(1, 80), report(2, 80), report(3, 0)];
    let capacity = project(std::slice::from_ref(&ring), &devices, Vec::new());
    let new = &capacity.devices[3];
    let moving = u64::try_from(ring.moves().len()).unwrap();
    assert_eq!((new.replicas_coming, new.replicas_going, new.bytes_out), (moving, 0, 0));
    // A replica holds 80 GiB / 16.
    assert!(close(new.bytes_in, moving * 5), "{new:?}");
    let out: u64 = capacity.devices.iter().map(|it| it.bytes_out).sum();
    assert!(out.abs_diff(new.bytes_in) < 16);
    for old in &capacity.devices[..3] {
        assert!(old.fullness_projected < old.fullness, "{old:?}");
        assert!((old.fullness_peak - old.fullness).abs() < 1e-9, "nothing comes to it");
    }
    assert!(capacity.warnings.is_empty(), "{:?}", capacity.warnings);
}

#[test]
fn bytes_already_on_a_new_device_are_not_forecast() {
    let mut builder = builder(0, 3);
    next(&mut builder);
    builder.add(device(4, "d1")).unwrap();
    let ring = next(&mut builder);
    let coming = |used_gib| {
        let devices = [report(0, 80), report(1, 80), report(2, 80), report(3, used_gib)];
        project(std::slice::from_ref(&ring), &devices, Vec::new()).devices[3].bytes_in
    };
    assert!(close(coming(0) - coming(20), 20), "20 GiB are there already");
    assert_eq!(coming(99), 0);
}

#[test]
fn devices_that_will_pass_the_mark_are_named() {
    let mut builder = builder(0, 3);
    next(&mut builder);
    builder.add(device(4, "d1")).unwrap();
    let ring = next(&mut builder);
    let mut small = report(3, 0);
    small.device.total_bytes = 30 * GIB;
    let devices = [report(0, 95), report(1, 80), report(2, 80), small];
    let capacity = project(&[ring], &devices, vec!["n9".into()]);
    assert_eq!(capacity.warnings.len(), 2, "{:?}", capacity.warnings);
    assert!(capacity.warnings[0].starts_with("d0 (n1/d1) is 95.0 % full"));
    assert!(capacity.warnings[1].starts_with("d3 (n4/d1) will be "));
    assert_eq!(capacity.writable_until_first_full_bytes, 0);
    assert_eq!(capacity.silent, ["n9"]);
}

#[test]
fn no_reachable_device_is_no_room() {
    let capacity = project(&[next(&mut builder(0, 3))], &[], Vec::new());
    assert_eq!(capacity.writable_until_first_full_bytes, 0);
    assert_eq!(capacity.writable_until_all_full_bytes, 0);
    assert!(project(&[], &[report(0, 1)], Vec::new()).warnings.is_empty());
}

#[test]
fn no_node_holds_two_copies_of_a_byte() {
    let rooms = |used: &[u64]| {
        let devices: Vec<DeviceCapacity> = (0u32..)
            .zip(used)
            .map(|(id, used)| line(&report(id, *used), AssignedShare::default()))
            .collect();
        until_all_full(&devices, 3, 1) / GIB
    };
    assert_eq!(rooms(&[0, 0, 0]), 90);
    assert_eq!(rooms(&[0, 0, 80]), 10);
    assert_eq!(rooms(&[0, 0, 0, 0]), 120);
    assert_eq!(rooms(&[0, 0, 80, 80]), 20);
    // Three copies on two nodes: devices count instead of nodes.
    assert_eq!(rooms(&[0, 0]), 0);
}

#[test]
fn a_policy_of_fragments_writes_a_part_of_everything_to_each_device() {
    let node = |id: u32| martlet_ring::Device {
        id: DeviceId(id),
        region: 1,
        zone: 1,
        node: martlet_ring::Node { name: format!("n{}", id + 1), address: String::new() },
        name: "d1".into(),
        weight: 1.0,
        meta: String::new(),
    };
    let code = Redundancy::erasure(2, 1).unwrap();
    let ring = Ring::of_code(martlet_protocol::PolicyId(1), "ec", code, &[0, 1, 2].map(node));
    let ring = Arc::new(ring.unwrap());
    let devices = [report(0, 30), report(1, 30), report(2, 30)];
    let capacity = project(std::slice::from_ref(&ring), &devices, Vec::new());
    assert_eq!((capacity.replicas, capacity.redundancy.as_str()), (3, "2+1"));
    // Each device has 60 GiB free and stores half of each byte.
    assert!(close(capacity.writable_until_first_full_bytes, 120));
    assert!(close(capacity.writable_until_all_full_bytes, 120));
    let copies = project(&[next(&mut builder(0, 3)), ring], &devices, Vec::new());
    assert!(close(copies.writable_until_all_full_bytes, 60), "the first policy counts");
}
