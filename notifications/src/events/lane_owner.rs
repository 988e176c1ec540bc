//! Owner of a lane's messages, and the lane's folder.

use std::path::{Path, PathBuf};

use martlet_proxy::ROOT;

/// Maximum number of tenants, besides root, with a lane of their own for a target.
pub(super) const TENANTS_MAX: usize = 32;
/// Maximum number of queued messages of root's lane.
const QUEUED_MAX: usize = 4096;
/// Maximum number of queued messages of any other lane.
const TENANT_QUEUED_MAX: usize = 512;
/// Maximum length of a tenant's id that serves as a folder's name.
const OWNER_CHARS_MAX: usize = 64;
/// Folder of tenants' lanes within a target's folder.
pub(super) const TENANTS: &str = "tenants";
/// Folder of the lane of all other tenants.
pub(super) const OTHERS: &str = "others";

/// Owner of a lane's messages.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum LaneOwner {
    Root,
    /// Canonical id of the tenant, or its hash if the id can't name a folder.
    Tenant(String),
    /// Tenants beyond [`TENANTS_MAX`].
    Others,
}

impl LaneOwner {
    /// Returns the lane of a bucket's owner.
    pub(super) fn of(owner: &str) -> Self {
        if owner == ROOT {
            return Self::Root;
        }
        let is_plain = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '_';
        let is_name = (1..=OWNER_CHARS_MAX).contains(&owner.len()) && owner != OTHERS;
        if is_name && owner.chars().all(is_plain) {
            return Self::Tenant(owner.to_owned());
        }
        Self::Tenant(blake3::hash(owner.as_bytes()).to_hex().to_string())
    }

    /// Suffix that distinguishes the lane's file from root's.
    pub(super) fn name(&self) -> Option<&str> {
        match self {
            Self::Root => None,
            Self::Tenant(owner) => Some(owner),
            Self::Others => Some(OTHERS),
        }
    }

    /// Returns the lane's folder within its target's folder.
    pub(super) fn place(&self, target: &Path) -> PathBuf {
        match self {
            Self::Root => target.to_owned(),
            Self::Tenant(owner) => target.join(TENANTS).join(owner),
            Self::Others => target.join(OTHERS),
        }
    }

    /// Maximum number of queued messages.
    pub(super) fn queued_max(&self) -> usize {
        if *self == Self::Root { QUEUED_MAX } else { TENANT_QUEUED_MAX }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lane_is_named_by_what_can_name_a_folder() {
        assert_eq!(LaneOwner::of("root"), LaneOwner::Root);
        assert_eq!(LaneOwner::of("0a-B_9"), LaneOwner::Tenant("0a-B_9".to_owned()));
        let mut folders = Vec::new();
        for odd in ["", "..", "a/b", "others", "a b", "ü", &"x".repeat(65)] {
            let LaneOwner::Tenant(name) = LaneOwner::of(odd) else { panic!("{odd} is a tenant") };
            assert_eq!((name.len(), LaneOwner::of(&name)), (64, LaneOwner::Tenant(name.clone())));
            folders.push(name);
        }
        folders.sort();
        folders.dedup();
        assert_eq!(folders.len(), 7);
    }
}
