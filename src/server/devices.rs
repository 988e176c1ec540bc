//! Which devices there are, remembered across restarts in `cluster.json`.
//!
//! A device keeps its number whatever the order in which the folders are named, and also when its
//! folder was moved: it is known by the id in its own `format.json`. A folder that should be a
//! device and holds none is a disk that isn't mounted: it is reported as missing and never formatted.
//!
//! The entries of the index stay on the devices of the first start until they can be moved; devices
//! that are added later take extents. So the index ring is dealt over the first devices, the data
//! ring over all of them.

use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use martlet_protocol::{DeviceId, PolicyId};
use martlet_ring::{Device, Node};
use martlet_storage_node::Uuid;
use serde::{Deserialize, Serialize};

use crate::failure::Failure;
use crate::process::folder::DataFolder;

const FILE: &str = "cluster.json";
const FORMAT: u32 = 1;
/// The one storage policy of an embedded server: one copy.
pub(crate) const POLICY: PolicyId = PolicyId(0);

/// What `cluster.json` says.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct ClusterFile {
    format: u32,
    /// Names the cluster on each of its devices.
    pub(crate) cluster: Uuid,
    devices: Vec<KnownDevice>,
}

/// A device that belongs to the cluster.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct KnownDevice {
    pub(crate) id: DeviceId,
    pub(crate) path: PathBuf,
    /// The id in its `format.json`; none until it was opened for the first time.
    uuid: Option<String>,
    /// Whether entries of the index lie on it.
    index: bool,
}

/// A device that belongs to the cluster and can't be opened, and why.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Missing {
    pub(crate) id: DeviceId,
    pub(crate) path: PathBuf,
    pub(crate) reason: String,
}

/// The devices of this start.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Present {
    pub(crate) devices: Vec<KnownDevice>,
    pub(crate) missing: Vec<Missing>,
}

impl ClusterFile {
    fn new(cluster: Uuid) -> Self {
        Self { format: FORMAT, cluster, devices: Vec::new() }
    }

    /// The file of a data folder, or a new one.
    pub(crate) fn load(folder: &DataFolder) -> Result<Self, Failure> {
        let path = folder.join(FILE);
        match fs::read(&path) {
            Ok(bytes) => Self::parse(&path, &bytes),
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(Self::new(Uuid::random())),
            Err(error) => {
                Err(Failure::refused(format!("{} can't be read: {error}", path.display())))
            }
        }
    }

    fn parse(path: &Path, bytes: &[u8]) -> Result<Self, Failure> {
        #[derive(Deserialize)]
        struct Head {
            format: u32,
        }
        let broken = |error: serde_json::Error| {
            Failure::refused(format!(
                "{} is damaged ({error}): restore it from a copy; the objects themselves are on the \
                 devices",
                path.display()
            ))
        };
        let head: Head = serde_json::from_slice(bytes).map_err(broken)?;
        if head.format > FORMAT {
            return Err(Failure::refused(format!(
                "{} has format {}, and this martlet knows formats up to {FORMAT}: use the newer \
                 martlet that wrote it",
                path.display(),
                head.format
            )));
        }
        serde_json::from_slice(bytes).map_err(broken)
    }

    /// Writes the file.
    pub(crate) fn store(&self, folder: &DataFolder) -> Result<(), Failure> {
        let mut bytes = serde_json::to_vec_pretty(self).expect("plain data can be encoded");
        bytes.push(b'\n');
        folder.replace(FILE, &bytes)
    }

    /// Finds each of the folders asked for among the known devices, and takes in new ones. Without
    /// any, the known devices are meant, and where there are none, `fallback`.
    ///
    /// `identify` says which device a folder holds, if it holds one.
    pub(crate) fn settle(
        &mut self,
        asked: &[PathBuf],
        fallback: PathBuf,
        identify: impl Fn(&Path) -> Result<Holds, Failure>,
    ) -> Result<Present, Failure> {
        let asked = match asked {
            [] if self.devices.is_empty() => vec![fallback],
            [] => self.devices.iter().map(|device| device.path.clone()).collect(),
            asked => asked.to_vec(),
        };
        let first_start = self.devices.is_empty();
        let mut present: Vec<DeviceId> = Vec::new();
        let mut unmounted: Vec<DeviceId> = Vec::new();
        for path in asked {
            let found = match self.position(&path, &identify(&path)?) {
                Position::At(at) => self.devices[at].id,
                Position::Unmounted(at) => {
                    unmounted.push(self.devices[at].id);
                    continue;
                }
                Position::New => self.adopt(path.clone(), first_start),
            };
            if present.contains(&found) {
                let sentence = format!("the device in {} is named twice", path.display());
                return Err(Failure::usage(sentence));
            }
            let device = self.devices.iter_mut().find(|device| device.id == found);
            device.expect("it was found or adopted just now").path = path;
            present.push(found);
        }
        Ok(self.present(&present, &unmounted))
    }

