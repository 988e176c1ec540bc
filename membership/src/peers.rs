//! Records of the cluster's devices on this node, and its answers to introductions (rule G1).
//!
//! ```text
//! <data-dir>/peers.json   {"format": 2, "devices": {"3": {"device": "<identity>",
//!                          "generation": 1790000000000, "nonce": "<32 digits>",
//!                          "voted": true, "vouches": true}}}
//! ```
//!
//! A device is recorded by its last opening. A new opening replaces the opening that it follows, or
//! an older one. So any node that recorded a later opening detects a device that returns from
//! before. A device without votes is recorded only if its place is free: a wiped disk that
//! introduces itself twice must find the old identity both times.
//!
//! A record is synced before it is answered. Introductions that arrive meanwhile share a write: a
//! cluster of 60,000 devices would else write all records 60,000 times. A file of format 1 holds
//! identities only.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fs;
use std::io::ErrorKind;

use martlet_protocol::opening::{Incarnation, Uuid};
use martlet_protocol::{DeviceId, DeviceIdentity};
use martlet_serving::Failure;
use martlet_serving::folder::DataFolder;
use parking_lot::{Condvar, Mutex, MutexGuard};
use serde::{Deserialize, Serialize};

const FILE: &str = "peers.json";
const FORMAT: u32 = 2;

/// Introduction of a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Introduction {
    /// Device id in the rings.
    pub(crate) device: DeviceId,
    pub(crate) identity: IdentityDocument,
    /// True if the device has its votes on disk.
    pub(crate) voting: bool,
    /// Opening of the device. `None` from a node that does not count openings.
    #[serde(default)]
    pub(crate) current: Option<Incarnation>,
    /// Opening that `current` follows.
    #[serde(default)]
    pub(crate) base: Option<Incarnation>,
    /// True if a quorum of the nodes confirmed the opening.
    #[serde(default)]
    pub(crate) confirmed: bool,
}

impl Introduction {
    fn record(&self, before: Option<DeviceRecord>) -> DeviceRecord {
        let nobody = Incarnation { device: Uuid(self.identity.0.0), ..NOT_COUNTED };
        let what = self.current.unwrap_or(nobody);
        let same = before.filter(|before| before.what == what);
        let has_base = self.base.is_some();
        DeviceRecord {
            what,
            voted: self.voting || same.is_some_and(|it| it.voted),
            vouches: self.confirmed || before.map_or(!has_base, |it| it.vouches),
        }
    }
}

/// Opening of devices whose openings were not counted.
const NOT_COUNTED: Incarnation =
    Incarnation { device: Uuid([0; 16]), generation: 0, nonce: Uuid([0; 16]) };

/// Record of a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct DeviceRecord {
    /// Last opening of the device. Generation 0 means that openings were not counted.
    #[serde(flatten)]
    pub(crate) what: Incarnation,
    /// True if the device had its votes on disk.
    pub(crate) voted: bool,
    /// True if this node would have recorded any earlier opening. False after its records were
    /// lost, until a quorum of other nodes has confirmed the opening.
    pub(crate) vouches: bool,
}

impl DeviceRecord {
    /// Returns true if a device that introduces itself is the recorded one, or a successor.
    pub(crate) fn is_followed_by(&self, it: &Introduction) -> bool {
        let Some(current) = it.current.filter(|_| self.what.generation > 0) else {
            return self.what.device.0 == it.identity.0.0;
        };
        if self.what == current {
            // A copy made before the device got its votes looks like a device that never had any.
            return !self.voted || it.voting || it.confirmed;
        }
        it.base.is_some_and(|base| self.what == base || self.what.generation < base.generation)
    }
}

/// Record of a device before its introduction.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct FormerRecord {
    /// Identity in the place before.
    pub(crate) before: Option<IdentityDocument>,
    /// Record with the opening. `None` from a node that does not count openings.
    #[serde(default)]
    pub(super) record: Option<DeviceRecord>,
    /// Other id under which this formatting is recorded, as when two disks were exchanged.
    #[serde(default)]
    pub(crate) elsewhere: Option<DeviceId>,
}

impl FormerRecord {
    fn new(record: Option<DeviceRecord>, elsewhere: Option<DeviceId>) -> Self {
        let identity =
            |record: DeviceRecord| IdentityDocument(DeviceIdentity(record.what.device.0));
        Self { before: record.map(identity), record, elsewhere }
    }

