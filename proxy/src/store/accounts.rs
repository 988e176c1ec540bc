//! Accounts, and usage of their buckets.

use std::sync::Arc;

use martlet_protocol::entry::Bucket;
use martlet_protocol::usage::Usage;

use super::ObjectStore;
use crate::accounts::principal::AccountOf;
use crate::accounts::usage::BucketUsage;
use crate::error::Result;

impl ObjectStore {
    /// Display name of the bucket owner with a canonical id; the id itself if the owner is unknown.
    /// The name never changes during an owner's life, so it may be cached for one minute.
    pub async fn owner_name(&self, canonical_id: &str) -> Arc<str> {
        self.services.directory.owner_name(canonical_id).await
    }

    /// Returns true if a tenant has this canonical id, read from a quorum.
    ///
    /// # Errors
    /// Fails if no quorum replies.
    pub async fn has_owner(&self, canonical_id: &str) -> Result<bool> {
        self.services.directory.has_owner(canonical_id).await
    }

    /// The account with this name or canonical id, read from a quorum.
    ///
    /// # Errors
    /// Fails if no quorum replies.
    pub async fn account_called(&self, text: &str) -> Result<Option<AccountOf>> {
        self.services.directory.account_called(text).await
    }

    /// The id of an account's user, read from a quorum; none if no user has this name, or if it
    /// belongs to a former tenant.
    ///
    /// # Errors
    /// Fails if no quorum replies.
    pub async fn user_id(&self, of: &AccountOf, name: &str) -> Result<Option<String>> {
        self.services.directory.user_id(of, name).await
    }

    /// The id of an account's role, read from a quorum; none if no role has this name, or if it
    /// belongs to a former tenant.
    ///
    /// # Errors
    /// Fails if no quorum replies.
    pub async fn role_id(&self, of: &AccountOf, name: &str) -> Result<Option<String>> {
        self.services.directory.role_id(of, name).await
    }

    /// The canonical id of the tenant whose name is this e-mail address, read from a quorum.
    ///
    /// # Errors
    /// Fails if no quorum replies.
    pub async fn owner_called(&self, address: &str) -> Result<Option<String>> {
        self.services.directory.owner_called(address).await
    }

    /// Usage of a tenant's buckets at their last counts, and the earliest start of these counts in
    /// milliseconds since 1970; none without counts.
    ///
    /// # Errors
    /// Fails if too few nodes reply.
    pub async fn tenant_usage(&self, canonical_id: &str) -> Result<(Usage, Option<u64>)> {
        self.services.quotas.tenant_usage(canonical_id).await
    }

    /// Last count of a bucket, if any.
    ///
    /// # Errors
    /// Fails if too few nodes reply.
    pub async fn bucket_usage(&self, bucket: &Bucket) -> Result<Option<BucketUsage>> {
        self.services.directory.usage(&bucket.owner, bucket.id).await
    }
}
