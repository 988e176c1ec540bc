//! The kind of a bucket's ETags.
//!
//! The kind applies to new objects and to new uploads with their parts. Existing objects and open
//! uploads keep theirs.

use martlet_protocol::entry::ETagKind;
use martlet_protocol::{Setting, Settings};

use crate::error::Result;

/// Sets the kind of ETags in the settings of a bucket.
///
/// # Errors
/// [`Error::EntityTooLarge`](crate::Error::EntityTooLarge) if the other settings leave no room.
pub fn set_etag_kind(settings: &mut Settings, kind: ETagKind) -> Result<()> {
    match kind {
        ETagKind::Md5 => {
            settings.remove(Setting::ETags);
        }
        ETagKind::Opaque => settings.set(Setting::ETags, kind.name().into())?,
    }
    Ok(())
}