    /// Returns the record, with an uncounted opening if only the identity is known.
    pub(crate) fn record(&self) -> Option<DeviceRecord> {
        let not_counted = |before: IdentityDocument| DeviceRecord {
            what: Incarnation { device: Uuid(before.0.0), ..NOT_COUNTED },
            voted: true,
            vouches: true,
        };
        self.record.or_else(|| self.before.map(not_counted))
    }

    #[cfg(test)]
    pub(crate) fn of(record: Option<DeviceRecord>) -> Self {
        Self::new(record, None)
    }
}

/// Identity of a device, in its JSON form.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(into = "String", try_from = "String")]
pub(crate) struct IdentityDocument(pub(crate) DeviceIdentity);

impl From<IdentityDocument> for String {
    fn from(identity: IdentityDocument) -> Self {
        identity.0.to_string()
    }
}

impl TryFrom<String> for IdentityDocument {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        text.parse().map(Self).map_err(|_| format!("\"{text}\" is not a device's identity"))
    }
}

#[derive(Clone, Debug, Serialize, Deserialize)]
struct RecordsFile {
    format: u32,
    devices: BTreeMap<DeviceId, DeviceRecord>,
}

impl RecordsFile {
    fn parse(bytes: &[u8]) -> Result<Self, String> {
        #[derive(Deserialize)]
        struct FormatVersion {
            format: u32,
        }
        #[derive(Deserialize)]
        struct Format1 {
            devices: BTreeMap<DeviceId, IdentityDocument>,
        }
        let broken = |error: serde_json::Error| error.to_string();
        let head: FormatVersion = serde_json::from_slice(bytes).map_err(broken)?;
        match head.format {
            1 => {
                let file: Format1 = serde_json::from_slice(bytes).map_err(broken)?;
                let record =
                    |before| FormerRecord { before: Some(before), record: None, elsewhere: None };
                let records = file.devices.into_iter();
                let records = records.filter_map(|(id, it)| Some((id, record(it).record()?)));
                Ok(Self { format: FORMAT, devices: records.collect() })
            }
            FORMAT => serde_json::from_slice(bytes).map_err(broken),
            newer => Err(format!("it has format {newer}, of a newer martlet")),
        }
    }
}

/// Records of all devices that introduced themselves.
///
/// A change is synced before any answer that depends on it. Introductions that arrive during a write
/// share the next one, since each write contains all records.
#[derive(Debug)]
pub struct Peers {
    state: Mutex<PeersState>,
    /// Signals the end of a write.
    written: Condvar,
}

/// Records in memory and on disk.
#[derive(Debug)]
struct PeersState {
    /// Records, with those that are not on disk yet.
    records: Records,
    /// Records on disk.
    stored: BTreeMap<DeviceId, DeviceRecord>,
    /// Number of changes of `records`, and of those that are on disk or were given up.
    changes: u64,
    changes_settled: u64,
    /// Number of failed writes. Each gives up all changes that are not on disk.
    failures: u64,
    is_writing: bool,
    #[cfg(test)]
    writes: u64,
}

/// Records, found by device and by formatting.
#[derive(Debug)]
struct Records {
    devices: BTreeMap<DeviceId, DeviceRecord>,
    /// Devices of each formatting: one, unless disks were copied.
    formattings: HashMap<[u8; 16], BTreeSet<DeviceId>>,
}

impl Records {
    fn new(devices: BTreeMap<DeviceId, DeviceRecord>) -> Self {
        let mut formattings: HashMap<[u8; 16], BTreeSet<DeviceId>> = HashMap::new();
        for (id, record) in &devices {
            formattings.entry(record.what.device.0).or_default().insert(*id);
        }
        Self { devices, formattings }
    }

    fn insert(&mut self, id: DeviceId, record: DeviceRecord) {
        if let Some(before) = self.devices.insert(id, record)
            && let Some(devices) = self.formattings.get_mut(&before.what.device.0)
        {
            devices.remove(&id);
            if devices.is_empty() {
                self.formattings.remove(&before.what.device.0);
            }
        }
        self.formattings.entry(record.what.device.0).or_default().insert(id);
    }

    /// Returns another device that is recorded with a formatting, that of the lowest id. Costs one
    /// look-up, whatever the number of devices.
    fn elsewhere(&self, id: DeviceId, formatting: &[u8; 16]) -> Option<DeviceId> {
        self.formattings.get(formatting)?.iter().find(|other| **other != id).copied()
    }
}

