//! Changes of the kind of a bucket's ETags.
//!
//! The new kind applies to new objects and to new uploads with their parts. Existing objects and
//! open uploads keep theirs.

use martlet_protocol::Setting;
use martlet_protocol::Settings;
use martlet_protocol::entry::{Bucket, ETagKind};

use super::admin::Buckets;
use crate::error::Result;

/// Sets the kind of ETags in the settings of a bucket.
///
/// # Errors
/// [`Error::EntityTooLarge`](crate::Error::EntityTooLarge) if the other settings leave no room.
pub fn set_etag_kind(settings: &mut Settings, kind: ETagKind) -> Result<()> {
    match kind {
        ETagKind::Md5 => drop(settings.remove(Setting::ETags)),
        ETagKind::Opaque => settings.set(Setting::ETags, kind.name().into())?,
    }
    Ok(())
}

impl Buckets<'_> {
    /// Sets the kind of the ETags of new objects and uploads. Other proxies use it after their next
    /// lookup of the bucket.
    ///
    /// # Errors
    /// [`Error::NoSuchBucket`](crate::Error::NoSuchBucket); too few nodes replied.
    pub async fn set_etags(self, name: &str, kind: ETagKind) -> Result<Bucket> {
        self.change_settings(name, |settings| set_etag_kind(settings, kind)).await?;
        Ok(Bucket::clone(&*self.read(name).await?))
    }
}
