//! Devices of the server, remembered across restarts in `cluster.json`.
//!
//! A device keeps its number, whatever the order of the folders, and also when its folder moves:
//! the id in its `format.json` identifies it. A known device's folder without a device is an
//! unmounted disk: it is reported as missing and never formatted.
//!
//! Index entries stay on the devices of the first start; later devices store extents only. So the
//! index ring covers the first devices, and the data ring covers all devices.

use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use martlet_protocol::{DeviceId, PolicyId};
use martlet_ring::{Device, Node};
use martlet_serving::Failure;
use martlet_serving::folder::DataFolder;
use martlet_storage_node::Uuid;
use serde::{Deserialize, Serialize};

const FILE: &str = "cluster.json";
const FORMAT: u32 = 1;
/// Storage policy 0 of an embedded server: one copy.
pub(crate) const POLICY: PolicyId = PolicyId(0);

/// Contents of `cluster.json`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct ClusterFile {
    format: u32,
    /// Id of the cluster, also stored on each device.
    pub(crate) cluster: Uuid,
    devices: Vec<KnownDevice>,
}

/// Device that belongs to the cluster.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct KnownDevice {
    pub(crate) id: DeviceId,
    pub(crate) path: PathBuf,
    /// Id in the device's `format.json`; `None` until the device is first opened.
    uuid: Option<String>,
    /// True if the device stores index entries.
    index: bool,
}

impl KnownDevice {
    /// Id in the device's `format.json`; none until the device is first opened.
    pub(crate) fn formatting(&self) -> Option<Uuid> {
        self.uuid.clone().and_then(|uuid| Uuid::try_from(uuid).ok())
    }
}

/// Device that belongs to the cluster and can't be opened, with the reason.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct MissingDevice {
    pub(crate) id: DeviceId,
    pub(crate) path: PathBuf,
    pub(crate) reason: String,
}

/// Devices present at this start, and missing devices.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct StartDevices {
    pub(crate) devices: Vec<KnownDevice>,
    pub(crate) missing: Vec<MissingDevice>,
}

impl ClusterFile {
    fn new(cluster: Uuid) -> Self {
        Self { format: FORMAT, cluster, devices: Vec::new() }
    }

    /// Loads the file of a data folder, or makes a new one.
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

    /// Returns the folders of the known devices, without locking the data folder. Empty before the
    /// first start, or if the file can't be read.
    pub(crate) fn known_folders(data_dir: &Path) -> Vec<PathBuf> {
        let path = data_dir.join(FILE);
        let read = fs::read(&path).ok().and_then(|bytes| Self::parse(&path, &bytes).ok());
        let devices = read.map(|file| file.devices).unwrap_or_default();
        devices.into_iter().map(|device| device.path).collect()
    }

