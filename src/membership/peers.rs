//! What this node remembers of other nodes' devices, and what it answers when one introduces itself
//! (rule G1).
//!
//! ```text
//! <data-dir>/peers.json   {"format": 1, "devices": {"3": "<identity>"}}
//! ```
//!
//! A device that has votes is remembered as it is: it has synced, or it was there first. One without
//! votes is remembered only if nobody was remembered in its place: a wiped disk that asks twice must
//! find the old identity both times.
//!
//! What is answered was synced before.

use std::collections::BTreeMap;
use std::fs;
use std::io::ErrorKind;

use martlet_protocol::{DeviceId, DeviceIdentity};
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};

use crate::failure::Failure;
use crate::process::folder::DataFolder;

const FILE: &str = "peers.json";
const FORMAT: u32 = 1;

/// What a device says of itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Introduction {
    pub(crate) device: DeviceId,
    pub(crate) identity: Identity,
    /// Whether it has its votes.
    pub(crate) voting: bool,
}

/// What was remembered of it before.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Remembered {
    pub(crate) before: Option<Identity>,
}

/// A device's identity as JSON has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(into = "String", try_from = "String")]
pub(crate) struct Identity(pub(crate) DeviceIdentity);

impl From<Identity> for String {
    fn from(identity: Identity) -> Self {
        identity.0.to_string()
    }
}

impl TryFrom<String> for Identity {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        text.parse().map(Self).map_err(|_| format!("\"{text}\" is no identity of a device"))
    }
}

#[derive(Clone, Debug, Serialize, Deserialize)]
struct File {
    format: u32,
    devices: BTreeMap<DeviceId, Identity>,
}

/// The devices that introduced themselves.
#[derive(Debug)]
pub(crate) struct Peers {
    devices: Mutex<BTreeMap<DeviceId, Identity>>,
}

impl Peers {
    /// Those of a data folder.
    pub(crate) fn load(folder: &DataFolder) -> Result<Self, Failure> {
        let path = folder.join(FILE);
        let told = |error: &dyn std::fmt::Display| {
            Failure::refused(format!(
                "{} can't be used: {error}; restore it from a copy. Removed, this node would vouch for \
                 devices that it doesn't remember",
                path.display()
            ))
        };
        let devices = match fs::read(&path) {
            Ok(bytes) => {
                let file: File = serde_json::from_slice(&bytes).map_err(|error| told(&error))?;
                if file.format > FORMAT {
                    return Err(told(&format!(
                        "it has format {}, of a newer martlet",
                        file.format
                    )));
                }
                file.devices
            }
            Err(error) if error.kind() == ErrorKind::NotFound => BTreeMap::new(),
            Err(error) => return Err(told(&error)),
        };
        Ok(Self { devices: Mutex::new(devices) })
    }

    /// Hears an introduction: on disk before it returns. Blocks.
    pub(crate) fn meet(
        &self,
        folder: &DataFolder,
        introduction: Introduction,
    ) -> Result<Remembered, Failure> {
        let Introduction { device, identity, voting } = introduction;
        let mut devices = self.devices.lock();
        let before = devices.get(&device).copied();
        if before.is_none() || (voting && before != Some(identity)) {
            let mut next = devices.clone();
            next.insert(device, identity);
            let file = File { format: FORMAT, devices: next };
            let bytes = serde_json::to_vec_pretty(&file).expect("plain data can be encoded");
            folder.replace(FILE, &bytes)?;
            *devices = file.devices;
        }
        Ok(Remembered { before })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const A: Identity = Identity(DeviceIdentity([1; 16]));
    const B: Identity = Identity(DeviceIdentity([2; 16]));

    fn meet(folder: &DataFolder, identity: Identity, voting: bool) -> Option<Identity> {
        let introduction = Introduction { device: DeviceId(3), identity, voting };
        Peers::load(folder).unwrap().meet(folder, introduction).unwrap().before
    }

    #[test]
    fn g1_a_device_without_votes_never_takes_the_place_of_one_that_is_remembered() {
        let place = tempfile::tempdir().unwrap();
        let folder = DataFolder::open(place.path()).unwrap();
        assert_eq!(meet(&folder, A, false), None);
        assert_eq!(meet(&folder, A, true), Some(A));
        for _ in 0..3 {
            assert_eq!(meet(&folder, B, false), Some(A));
        }
        assert_eq!(meet(&folder, B, true), Some(A));
        assert_eq!(meet(&folder, B, true), Some(B));
    }

    #[test]
    fn a_damaged_memory_is_told_and_left_alone() {
        let place = tempfile::tempdir().unwrap();
        let folder = DataFolder::open(place.path()).unwrap();
        for text in ["{", "{\"format\": 2, \"devices\": {}}"] {
            fs::write(folder.join(FILE), text).unwrap();
            let refusal = Peers::load(&folder).unwrap_err().to_string();
            assert!(refusal.contains("restore it from a copy"), "{refusal}");
            assert_eq!(fs::read_to_string(folder.join(FILE)).unwrap(), text);
        }
    }
}
