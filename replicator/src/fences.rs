//! Fences of several devices, bucket by bucket, in bounded memory (rule M2).
//!
//! ```text
//! device 1   a  c  d │ f …       pages in the order of the buckets
//! device 2   a  b  e │ h …
//!            └────┘ the fences up to d are complete: the last bucket of the shortest page
//! ```
//!
//! Fences of deleted buckets are kept for ever, so their number has no bound. A page is at most as long as its share of
//! [`FENCES_HELD_MAX`], over all devices of a merge.

use std::collections::{BTreeMap, VecDeque};

use futures::{StreamExt, stream};
use martlet_protocol::backend::BucketFence;
use martlet_protocol::limits::FENCES_MAX;
use martlet_protocol::{BackendExt, BucketId, DeviceId, Error, Result};

use crate::cluster::{StepTopology, in_time};

/// Most fences that a merge holds: 16 MiB.
const FENCES_HELD_MAX: usize = 524_288;
/// Least number of fences in a page, with however many devices.
const PAGE_MIN: usize = 256;
/// Devices whose pages are read at a time.
const AT_ONCE: usize = 16;

/// Fences of buckets, each with all devices of a merge that have one.
pub(crate) type FencesByBucket = BTreeMap<BucketId, Vec<(DeviceId, BucketFence)>>;

/// Merge of the fences of several devices.
pub(crate) struct MergedFences<'a> {
    cluster: &'a StepTopology,
    devices: Vec<DeviceFences>,
    page: usize,
}

/// Fences of one device that a merge has read and not returned.
struct DeviceFences {
    device: DeviceId,
    /// True if the merge fails when the device doesn't answer. Otherwise the device is left out from there on.
    is_needed: bool,
    page: VecDeque<BucketFence>,
    /// Last bucket that was read.
    after: Option<BucketId>,
    is_ended: bool,
}

impl<'a> MergedFences<'a> {
    /// Begins a merge of the fences of buckets above `after`. Silence of a device is an error if the device is paired
    /// with true.
    pub(crate) fn new(
        cluster: &'a StepTopology,
        devices: impl IntoIterator<Item = (DeviceId, bool)>,
        after: Option<BucketId>,
    ) -> Self {
        let of = |(device, is_needed)| DeviceFences {
            device,
            is_needed,
            page: VecDeque::new(),
            after,
            is_ended: false,
        };
        let devices: Vec<DeviceFences> = devices.into_iter().map(of).collect();
        let page = (FENCES_HELD_MAX / devices.len().max(1)).clamp(PAGE_MIN, FENCES_MAX);
        Self { cluster, devices, page }
    }

    /// Limits a page to fewer fences.
    #[cfg(test)]
    pub(crate) fn in_pages_of(self, page: usize) -> Self {
        Self { page, ..self }
    }

    /// Returns the fences of the next buckets, in the order of the buckets; none at the end.
    ///
    /// # Errors
    /// If a needed device doesn't answer.
    pub(crate) async fn next(&mut self) -> Result<Option<FencesByBucket>> {
        self.read_ahead().await?;
        let open = self.devices.iter().filter(|of| !of.is_ended);
        let through = open.filter_map(|of| of.page.back()).map(|fence| fence.bucket).min();
        let mut run = FencesByBucket::new();
        for of in &mut self.devices {
            let is_complete =
                |fence: &mut BucketFence| through.is_none_or(|last| fence.bucket <= last);
            while let Some(fence) = of.page.pop_front_if(is_complete) {
                run.entry(fence.bucket).or_default().push((of.device, fence));
            }
        }
        Ok((!run.is_empty()).then_some(run))
    }

    /// Reads a page of each device whose last page was returned whole.
    async fn read_ahead(&mut self) -> Result<()> {
        let (cluster, limit) = (self.cluster, self.page);
        let wanting = self.devices.iter_mut().filter(|of| of.page.is_empty() && !of.is_ended);
        let reads: Vec<_> = wanting.map(|of| of.read(cluster, limit)).collect();
        let mut reads = stream::iter(reads).buffer_unordered(AT_ONCE);
        while let Some(read) = reads.next().await {
            read?;
        }
        Ok(())
    }
}

