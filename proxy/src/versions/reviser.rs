//! Changes of an object's metadata. Its bytes and its version stay.

use std::sync::Arc;

use martlet_protocol::limits::COMMIT_WINDOW_MS;
use martlet_protocol::{Stamp, Version, WriteId};

use super::find::no_object;
use super::revise::{Change, Revision};
use super::store::VersionStore;
use crate::api::{ObjectName, WrittenObject};
use crate::bucket::{BucketCatalog, busy};
use crate::context::RequestContext;
use crate::error::{Error, Result};
use crate::index::{RegisterClient, WriteOutcome};
use crate::quota::{Quotas, RequestedUsage};

/// Author of a change.
#[derive(Clone, Copy)]
enum By {
    Client,
    Operator,
}

/// Changes of an object's metadata.
pub(crate) struct Reviser {
    pub(crate) registers: Arc<RegisterClient>,
    pub(crate) catalog: Arc<BucketCatalog>,
    pub(crate) quotas: Arc<Quotas>,
    pub(crate) versions: Arc<VersionStore>,
}

impl Reviser {
    /// Changes an object's metadata by a separate write. Its extents keep their owner, and its
    /// version stays. The growth of its entry is charged against the quotas.
    pub(crate) async fn revise_object(
        &self,
        context: &RequestContext,
        bucket: &str,
        name: ObjectName<'_>,
        change: &mut Change<'_>,
    ) -> Result<WrittenObject> {
        self.revise_by(context, bucket, name, change, By::Client).await
    }

    /// Changes an object's metadata as [`Reviser::revise_object`] does, without a charge against
    /// the quotas.
    pub(crate) async fn revise_by_operator(
        &self,
        context: &RequestContext,
        bucket: &str,
        name: ObjectName<'_>,
        change: &mut Change<'_>,
    ) -> Result<WrittenObject> {
        self.revise_by(context, bucket, name, change, By::Operator).await
    }

    async fn revise_by(
        &self,
        context: &RequestContext,
        bucket: &str,
        name: ObjectName<'_>,
        change: &mut Change<'_>,
        by: By,
    ) -> Result<WrittenObject> {
        match self.revise_once(context, bucket, name, change, by).await {
            Err(Error::BucketReplaced) => self.revise_once(context, bucket, name, change, by).await,
            revised => revised,
        }
    }

    async fn revise_once(
        &self,
        context: &RequestContext,
        bucket: &str,
        ObjectName { key, version }: ObjectName<'_>,
        change: &mut Change<'_>,
        by: By,
    ) -> Result<WrittenObject> {
        let mut target = self.catalog.target(context, bucket, key).await?;
        if let Some(view) = self.versions.absent_version(context, &target.key, version).await {
            let (catalog, absent) = (&self.catalog, no_object(view.entry.as_ref(), version));
            return Err(catalog
                .check_absence(context, absent, bucket, &target.bucket, target.began)
                .await);
        }
        let mut charge = match by {
            By::Client => {
                Some(Box::pin(self.quotas.charge(&target.bucket, RequestedUsage::change())).await?)
            }
            By::Operator => None,
        };
        let write_id = WriteId::random();
        for _ in 0..2 {
            let commit_by_ms = self.registers.stamps.now_ms() + COMMIT_WINDOW_MS;
            let keep_body = true;
            let mut revision = Revision::new(&self.versions, context, version, change, keep_body);
            revision.charge = charge.as_mut();
            let floor = Stamp::at_ms(target.bucket.versioning().above_ms);
            let intent = target.intent(write_id, commit_by_ms);
            let landed = match self.registers.ballots.decide_by(intent, floor, &mut revision).await
            {
                Ok(landed) => landed,
                Err(failed) => {
                    return Err(self
                        .catalog
                        .check_absence(context, failed.error, bucket, &target.bucket, target.began)
                        .await);
                }
            };
            match (landed, revision.revised) {
                (WriteOutcome::At(stamp), Some(mut object)) => {
                    if target.bucket.versioning().state.keeps_versions() {
                        object.version.get_or_insert(Version::UNVERSIONED);
                    }
                    if let Some(charge) = charge {
                        charge.written(self.registers.stamps.now_ms());
                    }
                    return Ok(WrittenObject::new(object, stamp));
                }
                _ => {
                    target.bucket = self.catalog.refreshed(context, bucket, &target.bucket).await?;
                }
            }
        }
        Err(busy())
    }
}