    fn position(&self, path: &Path, holds: &Holds) -> Position {
        let by_path = self.devices.iter().position(|device| device.path == path);
        match (holds, by_path) {
            (Holds::Device(uuid), by_path) => {
                let known = |device: &KnownDevice| device.uuid.as_ref() == Some(uuid);
                let unopened = by_path.filter(|at| self.devices[*at].uuid.is_none());
                let at = self.devices.iter().position(known).or(unopened);
                at.map_or(Position::New, Position::At)
            }
            (Holds::Nothing, Some(at)) if self.devices[at].uuid.is_some() => {
                Position::Unmounted(at)
            }
            (Holds::Nothing | Holds::Unknown, Some(at)) => Position::At(at),
            (Holds::Nothing | Holds::Unknown, None) => Position::New,
        }
    }

    fn adopt(&mut self, path: PathBuf, index: bool) -> DeviceId {
        let id = DeviceId(self.devices.iter().map(|device| device.id.0 + 1).max().unwrap_or(0));
        self.devices.push(KnownDevice { id, path, uuid: None, index });
        id
    }

    fn present(&self, present: &[DeviceId], unmounted: &[DeviceId]) -> Present {
        let (devices, others): (Vec<_>, Vec<_>) =
            self.devices.iter().cloned().partition(|device| present.contains(&device.id));
        let missing = others.into_iter().map(|device| {
            let reason = if unmounted.contains(&device.id) {
                "the folder holds no device: is its disk mounted?"
            } else {
                "it belongs to this cluster and was not named with --device"
            };
            Missing { id: device.id, path: device.path, reason: reason.to_owned() }
        });
        Present { missing: missing.collect(), devices }
    }

    /// Takes note of the ids of devices that were opened for the first time, and forgets those of
    /// which no device could be made; their folders.
    pub(crate) fn learn(
        &mut self,
        identify: impl Fn(&Path) -> Result<Holds, Failure>,
    ) -> Result<Vec<PathBuf>, Failure> {
        for device in self.devices.iter_mut().filter(|device| device.uuid.is_none()) {
            if let Holds::Device(uuid) = identify(&device.path)? {
                device.uuid = Some(uuid);
            }
        }
        let unmade = self.devices.extract_if(.., |device| device.uuid.is_none());
        Ok(unmade.map(|device| device.path).collect())
    }

    /// The devices that entries of the index lie on.
    pub(crate) fn index_devices(&self) -> Vec<Device> {
        self.devices.iter().filter(|device| device.index).map(ring_device).collect()
    }

    /// The devices that extents go to.
    pub(crate) fn data_devices(&self) -> Vec<Device> {
        self.devices.iter().map(ring_device).collect()
    }
}

/// What a folder holds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Holds {
    /// No device.
    Nothing,
    /// The device of this id.
    Device(String),
    /// Something that only the storage node can judge: a newer format, or a damaged one.
    Unknown,
}

enum Position {
    At(usize),
    Unmounted(usize),
    New,
}

fn ring_device(device: &KnownDevice) -> Device {
    Device {
        id: device.id,
        region: 1,
        zone: 1,
        node: Node { name: "local".to_owned(), address: String::new() },
        name: device.id.to_string(),
        weight: 1.0,
        meta: device.path.display().to_string(),
    }
}

/// What a folder holds, by its `format.json`. Whether the rest of the file is right is for the
/// storage node to judge.
pub(crate) fn identify(path: &Path) -> Result<Holds, Failure> {
    #[derive(Deserialize)]
    struct Format {
        device: String,
    }
    let file = path.join("format.json");
    match fs::read(&file) {
        Ok(bytes) => Ok(serde_json::from_slice(&bytes)
            .map_or(Holds::Unknown, |format: Format| Holds::Device(format.device))),
        Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => {
            Ok(Holds::Nothing)
        }
        Err(error) => Err(Failure::refused(format!("{} can't be read: {error}", file.display()))),
    }
}

/// A path that means the same from any working folder, also for a folder that isn't there yet.
pub(crate) fn absolute(path: &Path) -> Result<PathBuf, Failure> {
    path.canonicalize().or_else(|_| std::path::absolute(path)).map_err(|error| {
        Failure::usage(format!("{} is no folder for a device: {error}", path.display()))
    })
}

#[cfg(test)]
mod tests;
