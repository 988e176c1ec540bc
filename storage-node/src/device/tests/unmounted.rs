//! Tests: a device is never made anew in the mount point of its disk.

use std::fs;
use std::path::Path;
use std::sync::Arc;

use martlet_protocol::ManualClock;
use martlet_protocol::opening::Uuid;

use super::*;

/// Moves everything in a folder to another one, as if a disk was unmounted or mounted.
fn move_all(from: &Path, to: &Path) {
    for entry in fs::read_dir(from).unwrap() {
        let path = entry.unwrap().path();
        fs::rename(&path, to.join(path.file_name().unwrap())).unwrap();
    }
}

fn count(folder: &Path) -> usize {
    fs::read_dir(folder).unwrap().count()
}

fn tend_for_a_while(device: &Device, clock: &ManualClock) {
    for _ in 0..3 {
        clock.advance_ms(TRY_EVERY_MS);
        device.tend();
    }
}

#[tokio::test]
async fn a_device_whose_disk_is_gone_is_not_made_anew_in_its_mount_point() {
    for peers in [false, true] {
        let (folder, away) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let (root, clock) = (folder.path(), Arc::new(ManualClock::at(START_MS)));
        let initial = InitialState { peers, introduced: peers, levels: [2, 2] };
        let device = device_of(root, clock.clone(), initial);
        device.open();
        let before = device.status().identity;
        device.online().unwrap().extents.give_up("the disk failed");
        move_all(root, away.path());
        tend_for_a_while(&device, &clock);
        let reason = device.offline().unwrap();
        assert!(reason.contains("mount its disk"), "{reason}");
        assert_eq!(count(root), 0, "something was made in the mount point");
        // A mount point may be removed with its disk.
        fs::remove_dir(root).unwrap();
        tend_for_a_while(&device, &clock);
        assert!(!root.exists());
        fs::create_dir(root).unwrap();
        move_all(away.path(), root);
        tend_for_a_while(&device, &clock);
        assert_eq!((device.offline(), device.status().identity), (None, before));
    }
}

#[tokio::test]
async fn another_disk_in_the_place_of_a_device_is_left_as_it_is() {
    let [folder, away, other] = std::array::from_fn(|_| tempfile::tempdir().unwrap());
    let (root, clock) = (folder.path(), Arc::new(ManualClock::at(START_MS)));
    let initial = InitialState { peers: false, introduced: false, levels: [2, 2] };
    let stranger = device_of(other.path(), clock.clone(), initial);
    stranger.open();
    stranger.close().unwrap();
    let device = device_of(root, clock.clone(), initial);
    device.open();
    let before = device.status().identity;
    device.online().unwrap().extents.give_up("the disk failed");
    move_all(root, away.path());
    move_all(other.path(), root);
    tend_for_a_while(&device, &clock);
    let reason = device.offline().unwrap();
    assert!(reason.contains("mount its own disk"), "{reason}");
    assert!(root.join("clean").exists(), "the other device was not opened");
    move_all(root, other.path());
    move_all(away.path(), root);
    tend_for_a_while(&device, &clock);
    assert_eq!((device.offline(), device.status().identity), (None, before));
}

#[tokio::test]
async fn a_known_device_is_not_made_by_its_first_opening() {
    let folder = tempfile::tempdir().unwrap();
    let clock = Arc::new(ManualClock::at(START_MS));
    let initial = InitialState { peers: false, introduced: false, levels: [2, 2] };
    let mut device = device_of(folder.path(), clock.clone(), initial);
    let config = DeviceConfig { formatting: Some(Uuid([7; 16])), ..device.config.clone() };
    device = Arc::new(Device::new(config, device.shared.clone()));
    device.open();
    tend_for_a_while(&device, &clock);
    assert!(device.offline().unwrap().contains("mount its disk"));
    assert_eq!(count(folder.path()), 0);
}

/// A device that begins anew gets another formatting, which its next openings accept.
#[tokio::test]
async fn a_device_that_began_anew_is_opened_again() {
    let folder = tempfile::tempdir().unwrap();
    let clock = Arc::new(ManualClock::at(START_MS));
    let device = device(folder.path(), clock.clone(), true);
    device.open();
    let first = device.status().identity;
    device.refuse(another()).unwrap();
    device.begin_anew(false).unwrap();
    let second = device.status().identity;
    assert_ne!(second, first);
    device.online().unwrap().extents.give_up("the disk failed");
    tend_for_a_while(&device, &clock);
    assert_eq!((device.offline(), device.status().identity), (None, second));
}
