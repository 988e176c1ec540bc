//! Reads and changes of a bucket's quota by operators.

use martlet_protocol::Setting;
use martlet_protocol::settings::Settings;
use martlet_protocol::usage::Quota;

use super::client::quota_of;
use crate::bucket::Buckets;
use crate::error::Result;

fn quota_in(settings: &Settings) -> Result<Quota> {
    Ok(settings.get(Setting::Quota).map(Quota::decode).transpose()?.unwrap_or_default())
}

impl Buckets<'_> {
    /// The quota of a bucket.
    ///
    /// # Errors
    /// [`Error::NoSuchBucket`](crate::Error::NoSuchBucket).
    pub async fn quota(self, name: &str) -> Result<Quota> {
        Ok(quota_of(&*self.catalog.bucket(&self.contexts.context(), name).await?))
    }

    /// Changes the quota of a bucket. A quota without any limit is removed.
    ///
    /// # Errors
    /// [`Error::NoSuchBucket`](crate::Error::NoSuchBucket); too few nodes replied.
    pub async fn change_quota(
        self,
        name: &str,
        change: impl Fn(&mut Quota) + Send + Sync,
    ) -> Result<Quota> {
        let mut changed = Quota::default();
        let set = |settings: &mut Settings| {
            let mut quota = quota_in(settings)?;
            change(&mut quota);
            changed = quota;
            if quota.is_none() {
                settings.remove(Setting::Quota);
                return Ok(());
            }
            Ok(settings.set(Setting::Quota, quota.encode())?)
        };
        self.change_settings(name, set).await?;
        Ok(changed)
    }
}
