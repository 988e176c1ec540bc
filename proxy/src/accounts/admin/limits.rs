//! Quotas of tenants, and rate limits of tenants and keys.

use martlet_protocol::Quota;

use super::keys::AccessKeys;
use super::tenants::Tenants;
use crate::accounts::records::{Key, Rate, Tenant};
use crate::error::{Error, Result};

fn check(rate: &Rate) -> Result<()> {
    if rate.requests == Some(0) || rate.bytes == Some(0) {
        let instead = "a rate must be at least 1 per second: to refuse all requests, disable the \
                       key or tenant";
        return Err(Error::InvalidArgument(instead.into()));
    }
    Ok(())
}

impl Tenants<'_> {
    /// Changes the quota of all buckets of a tenant together.
    ///
    /// # Errors
    /// [`Error::NoSuchAccount`].
    pub async fn change_quota(
        self,
        tenant: &str,
        change: impl Fn(&mut Quota) + Send + Sync,
    ) -> Result<Tenant> {
        let change = |tenant: &mut Tenant| {
            change(&mut tenant.quota);
            Ok(())
        };
        self.accounts.documents().change_document(tenant, change).await
    }

    /// Changes the rate limit of a tenant.
    ///
    /// # Errors
    /// [`Error::NoSuchAccount`]; [`Error::InvalidArgument`] for a rate of zero.
    pub async fn change_rate(
        self,
        tenant: &str,
        change: impl Fn(&mut Rate) + Send + Sync,
    ) -> Result<Tenant> {
        let change = |tenant: &mut Tenant| {
            change(&mut tenant.rate);
            check(&tenant.rate)
        };
        self.accounts.documents().change_document(tenant, change).await
    }
}

impl AccessKeys<'_> {
    /// Changes the rate limit of a key.
    ///
    /// # Errors
    /// [`Error::NoSuchAccount`]; [`Error::InvalidArgument`] for a rate of zero.
    pub async fn change_rate(
        self,
        access_key: &str,
        change: impl Fn(&mut Rate) + Send + Sync,
    ) -> Result<Key> {
        let change = |key: &mut Key| {
            change(&mut key.rate);
            check(&key.rate)
        };
        self.accounts.documents().change_document(access_key, change).await
    }
}
