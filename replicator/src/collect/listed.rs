//! Visit of a device by its lists: its buckets, its old tombstones, its old promises.

use martlet_protocol::backend::{AgedBucket, HeldBuckets, OldKind, OldList, OldPage, OldPlace};
use martlet_protocol::limits::FIRST_HAND_AGE_MS_MAX;
use martlet_protocol::{BackendExt, BucketId, DeviceId, RegisterKey, Result, Stamp};

use super::deleted_buckets::PurgedDevices;
use super::queries::PAGE;
use super::{Collect, PROMISE_AGE_MS};
use crate::cluster::{StepTopology, in_time};
use crate::worker::StepProgress;

/// Pages of a list that a step reads to fill a page of tombstones: a device lists those of which it is
/// not the first primary, too.
const LISTS_MAX: usize = 8;

/// Place in the visit of a device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum DevicePlace {
    /// Among its buckets.
    Buckets(Option<BucketId>),
    /// Among its old tombstones.
    Tombstones(Option<OldPlace>),
    /// Among its old promises.
    Promises(Option<OldPlace>),
    /// Among all its registers: it has no lists.
    Registers(Option<RegisterKey>),
}

impl Default for DevicePlace {
    fn default() -> Self {
        Self::Buckets(None)
    }
}

impl DevicePlace {
    /// Returns true for the first page of the buckets or of the tombstones: a device without lists
    /// refuses either.
    fn is_first(&self) -> bool {
        matches!(self, Self::Buckets(None) | Self::Tombstones(None))
    }

    /// Returns the last register that a walk over all registers visited.
    pub(super) fn walked_to(&self) -> Option<&RegisterKey> {
        match self {
            Self::Registers(after) => after.as_ref(),
            Self::Buckets(_) | Self::Tombstones(_) | Self::Promises(_) => None,
        }
    }
}

impl Collect {
    /// Visits a part of a device. Returns the next place; none at the end of the device.
    pub(super) async fn visit(
        &mut self,
        cluster: &StepTopology,
        device: DeviceId,
        progress: &mut StepProgress,
    ) -> Result<Option<DevicePlace>> {
        let place = self.place.clone();
        let outcome = match self.visit_at(cluster, device, place.clone(), progress).await {
            // A busy device may refuse one call.
            Err(_) if place.is_first() => {
                self.visit_at(cluster, device, place.clone(), progress).await
            }
            outcome => outcome,
        };
        match outcome {
            Err(error) if place.is_first() => {
                // A silent device returns no registers either.
                tracing::debug!(%device, %error, "visiting all registers of a device without lists");
                Ok(Some(DevicePlace::Registers(None)))
            }
            outcome => outcome,
        }
    }

    async fn visit_at(
        &mut self,
        cluster: &StepTopology,
        device: DeviceId,
        place: DevicePlace,
        progress: &mut StepProgress,
    ) -> Result<Option<DevicePlace>> {
        match place {
            DevicePlace::Registers(after) => self.walk(cluster, device, after, progress).await,
            DevicePlace::Buckets(after) => {
                self.visit_buckets(cluster, device, after, progress).await
            }
            DevicePlace::Tombstones(after) => {
                self.visit_tombstones(cluster, device, after, progress).await
            }
            DevicePlace::Promises(after) => {
                self.visit_promises(cluster, device, after, progress).await
            }
        }
    }

    /// Removes registers of deleted buckets from all devices.
    async fn visit_buckets(
        &mut self,
        cluster: &StepTopology,
        device: DeviceId,
        after: Option<BucketId>,
        progress: &mut StepProgress,
    ) -> Result<Option<DevicePlace>> {
        let before = self.stamp_before(FIRST_HAND_AGE_MS_MAX);
        let node = cluster.node(device)?;
        let held = in_time(node.held_buckets(device, before, after, PAGE)).await?;
        let HeldBuckets { buckets, next } = held;
        progress.items = buckets.len() as u64;
        let (now_ms, everyone) = (self.clock.now_ms(), cluster.index_devices());
        let of = |it: &AgedBucket| Some((it.bucket, it.order));
        let devices = PurgedDevices { holders: &[device], all: &everyone };
        let (_, purged) = self.buckets.purge(cluster, now_ms, devices, buckets, of).await;
        progress.done = purged;
        Ok(Some(match next {
            Some(next) => DevicePlace::Buckets(Some(next)),
            None => DevicePlace::Tombstones(None),
        }))
    }

    /// Collects old tombstones of which this device is the first primary, and marked ones: their
    /// first primary may have dropped them already.
    async fn visit_tombstones(
        &mut self,
        cluster: &StepTopology,
        device: DeviceId,
        after: Option<OldPlace>,
        progress: &mut StepProgress,
    ) -> Result<Option<DevicePlace>> {
        let before = self.stamp_before(self.options.age_ms);
        let list = OldList { kind: OldKind::Tombstones, before };
        let is_mine =
            |key: &RegisterKey| cluster.holders(key.placement()).primaries.first() == Some(&device);
        let (mut due, mut place) = (Vec::new(), after);
        for read in 0..LISTS_MAX {
            let node = cluster.node(device)?;
            let page = match in_time(node.old_registers(device, list, place.clone(), PAGE)).await {
                Ok(page) => page,
                Err(error) if read == 0 => return Err(error),
                // The next step reads this page again, and ends the visit if it fails.
                Err(_) => break,
            };
            progress.items += page.registers.len() as u64;
            let mine = page.registers.into_iter();
            let mine = mine.filter(|it| it.collectable || is_mine(&it.place.key));
            due.extend(mine.map(|it| (it.place.key, it.place.at)));
            let Some(end) = page.next else {
                place = None;
                break;
            };
            place = Some(end);
            if due.len() >= PAGE {
                break;
            }
        }
        self.drop_tombstones(cluster, device, due, progress).await;
        let next = |place| DevicePlace::Tombstones(Some(place));
        Ok(Some(place.map_or(DevicePlace::Promises(None), next)))
    }

    async fn visit_promises(
        &mut self,
        cluster: &StepTopology,
        device: DeviceId,
        after: Option<OldPlace>,
        progress: &mut StepProgress,
    ) -> Result<Option<DevicePlace>> {
        let list = OldList { kind: OldKind::Promises, before: self.stamp_before(PROMISE_AGE_MS) };
        let OldPage { registers, next } =
            in_time(cluster.node(device)?.old_registers(device, list, after, PAGE)).await?;
        progress.items = registers.len() as u64;
        let empty = registers.into_iter().map(|it| (it.place.key, Stamp::ZERO)).collect();
        self.drop_promises(cluster, device, empty, progress).await;
        Ok(next.map(|next| DevicePlace::Promises(Some(next))))
    }

    fn stamp_before(&self, age_ms: u64) -> Stamp {
        Stamp::at_ms(self.clock.now_ms().saturating_sub(age_ms))
    }
}
