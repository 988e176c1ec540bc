//! The rings of an embedded server, kept in the data folder: what was placed is looked for where it
//! was placed, whatever a later version would deal.
//!
//! ```text
//! <data-dir>/index.ring     where entries lie; dealt at the first start
//! <data-dir>/data.ring      where new extents go; dealt again when devices are added
//! ```

use std::fs;
use std::io::ErrorKind;

use martlet_ring::{Device, Ring};

use super::devices::{ClusterFile, POLICY};
use crate::failure::Failure;
use crate::process::folder::DataFolder;

const INDEX: &str = "index.ring";
const DATA: &str = "data.ring";
/// Copies of everything on one machine.
const REPLICAS: usize = 1;

/// The rings over the devices of a cluster.
#[derive(Debug)]
pub(crate) struct Rings {
    pub(crate) index: Ring,
    pub(crate) data: Ring,
}

impl Rings {
    /// The rings that are kept, or new ones where the devices are others.
    pub(crate) fn settle(folder: &DataFolder, file: &ClusterFile) -> Result<Self, Failure> {
        Ok(Self {
            index: kept_or_dealt(folder, INDEX, &file.index_devices())?,
            data: kept_or_dealt(folder, DATA, &file.data_devices())?,
        })
    }
}

fn kept_or_dealt(folder: &DataFolder, name: &str, devices: &[Device]) -> Result<Ring, Failure> {
    if let Some(ring) = kept(folder, name)?.filter(|ring| is_over(ring, devices)) {
        return Ok(ring);
    }
    let ring = Ring::of_devices(POLICY, REPLICAS, devices)
        .map_err(|error| Failure::refused(format!("the devices make no cluster: {error}")))?;
    folder.replace(name, &ring.encode())?;
    Ok(ring)
}

fn kept(folder: &DataFolder, name: &str) -> Result<Option<Ring>, Failure> {
    let path = folder.join(name);
    let told =
        |what: &str| Failure::refused(format!("{} {what}: restore it from a copy", path.display()));
    match fs::read(&path) {
        Ok(bytes) => Ring::decode(&bytes).map(Some).map_err(|error| {
            told(&format!("says where everything lies, and is no good ({error})"))
        }),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
        Err(error) => Err(told(&format!("can't be read ({error})"))),
    }
}

fn is_over(ring: &Ring, devices: &[Device]) -> bool {
    let mut held: Vec<_> = ring.devices().iter().map(|device| device.id).collect();
    let mut wanted: Vec<_> = devices.iter().map(|device| device.id).collect();
    held.sort_unstable();
    wanted.sort_unstable();
    held == wanted
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use super::super::devices::Holds;
    use super::*;

    fn cluster(file: &mut ClusterFile, paths: &[&str]) {
        let asked: Vec<PathBuf> = paths.iter().map(PathBuf::from).collect();
        let name = |path: &std::path::Path| Ok(Holds::Device(path.display().to_string()));
        file.settle(&asked, "/none".into(), name).unwrap();
        file.learn(name).unwrap();
    }

    fn fresh() -> (tempfile::TempDir, DataFolder, ClusterFile) {
        let place = tempfile::tempdir().unwrap();
        let folder = DataFolder::open(place.path()).unwrap();
        let mut file = ClusterFile::load(&folder).unwrap();
        cluster(&mut file, &["/a", "/b"]);
        (place, folder, file)
    }

    #[test]
    fn a_ring_that_is_kept_wins_over_what_would_be_dealt() {
        let (_place, folder, file) = fresh();
        let first = Rings::settle(&folder, &file).unwrap();
        let other = Ring::of_devices(POLICY, 2, &file.index_devices()).unwrap();
        assert_ne!(other.hash(), first.index.hash());
        fs::write(folder.join(INDEX), other.encode()).unwrap();
        let second = Rings::settle(&folder, &file).unwrap();
        assert_eq!(second.index.hash(), other.hash());
        assert_eq!(second.data.hash(), first.data.hash());
    }

    #[test]
    fn a_new_device_takes_extents_and_leaves_entries_where_they_are() {
        let (_place, folder, mut file) = fresh();
        let before = Rings::settle(&folder, &file).unwrap();
        cluster(&mut file, &["/a", "/b", "/c"]);
        let after = Rings::settle(&folder, &file).unwrap();
        assert_eq!(after.index.hash(), before.index.hash());
        assert_eq!((before.data.devices().len(), after.data.devices().len()), (2, 3));
    }

    #[test]
    fn a_damaged_ring_is_refused_and_left_alone() {
        let (_place, folder, file) = fresh();
        Rings::settle(&folder, &file).unwrap();
        let mut bytes = fs::read(folder.join(INDEX)).unwrap();
        let middle = bytes.len() / 2;
        bytes[middle] ^= 1;
        fs::write(folder.join(INDEX), &bytes).unwrap();
        let refusal = Rings::settle(&folder, &file).unwrap_err().to_string();
        assert!(refusal.contains("index.ring"), "{refusal}");
        assert_eq!(fs::read(folder.join(INDEX)).unwrap(), bytes);
    }
}