    fn parse(path: &Path, bytes: &[u8]) -> Result<Self, Failure> {
        #[derive(Deserialize)]
        struct FormatVersion {
            format: u32,
        }
        let broken = |error: serde_json::Error| {
            Failure::refused(format!(
                "{} is damaged ({error}): restore it from a copy; objects on the devices are not \
                 affected",
                path.display()
            ))
        };
        let head: FormatVersion = serde_json::from_slice(bytes).map_err(broken)?;
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

    /// Matches the requested folders with the known devices, and adds new devices. Without
    /// requested folders all known devices are meant, or `fallback` if no device is known.
    ///
    /// `identify` returns the device in a folder, if the folder holds one.
    pub(crate) fn settle(
        &mut self,
        configured: &[PathBuf],
        fallback: PathBuf,
        identify: impl Fn(&Path) -> Result<FolderContents, Failure>,
    ) -> Result<StartDevices, Failure> {
        let configured = match configured {
            [] if self.devices.is_empty() => vec![fallback],
            [] => self.devices.iter().map(|device| device.path.clone()).collect(),
            configured => configured.to_vec(),
        };
        let first_start = self.devices.is_empty();
        let mut present: Vec<DeviceId> = Vec::new();
        let mut unmounted: Vec<DeviceId> = Vec::new();
        for path in configured {
            let found = match self.position(&path, &identify(&path)?) {
                DevicePosition::At(at) => self.devices[at].id,
                DevicePosition::Unmounted(at) => {
                    unmounted.push(self.devices[at].id);
                    continue;
                }
                DevicePosition::New => self.adopt(path.clone(), first_start),
            };
            if present.contains(&found) {
                let sentence = format!("the device in {} is named twice", path.display());
                return Err(Failure::usage(sentence));
            }
            let device = self.devices.iter_mut().find(|device| device.id == found);
            device.expect("the device was found or adopted above").path = path;
            present.push(found);
        }
        Ok(self.present(&present, &unmounted))
    }

    fn position(&self, path: &Path, holds: &FolderContents) -> DevicePosition {
        let by_path = self.devices.iter().position(|device| device.path == path);
        match (holds, by_path) {
            (FolderContents::Device(uuid), by_path) => {
                let known = |device: &KnownDevice| device.uuid.as_ref() == Some(uuid);
                let unopened = by_path.filter(|at| self.devices[*at].uuid.is_none());
                let at = self.devices.iter().position(known).or(unopened);
                at.map_or(DevicePosition::New, DevicePosition::At)
            }
            (FolderContents::Nothing, Some(at)) if self.devices[at].uuid.is_some() => {
                DevicePosition::Unmounted(at)
            }
            (FolderContents::Nothing | FolderContents::Unknown, Some(at)) => DevicePosition::At(at),
            (FolderContents::Nothing | FolderContents::Unknown, None) => DevicePosition::New,
        }
    }

    fn adopt(&mut self, path: PathBuf, index: bool) -> DeviceId {
        let id = DeviceId(self.devices.iter().map(|device| device.id.0 + 1).max().unwrap_or(0));
        self.devices.push(KnownDevice { id, path, uuid: None, index });
        id
    }

    fn present(&self, present: &[DeviceId], unmounted: &[DeviceId]) -> StartDevices {
        let (devices, others): (Vec<_>, Vec<_>) =
            self.devices.iter().cloned().partition(|device| present.contains(&device.id));
        let missing = others.into_iter().map(|device| {
            let reason = if unmounted.contains(&device.id) {
                "the folder holds no device: mount its disk"
            } else {
                "the device belongs to this cluster but was not named with --device"
            };
            MissingDevice { id: device.id, path: device.path, reason: reason.to_owned() }
        });
        StartDevices { missing: missing.collect(), devices }
    }

    /// Records the ids of devices that were opened for the first time. Removes devices that could
    /// not be made, and returns their folders.
    pub(crate) fn learn(
        &mut self,
        identify: impl Fn(&Path) -> Result<FolderContents, Failure>,
    ) -> Result<Vec<PathBuf>, Failure> {
        for device in self.devices.iter_mut().filter(|device| device.uuid.is_none()) {
            if let FolderContents::Device(uuid) = identify(&device.path)? {
                device.uuid = Some(uuid);
            }
        }
        let unmade = self.devices.extract_if(.., |device| device.uuid.is_none());
        Ok(unmade.map(|device| device.path).collect())
    }

    /// Returns the devices of the index ring.
    pub(crate) fn index_devices(&self) -> Vec<Device> {
        self.devices.iter().filter(|device| device.index).map(ring_device).collect()
    }

    /// Returns the devices of the data rings.
    pub(crate) fn data_devices(&self) -> Vec<Device> {
        self.devices.iter().map(ring_device).collect()
    }
}

/// Contents of a folder.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum FolderContents {
    /// No device.
    Nothing,
    /// Device with this id.
    Device(String),
    /// Device that only the storage node can judge: a newer format or a damaged one.
    Unknown,
}

enum DevicePosition {
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

/// Identifies the contents of a folder by its `format.json`. The storage node checks the rest of
/// that file.
pub(crate) fn identify(path: &Path) -> Result<FolderContents, Failure> {
    #[derive(Deserialize)]
    struct Format {
        device: String,
    }
    let file = path.join("format.json");
    match fs::read(&file) {
        Ok(bytes) => Ok(serde_json::from_slice(&bytes)
            .map_or(FolderContents::Unknown, |format: Format| {
                FolderContents::Device(format.device)
            })),
        Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => {
            Ok(FolderContents::Nothing)
        }
        Err(error) => Err(Failure::refused(format!("{} can't be read: {error}", file.display()))),
    }
}

/// Makes a path absolute, also for a folder that does not exist yet.
pub(crate) fn absolute(path: &Path) -> Result<PathBuf, Failure> {
    path.canonicalize().or_else(|_| std::path::absolute(path)).map_err(|error| {
        Failure::usage(format!("{} can't be a device's folder: {error}", path.display()))
    })
}

#[cfg(test)]
mod tests;
