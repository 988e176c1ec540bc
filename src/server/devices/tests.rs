//! Tests of devices: added, removed, moved and unmounted devices keep their numbers.

use std::cell::RefCell;
use std::collections::HashMap;

use super::*;

/// Folders by path, with the device in each.
#[derive(Default)]
struct Folders(RefCell<HashMap<PathBuf, String>>);

impl Folders {
    fn format(&self, path: &str, uuid: &str) {
        self.0.borrow_mut().insert(path.into(), uuid.to_owned());
    }

    fn unmount(&self, path: &str) {
        self.0.borrow_mut().remove(Path::new(path));
    }

    fn settle(&self, file: &mut ClusterFile, configured: &[&str]) -> Result<StartDevices, Failure> {
        let configured: Vec<PathBuf> = configured.iter().map(PathBuf::from).collect();
        file.settle(&configured, PathBuf::from("/data/device0"), |path| Ok(self.identify(path)))
    }

    fn identify(&self, path: &Path) -> FolderContents {
        match self.0.borrow().get(path).map(String::as_str) {
            None => FolderContents::Nothing,
            Some("?") => FolderContents::Unknown,
            Some(uuid) => FolderContents::Device(uuid.to_owned()),
        }
    }
}

fn numbers(present: &StartDevices) -> Vec<(u32, String)> {
    let number = |device: &KnownDevice| (device.id.0, device.path.display().to_string());
    present.devices.iter().map(number).collect()
}

/// Cluster after one start on /a and /b.
fn two_devices() -> (Folders, ClusterFile) {
    let folders = Folders::default();
    let mut file = ClusterFile::new(Uuid::random());
    folders.settle(&mut file, &["/a", "/b"]).unwrap();
    folders.format("/a", "A");
    folders.format("/b", "B");
    assert_eq!(file.learn(|path| Ok(folders.identify(path))).unwrap(), Vec::<PathBuf>::new());
    (folders, file)
}

#[test]
fn without_a_word_there_is_one_device_and_it_is_remembered() {
    let folders = Folders::default();
    let mut file = ClusterFile::new(Uuid::random());
    let present = folders.settle(&mut file, &[]).unwrap();
    assert_eq!(numbers(&present), [(0, "/data/device0".to_owned())]);
    folders.format("/data/device0", "A");
    file.learn(|path| Ok(folders.identify(path))).unwrap();
    assert_eq!(folders.settle(&mut file, &[]).unwrap(), folders.settle(&mut file, &[]).unwrap());
}

#[test]
fn device_numbers_do_not_depend_on_order() {
    let (folders, mut file) = two_devices();
    let present = folders.settle(&mut file, &["/b", "/a"]).unwrap();
    assert_eq!(numbers(&present), [(0, "/a".to_owned()), (1, "/b".to_owned())]);
    assert!(present.missing.is_empty());
}

#[test]
fn a_moved_device_is_known_again_also_when_two_swapped_their_places() {
    let (folders, mut file) = two_devices();
    folders.format("/a", "B");
    folders.format("/b", "A");
    let present = folders.settle(&mut file, &["/a", "/b"]).unwrap();
    assert_eq!(numbers(&present), [(0, "/b".to_owned()), (1, "/a".to_owned())]);
}

#[test]
fn a_disk_that_is_not_mounted_is_missing_and_not_formatted() {
    let (folders, mut file) = two_devices();
    folders.unmount("/b");
    let present = folders.settle(&mut file, &["/a", "/b"]).unwrap();
    assert_eq!(numbers(&present), [(0, "/a".to_owned())]);
    assert_eq!(present.missing[0].id, DeviceId(1));
    assert!(present.missing[0].reason.contains("mount its disk"));
}

#[test]
fn a_device_that_is_not_named_is_missing() {
    let (folders, mut file) = two_devices();
    let present = folders.settle(&mut file, &["/b"]).unwrap();
    assert_eq!(numbers(&present), [(1, "/b".to_owned())]);
    assert!(present.missing[0].reason.contains("not named"));
}

#[test]
fn a_device_added_later_takes_extents_and_no_entries() {
    let (folders, mut file) = two_devices();
    let present = folders.settle(&mut file, &["/c", "/b", "/a"]).unwrap();
    assert_eq!(present.devices.len(), 3);
    let ids = |devices: Vec<Device>| devices.iter().map(|it| it.id.0).collect::<Vec<_>>();
    assert_eq!(ids(file.index_devices()), [0, 1]);
    assert_eq!(ids(file.data_devices()), [0, 1, 2]);
}

#[test]
fn a_start_that_was_cut_off_before_the_device_was_made_goes_on() {
    let folders = Folders::default();
    let mut file = ClusterFile::new(Uuid::random());
    folders.settle(&mut file, &["/a"]).unwrap();
    let again = folders.settle(&mut file, &["/a"]).unwrap();
    assert_eq!(numbers(&again), [(0, "/a".to_owned())]);
    folders.format("/a", "A");
    let after = folders.settle(&mut file, &["/a"]).unwrap();
    assert_eq!(numbers(&after), [(0, "/a".to_owned())]);
}

#[test]
fn a_device_named_twice_is_a_mistake() {
    let (folders, mut file) = two_devices();
    folders.format("/link", "A");
    let refusal = folders.settle(&mut file, &["/a", "/link"]).unwrap_err();
    assert!(matches!(refusal, Failure::Usage(_)), "{refusal}");
}

#[test]
fn a_device_that_could_not_be_made_is_forgotten() {
    let (folders, mut file) = two_devices();
    let before = file.clone();
    folders.settle(&mut file, &["/a", "/b", "/c"]).unwrap();
    assert_ne!(file, before);
    let unmade = file.learn(|path| Ok(folders.identify(path))).unwrap();
    assert_eq!((unmade, file), (vec![PathBuf::from("/c")], before));
}

#[test]
fn a_device_of_a_newer_format_is_left_to_the_node_to_refuse() {
    let (folders, mut file) = two_devices();
    folders.format("/a", "?");
    let present = folders.settle(&mut file, &["/a", "/b"]).unwrap();
    assert_eq!(numbers(&present), [(0, "/a".to_owned()), (1, "/b".to_owned())]);
}

#[test]
fn the_file_is_read_as_it_was_written_and_newer_ones_are_refused() {
    let place = tempfile::tempdir().unwrap();
    let folder = DataFolder::open(place.path()).unwrap();
    let (_, file) = two_devices();
    file.store(&folder).unwrap();
    assert_eq!(ClusterFile::load(&folder).unwrap(), file);
    folder.replace(FILE, br#"{"format": 2, "all": "new"}"#).unwrap();
    let refusal = ClusterFile::load(&folder).unwrap_err().to_string();
    assert!(refusal.contains("has format 2"), "{refusal}");
    folder.replace(FILE, b"{").unwrap();
    assert!(ClusterFile::load(&folder).unwrap_err().to_string().contains("damaged"));
}
