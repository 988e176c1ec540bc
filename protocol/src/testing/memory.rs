//! The reference backend: devices as maps in memory.
//!
//! * [`device`]: a device's state, and its decisions about writes.
//! * [`extents`]: extents of a device.
//! * [`listing`]: pages of names.
//! * [`upkeep`]: calls of background workers; [`kept_rows`]: those about usage and old registers.
//! * [`claims`]: questions about the owners of extents.
//! * [`conditional`]: calls on a device as a whole, and calls with a condition.
//! * [`backend`]: the calls of the backend trait.

use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::BytesMut;
use parking_lot::Mutex;

use self::device::MemoryDevice;
use crate::backend::RingEpochs;
use crate::clock::Clock;
use crate::entry::{Body, Entry};
use crate::error::{Error, Result};
use crate::extent::ExtentRef;
use crate::id::{DeviceId, DeviceIdentity, ExtentId};
use crate::key::RegisterKey;

mod backend;
mod claims;
mod conditional;
mod device;
mod extents;
mod kept_rows;
mod listing;
mod upkeep;

/// A node whose devices are maps in memory.
#[derive(Debug)]
pub struct MemoryBackend {
    clock: Arc<dyn Clock>,
    /// Rings of the node, if others may have other rings.
    rings: Option<Arc<RingEpochs>>,
    devices: BTreeMap<DeviceId, Mutex<MemoryDevice>>,
}

impl MemoryBackend {
    /// Creates a node with these devices, all empty.
    pub fn new(clock: Arc<dyn Clock>, devices: impl IntoIterator<Item = DeviceId>) -> Self {
        let devices = devices.into_iter().map(|id| (id, Mutex::default())).collect();
        Self { clock, rings: None, devices }
    }

    /// Gives the node rings, which conditions of releases are compared with.
    #[must_use]
    pub fn with_rings(self, rings: Arc<RingEpochs>) -> Self {
        Self { rings: Some(rings), ..self }
    }

    /// Sets the identity of a device, as if it was formatted again.
    pub fn set_identity(&self, device: DeviceId, identity: DeviceIdentity) {
        self.known(device).lock().identity = Some(identity);
    }

    /// Sets if a device refuses new extents as full.
    pub fn set_full(&self, device: DeviceId, full: bool) {
        self.known(device).lock().full = full;
    }

    /// Takes the fences of its peers from a device, as a new or wiped one lacks them (rule M2).
    pub fn forget_fences(&self, device: DeviceId) {
        let mut device = self.known(device).lock();
        device.fences.clear();
        device.lacks_fences = true;
    }

    /// Sets if a device is offline; its contents are kept.
    pub fn set_offline(&self, device: DeviceId, offline: bool) {
        self.known(device).lock().offline = offline;
    }

    /// Sets if a device is of an earlier version, which keeps no usage, no lists and no arrivals of hints.
    pub fn set_earlier(&self, device: DeviceId, is_earlier: bool) {
        self.known(device).lock().is_earlier = is_earlier;
    }

    /// Returns the ids of the extents on a device.
    pub fn extents(&self, device: DeviceId) -> Vec<ExtentId> {
        self.known(device).lock().extents.keys().copied().collect()
    }

    /// Returns the ids of extents on all devices, except those in garbage.
    pub fn extents_in_use(&self) -> Vec<ExtentId> {
        let mut garbage = Vec::new();
        let mut ids = Vec::new();
        for device in self.devices.values() {
            let device = device.lock();
            garbage.extend(device.garbage.values().map(|(_, _, body)| body.clone()));
            ids.extend(device.extents.keys().copied());
        }
        ids.retain(|id| !garbage.iter().any(|body| names(body, *id)));
        ids
    }

    /// Flips a bit of a stored extent; every later read of the extent finds it corrupt.
    pub fn corrupt(&self, device: DeviceId, id: ExtentId) {
        let mut device = self.known(device).lock();
        if let Some((_, bytes)) = device.extents.get_mut(&id) {
            let mut changed = BytesMut::from(&bytes[..]);
            changed[0] ^= 1;
            *bytes = changed.freeze();
        }
    }

    /// Flips a bit of a stored extent, as if the device had received other bytes. Returns the extent.
    ///
    /// # Panics
    /// If the device doesn't hold the extent.
    pub fn replace_bytes(&self, device: DeviceId, id: ExtentId) -> ExtentRef {
        let mut device = self.known(device).lock();
        let held = device.extents.get_mut(&id);
        let (record, bytes) = held.expect("tests name extents that they wrote");
        let mut changed = BytesMut::from(&bytes[..]);
        changed[0] ^= 1;
        *bytes = changed.freeze();
        record.extent.blake3 = *blake3::hash(bytes).as_bytes();
        record.extent
    }

    /// Returns the registers of a device with an entry, tombstones included.
    pub fn registers(&self, device: DeviceId) -> Vec<(RegisterKey, Entry)> {
        let device = self.known(device).lock();
        let held = device.registers.iter();
        held.filter_map(|(key, cell)| Some((key.clone(), cell.entry.clone()?))).collect()
    }

    fn known(&self, device: DeviceId) -> &Mutex<MemoryDevice> {
        self.devices.get(&device).expect("tests name devices that they made")
    }

    fn voting(&self, device: DeviceId) -> Result<parking_lot::MutexGuard<'_, MemoryDevice>> {
        let found = self.device(device)?;
        if found.mute {
            return Err(Error::unavailable(format!("device {device} has no vote yet")));
        }
        Ok(found)
    }

    fn device(&self, device: DeviceId) -> Result<parking_lot::MutexGuard<'_, MemoryDevice>> {
        let found = self.devices.get(&device).map(Mutex::lock);
        match found {
            Some(device) if !device.offline => Ok(device),
            Some(_) => Err(Error::unavailable(format!("device {device} is offline"))),
            None => Err(Error::not_found(format!("no device {device} is here"))),
        }
    }
}

fn names(body: &Body, id: ExtentId) -> bool {
    match body {
        Body::Empty | Body::Inline { .. } => false,
        Body::Extents(manifest) => manifest.extents.iter().any(|extent| extent.id == id),
        Body::Spilled { manifest, .. } => manifest.iter().any(|extent| extent.id == id),
    }
}
