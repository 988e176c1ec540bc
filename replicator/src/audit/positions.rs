//! Positions of the audit on all devices, and their form as a cursor.

use std::collections::{BTreeMap, BTreeSet};

use martlet_protocol::tree::{Bin, BinKey};
use martlet_protocol::{DeviceId, ExtentId, Shard};

use crate::cursors::Cursors;

/// Part of a device that is being audited, and the position in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum AuditPosition {
    Registers(Option<BinKey>),
    Extents(Option<ExtentId>),
    /// Comparison of copies with those of other devices.
    Copies(Option<ExtentId>),
    /// The device is finished, and waits for the others.
    Finished,
}

/// Audit of one device. Times are milliseconds since 1970.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct DeviceAudit {
    pub(super) at: AuditPosition,
    /// Number of failures of the next step.
    pub(super) failures: u32,
    /// Start of this pass.
    pub(super) began_ms: u64,
    /// Everything on the device was verified since this time, or is not known to have been.
    pub(super) unverified_since_ms: u64,
    /// True if this pass has left out a part.
    pub(super) has_gaps: bool,
}

impl DeviceAudit {
    /// Begins with a device that was never verified, as far as is known.
    pub(super) fn begin(now_ms: u64) -> Self {
        Self {
            at: AuditPosition::Registers(None),
            failures: 0,
            began_ms: now_ms,
            unverified_since_ms: now_ms,
            has_gaps: false,
        }
    }

    /// Ends the pass of the device.
    pub(super) fn finish(&mut self) {
        (self.at, self.failures) = (AuditPosition::Finished, 0);
        if !self.has_gaps {
            self.unverified_since_ms = self.began_ms;
        }
    }

    /// Begins the next pass.
    pub(super) fn begin_anew(&mut self, now_ms: u64) {
        *self = Self { unverified_since_ms: self.unverified_since_ms, ..Self::begin(now_ms) };
    }

    fn encode(&self) -> String {
        let at = match self.at {
            AuditPosition::Registers(None) => "r".to_owned(),
            AuditPosition::Registers(Some(BinKey { bucket, shard, bin })) => {
                format!("r.{bucket}.{}.{}", shard.0, bin.0)
            }
            AuditPosition::Extents(None) => "e".to_owned(),
            AuditPosition::Extents(Some(id)) => format!("e.{id}"),
            AuditPosition::Copies(None) => "c".to_owned(),
            AuditPosition::Copies(Some(id)) => format!("c.{id}"),
            AuditPosition::Finished => "f".to_owned(),
        };
        let gaps = u8::from(self.has_gaps);
        format!("{at}:{}:{}:{gaps}", self.began_ms, self.unverified_since_ms)
    }

    fn decode(text: &str) -> Option<Self> {
        let mut words = text.split(':');
        let mut place = words.next()?.split('.');
        let at = match (place.next()?, place.next(), place.next(), place.next()) {
            ("r", None, ..) => AuditPosition::Registers(None),
            ("r", Some(bucket), Some(shard), Some(bin)) => {
                let (shard, bin) = (Shard(shard.parse().ok()?), Bin(bin.parse().ok()?));
                let bucket = bucket.parse().ok()?;
                AuditPosition::Registers(Some(BinKey { bucket, shard, bin }))
            }
            ("e", id, ..) => AuditPosition::Extents(id.map(str::parse).transpose().ok()?),
            ("c", id, ..) => AuditPosition::Copies(id.map(str::parse).transpose().ok()?),
            ("f", ..) => AuditPosition::Finished,
            _ => return None,
        };
        let (began_ms, unverified_since_ms) =
            (words.next()?.parse().ok()?, words.next()?.parse().ok()?);
        let has_gaps = words.next()? == "1";
        Some(Self { at, failures: 0, began_ms, unverified_since_ms, has_gaps })
    }
}

/// Audits of the devices of a scope.
#[derive(Debug, Default)]
pub(super) struct Positions(pub(super) BTreeMap<DeviceId, DeviceAudit>);

impl Positions {
    /// Loads the positions under a name; those that are invalid count as none.
    pub(super) fn load(cursors: &dyn Cursors, name: &str) -> Self {
        let one = |word: &str| {
            let (device, audit) = word.split_once('=')?;
            Some((DeviceId(device.parse().ok()?), DeviceAudit::decode(audit)?))
        };
        Self(cursors.load(name).unwrap_or_default().split(' ').filter_map(one).collect())
    }

    /// Saves the positions for [`Self::load`].
    pub(super) fn save(&self, cursors: &dyn Cursors, name: &str) {
        let all = self.0.iter().map(|(device, audit)| format!("{}={}", device.0, audit.encode()));
        cursors.save(name, &all.collect::<Vec<_>>().join(" "));
    }

    /// Drops devices that are not in `devices`, and begins with new ones.
    pub(super) fn follow(&mut self, devices: &BTreeSet<DeviceId>, now_ms: u64) {
        self.0.retain(|device, _| devices.contains(device));
        for device in devices {
            self.0.entry(*device).or_insert_with(|| DeviceAudit::begin(now_ms));
        }
    }

    /// Returns the devices whose pass goes on.
    pub(super) fn open(&self) -> Vec<(DeviceId, AuditPosition)> {
        let open = self.0.iter().filter(|(_, it)| it.at != AuditPosition::Finished);
        open.map(|(device, it)| (*device, it.at)).collect()
    }

    /// Time since which some byte was not verified.
    pub(super) fn oldest_ms(&self) -> Option<u64> {
        self.0.values().map(|it| it.unverified_since_ms).min()
    }
}

#[cfg(test)]
mod tests {
    use martlet_protocol::BucketId;

    use super::*;
    use crate::cursors::MemoryCursors;

    #[test]
    fn positions_are_read_as_they_were_saved_and_nonsense_is_none() {
        let bin = BinKey { bucket: BucketId([7; 16]), shard: Shard(3), bin: Bin(1000) };
        let places = [
            AuditPosition::Registers(None),
            AuditPosition::Registers(Some(bin)),
            AuditPosition::Extents(None),
            AuditPosition::Extents(Some(ExtentId([9; 16]))),
            AuditPosition::Copies(None),
            AuditPosition::Copies(Some(ExtentId([9; 16]))),
            AuditPosition::Finished,
        ];
        let mut positions = Positions::default();
        for (device, at) in (0..).zip(places) {
            let has_gaps = device % 2 == 0;
            let audit = DeviceAudit { at, has_gaps, ..DeviceAudit::begin(50 + u64::from(device)) };
            positions.0.insert(DeviceId(device), audit);
        }
        let cursors = MemoryCursors::default();
        positions.save(&cursors, "audit");
        assert_eq!(Positions::load(&cursors, "audit").0, positions.0);
        cursors.save("audit", "1 2=x:1:2:0 3=r.zz.1.2:1:2:0 4=e.0:1:1:0 x=f:1:1:0 5=f:1");
        assert!(Positions::load(&cursors, "audit").0.is_empty());
    }

    #[test]
    fn extents_skipped_by_a_pass_stay_unverified() {
        let mut audit = DeviceAudit::begin(100);
        audit.finish();
        assert_eq!(audit.unverified_since_ms, 100);
        audit.begin_anew(500);
        assert_eq!((audit.began_ms, audit.unverified_since_ms), (500, 100));
        audit.has_gaps = true;
        audit.finish();
        assert_eq!(audit.unverified_since_ms, 100);
        audit.begin_anew(900);
        audit.finish();
        assert_eq!(audit.unverified_since_ms, 900);
    }
}
