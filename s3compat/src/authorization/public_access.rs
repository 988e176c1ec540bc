//! Public access block of a bucket.

use martlet_protocol::{Setting, Settings};
use s3s::dto::PublicAccessBlockConfiguration;

use crate::settings::from_document;

/// Returns true if a public policy gives access to the owner alone (`RestrictPublicBuckets`).
pub(crate) fn is_restricted(settings: &Settings) -> bool {
    is_blocked(settings, |block| block.restrict_public_buckets)
}

/// Returns a field of the bucket's public access block. An unreadable block counts as all true.
pub(crate) fn is_blocked(
    settings: &Settings,
    said: impl Fn(&PublicAccessBlockConfiguration) -> Option<bool>,
) -> bool {
    let Some(document) = settings.get(Setting::PublicAccessBlock) else { return false };
    from_document(document).map_or(true, |block| said(&block) == Some(true))
}
