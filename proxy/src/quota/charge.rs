//! Charge of a write against the quotas: returned if the write fails, kept if it succeeds.

use std::sync::Arc;

use martlet_protocol::BucketId;
use martlet_protocol::entry::{Attributes, Bucket};
use martlet_protocol::usage::Usage;

use super::account::Account;
use super::exceeded::{Bounds, Exceeded};

/// Usage that a write requests before its body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RequestedUsage(Usage);

impl RequestedUsage {
    /// A new object. With an unknown size, one byte is requested.
    pub(crate) fn object(key: &str, attributes: &Attributes, size: Option<u64>) -> Self {
        let cached = Usage::of_attributes(key, attributes);
        Self(Usage { bytes: size.unwrap_or(1), objects: 1, ..cached })
    }

    /// A part of an upload. With an unknown size, one byte is requested.
    pub(crate) fn part(size: Option<u64>) -> Self {
        Self(Usage::of_new_part(size.unwrap_or(1)))
    }

    /// A new upload.
    pub(crate) fn upload(key: &str, attributes: &Attributes) -> Self {
        Self(Usage::of_attributes(key, attributes))
    }

    /// A completed upload. Its bytes and entry were requested by the upload and its parts.
    pub(crate) fn completion() -> Self {
        Self(Usage { objects: 1, ..Usage::default() })
    }

    /// A delete marker.
    pub(crate) fn marker(key: &str) -> Self {
        Self(Usage::of_marker(key))
    }

    /// A new bucket.
    pub(crate) fn bucket(name: &str, bucket: &Bucket) -> Self {
        Self(Usage::of_bucket(name, bucket))
    }

    /// A change whose additional usage is not known yet.
    pub(crate) fn change() -> Self {
        Self(Usage::default())
    }
}

/// Charge of a write.
#[derive(Debug)]
#[must_use = "dropping the charge refunds it"]
pub(crate) struct Charge(Option<HeldUsage>);

#[derive(Debug)]
struct HeldUsage {
    account: Arc<Account>,
    bucket: BucketId,
    bounds: Bounds,
    taken: Usage,
}

impl Charge {
    /// The charge of a write without quotas.
    pub(super) fn free() -> Self {
        Self(None)
    }

    pub(super) fn take(
        account: Arc<Account>,
        bucket: BucketId,
        bounds: Bounds,
        RequestedUsage(requested): RequestedUsage,
    ) -> Result<Self, Exceeded> {
        account.cached.lock().ledger.take(bucket, &bounds, requested)?;
        Ok(Self(Some(HeldUsage { account, bucket, bounds, taken: requested })))
    }

    /// Adjusts the charge to the write's actual usage.
    pub(crate) fn came_to(&mut self, usage: Usage) -> Result<(), Exceeded> {
        let Some(held) = &mut self.0 else { return Ok(()) };
        let (more, less) = (usage.less(held.taken), held.taken.less(usage));
        let mut cached = held.account.cached.lock();
        cached.ledger.take(held.bucket, &held.bounds, more)?;
        cached.ledger.settle(held.bucket, less, Usage::default(), 0);
        held.taken = usage;
        Ok(())
    }

    /// Records the write as done.
    pub(crate) fn written(mut self, now_ms: u64) {
        if let Some(held) = self.0.take() {
            let mut cached = held.account.cached.lock();
            cached.ledger.settle(held.bucket, held.taken, held.taken, now_ms);
        }
    }
}

impl Drop for Charge {
    fn drop(&mut self) {
        if let Some(held) = self.0.take() {
            let mut cached = held.account.cached.lock();
            cached.ledger.settle(held.bucket, held.taken, Usage::default(), 0);
        }
    }
}
