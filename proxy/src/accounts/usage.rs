//! How much a bucket held when it was last counted: a document for each bucket that a quota speaks of,
//! below the canonical id of its owner.
//!
//! ```text
//! usage/CANONICAL-ID/BUCKET-ID        one listing tells all that an owner holds
//! ```

use martlet_protocol::BucketId;
use martlet_protocol::usage::{Count, Usage};
use serde::{Deserialize, Serialize};

use super::records::{Kept, Tenant, TenantOf};
use crate::error::{Error, Result};
use crate::store::ObjectStore;

/// Documents of one page.
const PAGE: usize = 1000;

/// What a bucket held when it was last counted.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct BucketUsage {
    /// Its owner's canonical id.
    pub owner: String,
    /// Its id.
    pub bucket_id: String,
    /// What it held.
    pub usage: Usage,
    /// When the count began, in milliseconds since 1970.
    pub began_ms: u64,
    /// How long it took.
    pub took_ms: u64,
}

impl BucketUsage {
    /// What a count came to.
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

impl ObjectStore {
    /// The tenant whose canonical id this is, by a quorum.
    pub(crate) async fn tenant_of(&self, canonical_id: &str) -> Result<Option<Tenant>> {
        let Some(of) = self.document::<TenantOf>(canonical_id).await? else { return Ok(None) };
        let tenant: Option<Tenant> = self.document(&of.tenant).await?;
        Ok(tenant.filter(|tenant| tenant.canonical_id == canonical_id))
    }

    /// The tenants that `keep` keeps.
    pub(crate) async fn tenants_that(
        &self,
        keep: impl Fn(&Tenant) -> bool + Copy + Send,
    ) -> Result<Vec<Tenant>> {
        let mut tenants: Vec<Tenant> = Vec::new();
        loop {
            let after = tenants.last().map(|tenant| tenant.name.clone());
            let (page, more) = self.list_documents("", after.as_deref(), PAGE, keep).await?;
            tenants.extend(page);
            if !more {
                return Ok(tenants);
            }
        }
    }

    /// What was last counted in the buckets of an owner, or of everybody.
    pub(crate) async fn usages(&self, owner: Option<&str>) -> Result<Vec<BucketUsage>> {
        let below = owner.map(|owner| format!("{owner}/")).unwrap_or_default();
        let mut usages: Vec<BucketUsage> = Vec::new();
        loop {
            let after = usages.last().map(Kept::path);
            let listed = self.list_documents(&below, after.as_deref(), PAGE, |_| true).await;
            let (page, more) = listed?;
            usages.extend(page);
            if !more {
                return Ok(usages);
            }
        }
    }

    /// What was last counted in a bucket.
    pub(crate) async fn usage(&self, owner: &str, bucket: BucketId) -> Result<Option<BucketUsage>> {
        self.document(&format!("{owner}/{bucket}")).await
    }

    pub(crate) async fn put_usage(&self, usage: &BucketUsage) -> Result<()> {
        self.put_document(usage).await
    }

    /// Deletes a count; it may be gone already.
    pub(crate) async fn delete_usage(&self, usage: &BucketUsage) -> Result<()> {
        match self.delete_document::<BucketUsage>(&usage.path()).await {
            Err(Error::NoSuchAccount(_)) => Ok(()),
            deleted => deleted,
        }
    }
}
