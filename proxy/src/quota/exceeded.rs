//! Quotas that apply to a write, and the error of a write that would exceed one.

use martlet_protocol::usage::{Excess, Quota};
use thiserror::Error;

/// A write would exceed a quota.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("the quota of the {} would be exceeded: {excess}", .whose.name())]
pub struct Exceeded {
    /// Owner of the quota.
    pub whose: Whose,
    /// The exceeded limit.
    pub excess: Excess,
}

/// Owner of a quota.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Whose {
    /// One bucket.
    Bucket,
    /// All buckets of a tenant together.
    Tenant,
}

impl Whose {
    /// Name of the owner's kind, for messages.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Bucket => "bucket",
            Self::Tenant => "tenant",
        }
    }
}

/// Quotas that apply to a write.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Bounds {
    pub(crate) bucket: Quota,
    pub(crate) tenant: Quota,
}

impl Bounds {
    pub(super) fn is_none(&self) -> bool {
        self.bucket.is_none() && self.tenant.is_none()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refusal_names_the_quota_and_its_limit() {
        let exceeded = Exceeded { whose: Whose::Tenant, excess: Excess::Bytes(7) };
        assert_eq!(exceeded.to_string(), "the quota of the tenant would be exceeded: 7 bytes");
        let exceeded = Exceeded { whose: Whose::Bucket, excess: Excess::Objects(3) };
        assert_eq!(exceeded.to_string(), "the quota of the bucket would be exceeded: 3 objects");
    }
}