impl DeviceFences {
    async fn read(&mut self, cluster: &StepTopology, limit: usize) -> Result<()> {
        let (device, after) = (self.device, self.after);
        let page =
            async { in_time(cluster.node(device)?.fences_after(device, after, limit)).await };
        match page.await.and_then(|page| checked(page, after)) {
            Ok(page) => {
                self.is_ended = page.len() < limit;
                self.after = page.last().map(|fence| fence.bucket).or(after);
                self.page = page.into();
                Ok(())
            }
            Err(error) if self.is_needed => Err(error),
            Err(error) => {
                tracing::debug!(%device, %error, "going on without a device's fences");
                self.is_ended = true;
                Ok(())
            }
        }
    }
}

/// Returns a page, or an error unless its buckets ascend above `after`: a merge of other pages has no end.
fn checked(page: Vec<BucketFence>, after: Option<BucketId>) -> Result<Vec<BucketFence>> {
    let is_above = page.first().is_none_or(|first| Some(first.bucket) > after);
    if is_above && page.is_sorted_by(|a, b| a.bucket < b.bucket) {
        return Ok(page);
    }
    Err(Error::internal("a device's fences are not in the order of their buckets"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::delayed::DelayedCalls;
    use crate::testing::multi_node::MultiNodeWorld;

    fn bucket(number: u32) -> BucketId {
        let mut id = [0; 16];
        id[..4].copy_from_slice(&number.to_be_bytes());
        BucketId(id)
    }

    /// Fences of two devices: those of multiples of two, and of three.
    async fn world_of(count: u32) -> (MultiNodeWorld, DelayedCalls) {
        let (world, delayed) = DelayedCalls::world(3);
        for device in [2, 3] {
            let memory = world.memory(DeviceId(device - 2));
            for number in (0..count).filter(|number| number.is_multiple_of(device)) {
                let fence =
                    BucketFence { bucket: bucket(number), generation: device.into(), open: true };
                memory.fence(DeviceId(device - 2), fence).await.unwrap();
            }
        }
        (world, delayed)
    }

    async fn all_of(mut merge: MergedFences<'_>) -> Result<Vec<(BucketId, Vec<u32>)>> {
        let mut all = Vec::new();
        while let Some(run) = merge.next().await? {
            let devices = |fences: Vec<(DeviceId, BucketFence)>| {
                fences.into_iter().map(|(device, _)| device.0).collect()
            };
            all.extend(run.into_iter().map(|(bucket, fences)| (bucket, devices(fences))));
        }
        Ok(all)
    }

    #[tokio::test]
    async fn each_bucket_comes_once_with_all_its_devices() {
        let (world, _) = world_of(100).await;
        let cluster = world.step();
        let of = |number: u32| -> Vec<u32> {
            [2, 3].into_iter().filter(|of| number.is_multiple_of(*of)).map(|of| of - 2).collect()
        };
        let wanted = |after: Option<u32>| -> Vec<(BucketId, Vec<u32>)> {
            let above = (0..100).filter(|number| Some(*number) > after && !of(*number).is_empty());
            above.map(|number| (bucket(number), of(number))).collect()
        };
        for page in [1, 2, 7, 17, 34, 1000] {
            for after in [None, Some(0), Some(50), Some(98), Some(99)] {
                let devices = (0..3).map(|device| (DeviceId(device), true));
                let merge = MergedFences::new(&cluster, devices, after.map(bucket));
                let all = all_of(merge.in_pages_of(page)).await.unwrap();
                assert_eq!(all, wanted(after), "pages of {page} after {after:?}");
            }
        }
    }

    #[tokio::test]
    async fn silence_of_a_needed_device_is_an_error_and_others_are_left_out() {
        let (world, _) = world_of(10).await;
        world.memory(DeviceId(1)).set_offline(DeviceId(1), true);
        let cluster = world.step();
        for is_needed in [false, true] {
            let devices = [(DeviceId(0), true), (DeviceId(1), is_needed)];
            let all = all_of(MergedFences::new(&cluster, devices, None)).await;
            assert_eq!(all.map(|all| all.len()).ok(), (!is_needed).then_some(5));
        }
    }

    #[test]
    fn pages_that_do_not_ascend_are_errors() {
        let page = |numbers: &[u32]| -> Vec<BucketFence> {
            numbers.iter().map(|number| BucketFence::of_deleted(bucket(*number))).collect()
        };
        assert!(checked(page(&[2, 3]), Some(bucket(1))).is_ok());
        assert!(checked(Vec::new(), Some(bucket(1))).is_ok());
        for wrong in [&[1, 2][..], &[3, 2], &[2, 2]] {
            assert!(checked(page(wrong), Some(bucket(1))).is_err(), "{wrong:?}");
        }
    }
}
