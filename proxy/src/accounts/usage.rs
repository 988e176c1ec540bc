//! Stored usage counts: one document for each bucket, keyed by the owner's canonical id.
//!
//! ```text
//! usage/CANONICAL-ID/BUCKET-ID        one listing returns all counts of an owner
//! ```

use martlet_protocol::BucketId;
use martlet_protocol::entry::Bucket;
use martlet_protocol::usage::{Count, Usage};
use serde::{Deserialize, Serialize};

use super::directory::Directory;
use super::records::{Kept, Tenant, TenantOf};
use crate::error::{Error, Result};

/// Documents on one page.
const PAGE: usize = 1000;

/// Usage of a bucket at its last count.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct BucketUsage {
    /// Its owner's canonical id.
    pub owner: String,
    /// Its id.
    pub bucket_id: String,
    /// Its usage.
    pub usage: Usage,
    /// Start of the count, in milliseconds since 1970.
    pub began_ms: u64,
    /// Duration of the count, in milliseconds.
    pub took_ms: u64,
}

impl BucketUsage {
    /// The document of a finished count.
    pub(crate) fn of(count: &Count, now_ms: u64) -> Self {
        Self {
            owner: count.bucket.owner.clone(),
            bucket_id: count.bucket.id.to_string(),
            usage: count.usage,
            began_ms: count.began_ms,
            took_ms: now_ms.saturating_sub(count.began_ms),
        }
    }
}

impl Kept for BucketUsage {
    const KIND: &'static str = "usage";
    const FOLDER: &'static str = "usage/";

    fn path(&self) -> String {
        format!("{}/{}", self.owner, self.bucket_id)
    }
}

impl Directory {
    /// Reads the tenant with this canonical id from a quorum.
    pub(crate) async fn tenant_of(&self, canonical_id: &str) -> Result<Option<Tenant>> {
        let Some(of) = self.documents.document::<TenantOf>(canonical_id).await? else {
            return Ok(None);
        };
        let tenant: Option<Tenant> = self.documents.document(&of.tenant).await?;
        Ok(tenant.filter(|tenant| tenant.canonical_id == canonical_id))
    }

    /// All tenants that `keep` accepts.
    pub(crate) async fn tenants_that(
        &self,
        keep: impl Fn(&Tenant) -> bool + Copy + Send,
    ) -> Result<Vec<Tenant>> {
        let mut tenants: Vec<Tenant> = Vec::new();
        loop {
            let after = tenants.last().map(|tenant| tenant.name.clone());
            let listed = self.documents.list_documents("", after.as_deref(), PAGE, keep).await;
            let page = listed?;
            tenants.extend(page.items);
            if !page.is_truncated {
                return Ok(tenants);
            }
        }
    }

    /// Last counts of the buckets of an owner, or of all owners.
    pub(crate) async fn usages(&self, owner: Option<&str>) -> Result<Vec<BucketUsage>> {
        let below = owner.map(|owner| format!("{owner}/")).unwrap_or_default();
        let mut usages: Vec<BucketUsage> = Vec::new();
        loop {
            let after = usages.last().map(Kept::path);
            let listed =
                self.documents.list_documents(&below, after.as_deref(), PAGE, |_| true).await;
            let page = listed?;
            usages.extend(page.items);
            if !page.is_truncated {
                return Ok(usages);
            }
        }
    }

    /// Usage of a tenant's buckets at their last counts, and the earliest start of these counts in
    /// milliseconds since 1970; none without counts.
    ///
    /// # Errors
    /// Fails if too few nodes reply.
    pub async fn tenant_usage(&self, canonical_id: &str) -> Result<(Usage, Option<u64>)> {
        let usages = self.usages(Some(canonical_id)).await?;
        let usage = usages.iter().fold(Usage::default(), |sum, it| sum.plus(it.usage));
        Ok((usage, usages.iter().map(|it| it.began_ms).min()))
    }

    /// Last count of a bucket, if any.
    ///
    /// # Errors
    /// Fails if too few nodes reply.
    pub async fn bucket_usage(&self, bucket: &Bucket) -> Result<Option<BucketUsage>> {
        self.usage_of(&bucket.owner, bucket.id).await
    }

    /// Last count of the bucket with this id, if any.
    pub(crate) async fn usage_of(
        &self,
        owner: &str,
        bucket: BucketId,
    ) -> Result<Option<BucketUsage>> {
        self.documents.document(&format!("{owner}/{bucket}")).await
    }

    pub(crate) async fn put_usage(&self, usage: &BucketUsage) -> Result<()> {
        self.documents.put_document(usage).await
    }

    /// Deletes a count; succeeds if it doesn't exist.
    pub(crate) async fn delete_usage(&self, usage: &BucketUsage) -> Result<()> {
        match self.documents.delete_document::<BucketUsage>(&usage.path()).await {
            Err(Error::NoSuchAccount(_)) => Ok(()),
            deleted => deleted,
        }
    }
}
