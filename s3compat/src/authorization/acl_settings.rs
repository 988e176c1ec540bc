//! Settings of a bucket that apply to access control lists.

use martlet_protocol::{Setting, Settings};
use s3s::S3Error;
use s3s::dto::{ObjectOwnership, OwnershipControls};

use super::public_access::is_blocked;
use crate::errors::custom;
use crate::settings::from_document;

/// Owner of objects that other accounts write.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Ownership {
    /// The writer. This is the default.
    #[default]
    Writer,
    /// The bucket's owner, if the writer gives the object away.
    Preferred,
    /// The bucket's owner. Lists are disabled.
    Enforced,
}

/// Settings of a bucket that apply to access control lists.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct AclSettings {
    pub(crate) ownership: Ownership,
    /// True if lists with grants to everyone are refused (`BlockPublicAcls`).
    pub(crate) blocks_public: bool,
    /// True if grants to everyone are ignored (`IgnorePublicAcls`).
    pub(crate) ignores_public: bool,
}

impl AclSettings {
    pub(crate) fn of(settings: &Settings) -> Self {
        let is_blocked = |said: fn(&s3s::dto::PublicAccessBlockConfiguration) -> Option<bool>| {
            is_blocked(settings, said)
        };
        Self {
            ownership: Ownership::of(settings),
            blocks_public: is_blocked(|block| block.block_public_acls),
            ignores_public: is_blocked(|block| block.ignore_public_acls),
        }
    }

    /// Returns true if lists are disabled (`BucketOwnerEnforced`).
    pub(crate) fn is_enforced(self) -> bool {
        self.ownership == Ownership::Enforced
    }
}

impl Ownership {
    /// Reads the setting. An unreadable setting counts as the strictest.
    fn of(settings: &Settings) -> Self {
        let Some(document) = settings.get(Setting::OwnershipControls) else {
            return Self::default();
        };
        let controls = from_document::<OwnershipControls>(document).ok();
        let rule = controls.as_ref().and_then(|controls| controls.rules.first());
        match rule.map(|rule| rule.object_ownership.as_str()) {
            Some(ObjectOwnership::OBJECT_WRITER) => Self::Writer,
            Some(ObjectOwnership::BUCKET_OWNER_PREFERRED) => Self::Preferred,
            _ => Self::Enforced,
        }
    }
}

/// 400: lists are disabled.
pub(crate) fn not_supported() -> S3Error {
    custom(
        "AccessControlListNotSupported",
        "The bucket does not allow ACLs",
        http::StatusCode::BAD_REQUEST,
    )
}

/// 400: the ownership setting disables lists, and the bucket has one.
pub(crate) fn bucket_has_list() -> S3Error {
    custom(
        "InvalidBucketAclWithObjectOwnership",
        "Bucket cannot have ACLs set with ObjectOwnership's BucketOwnerEnforced setting",
        http::StatusCode::BAD_REQUEST,
    )
}

#[cfg(test)]
mod tests {
    use s3s::dto::{OwnershipControlsRule, PublicAccessBlockConfiguration};

    use super::*;
    use crate::settings::to_document;

    fn ownership(document: Vec<u8>) -> Ownership {
        let mut settings = Settings::default();
        settings.set(Setting::OwnershipControls, document).unwrap();
        AclSettings::of(&settings).ownership
    }

    #[test]
    fn objects_are_their_writers_where_nothing_is_set() {
        assert_eq!(AclSettings::of(&Settings::default()), AclSettings::default());
        for (name, expected) in [
            ("ObjectWriter", Ownership::Writer),
            ("BucketOwnerPreferred", Ownership::Preferred),
            ("BucketOwnerEnforced", Ownership::Enforced),
            ("SomethingNew", Ownership::Enforced),
        ] {
            let object_ownership = ObjectOwnership::from_static(name);
            let rules = vec![OwnershipControlsRule { object_ownership }];
            assert_eq!(ownership(to_document(&OwnershipControls { rules })), expected);
        }
        assert_eq!(ownership(b"<Broken".to_vec()), Ownership::Enforced);
    }

    #[test]
    fn a_public_access_block_rules_over_public_lists() {
        let mut settings = Settings::default();
        let block = PublicAccessBlockConfiguration {
            block_public_acls: Some(true),
            ignore_public_acls: Some(false),
            ..Default::default()
        };
        settings.set(Setting::PublicAccessBlock, to_document(&block)).unwrap();
        let control = AclSettings::of(&settings);
        assert!(control.blocks_public && !control.ignores_public && !control.is_enforced());
    }
}
