//! How much a tenant may hold, and how fast it and its keys may ask.

use martlet_protocol::Quota;

use super::Accounts;
use crate::accounts::records::{Key, Rate, Tenant};
use crate::error::{Error, Result};

fn check(rate: &Rate) -> Result<()> {
    if rate.requests == Some(0) || rate.bytes == Some(0) {
        let instead = "a rate starts at 1 in a second: to let nothing in, disable it";
        return Err(Error::InvalidArgument(instead.into()));
    }
    Ok(())
}

impl Accounts {
    /// Changes how much the buckets of a tenant may hold together.
    ///
    /// # Errors
    /// [`Error::NoSuchAccount`].
    pub async fn change_quota(
        &self,
        tenant: &str,
        change: impl Fn(&mut Quota) + Send + Sync,
    ) -> Result<Tenant> {
        let change = |tenant: &mut Tenant| {
            change(&mut tenant.quota);
            Ok(())
        };
        self.store.change_document(tenant, change).await
    }

    /// Changes how fast the requests of a tenant may come.
    ///
    /// # Errors
    /// [`Error::NoSuchAccount`]; [`Error::InvalidArgument`] for a rate of nothing.
    pub async fn change_tenant_rate(
        &self,
        tenant: &str,
        change: impl Fn(&mut Rate) + Send + Sync,
    ) -> Result<Tenant> {
        let change = |tenant: &mut Tenant| {
            change(&mut tenant.rate);
            check(&tenant.rate)
        };
        self.store.change_document(tenant, change).await
    }

    /// Changes how fast the requests of a key may come.
    ///
    /// # Errors
    /// [`Error::NoSuchAccount`]; [`Error::InvalidArgument`] for a rate of nothing.
    pub async fn change_key_rate(
        &self,
        access_key: &str,
        change: impl Fn(&mut Rate) + Send + Sync,
    ) -> Result<Key> {
        let change = |key: &mut Key| {
            change(&mut key.rate);
            check(&key.rate)
        };
        self.store.change_document(access_key, change).await
    }
}