impl PeersState {
    fn new(devices: BTreeMap<DeviceId, DeviceRecord>) -> Self {
        Self {
            records: Records::new(devices.clone()),
            stored: devices,
            changes: 0,
            changes_settled: 0,
            failures: 0,
            is_writing: false,
            #[cfg(test)]
            writes: 0,
        }
    }

    /// Records an introduction in memory. Returns the record before.
    fn change(&mut self, introduction: Introduction) -> FormerRecord {
        let id = introduction.device;
        let before = self.records.devices.get(&id).copied();
        let elsewhere = self.records.elsewhere(id, &introduction.identity.0.0);
        let record = introduction.record(before);
        let takes = match before {
            None => elsewhere.is_none(),
            Some(before) => introduction.voting && replaces_record(&before, &introduction),
        };
        if takes && elsewhere.is_none() && before != Some(record) {
            self.records.insert(id, record);
            self.changes += 1;
        }
        FormerRecord::new(before, elsewhere)
    }

    /// Notes the end of a write of the first `changes` changes.
    fn end_write(
        &mut self,
        changes: u64,
        outcome: Result<BTreeMap<DeviceId, DeviceRecord>, Failure>,
    ) -> Result<(), Failure> {
        self.is_writing = false;
        #[cfg(test)]
        {
            self.writes += 1;
        }
        match outcome {
            Ok(stored) => {
                self.stored = stored;
                self.changes_settled = changes;
                Ok(())
            }
            Err(failure) => {
                self.records = Records::new(self.stored.clone());
                self.changes_settled = self.changes;
                self.failures += 1;
                Err(failure)
            }
        }
    }
}

impl Peers {
    /// Loads the records of a data folder. Damaged records are an error.
    pub fn load(folder: &DataFolder) -> Result<Self, Failure> {
        let path = folder.join(FILE);
        let failure = |error: &dyn std::fmt::Display| {
            Failure::refused(format!(
                "{} can't be used: {error}; restore it from a copy. Don't remove it: this node \
                 would vouch for devices that it doesn't know",
                path.display()
            ))
        };
        let devices = match fs::read(&path) {
            Ok(bytes) => RecordsFile::parse(&bytes).map_err(|error| failure(&error))?.devices,
            Err(error) if error.kind() == ErrorKind::NotFound => BTreeMap::new(),
            Err(error) => return Err(failure(&error)),
        };
        Ok(Self { state: Mutex::new(PeersState::new(devices)), written: Condvar::new() })
    }

    /// Records an introduction, synced before it returns. Blocks on the disk. Returns the record
    /// before.
    pub(crate) fn record_introduction(
        &self,
        folder: &DataFolder,
        introduction: Introduction,
    ) -> Result<FormerRecord, Failure> {
        let mut state = self.state.lock();
        let former = state.change(introduction);
        // The answer depends on all changes so far, also without one of its own.
        let (changes, failures) = (state.changes, state.failures);
        while state.changes_settled < changes {
            if state.is_writing {
                self.written.wait(&mut state);
                continue;
            }
            state.is_writing = true;
            let (devices, all) = (state.records.devices.clone(), state.changes);
            let outcome = MutexGuard::unlocked(&mut state, || store(folder, devices));
            let ended = state.end_write(all, outcome);
            self.written.notify_all();
            ended?;
        }
        if state.failures != failures {
            return Err(Failure::refused(format!("{FILE} could not be written: try again")));
        }
        Ok(former)
    }
}

/// Stores records, and returns them.
fn store(
    folder: &DataFolder,
    devices: BTreeMap<DeviceId, DeviceRecord>,
) -> Result<BTreeMap<DeviceId, DeviceRecord>, Failure> {
    let file = RecordsFile { format: FORMAT, devices };
    let bytes = serde_json::to_vec_pretty(&file).expect("plain data can be encoded");
    folder.replace(FILE, &bytes)?;
    Ok(file.devices)
}

/// Returns true if the introduction of a device with votes replaces the record.
fn replaces_record(before: &DeviceRecord, it: &Introduction) -> bool {
    match it.current {
        Some(_) => before.is_followed_by(it),
        // Nodes that don't count openings replace only records without counted openings.
        None => before.what.generation == 0,
    }
}

#[cfg(test)]
mod tests;
