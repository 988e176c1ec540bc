//! Access control lists: grants on one bucket or object.
//!
//! ```text
//! document: format (1) | postcard of the list
//! ```
//!
//! Invariants:
//! * A bucket or object without a list is accessible to its owner only.
//! * An owner can always read and replace the list. All other permissions of the owner come from
//!   grants, as for other accounts.
//! * A list that can't be read grants nothing.

use serde::{Deserialize, Serialize};

use super::requester::Requester;

/// First byte of a document.
const FORMAT: u8 = 1;

/// Maximum number of grants in a list.
pub(crate) const GRANTS_MAX: usize = 100;

/// Grantee of a grant. Stored documents depend on the order of the variants, so it never changes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Grantee {
    /// An account, by its canonical id.
    Canonical(String),
    /// Every requester except log delivery.
    AllUsers,
    /// Every requester with an access key.
    AuthenticatedUsers,
    /// The log delivery service. No client can be this grantee.
    LogDelivery,
}

/// Permission of a grant. Stored documents depend on the order of the variants, so it never
/// changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Permission {
    Read,
    Write,
    ReadAcp,
    WriteAcp,
    FullControl,
}

/// One grant.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Grant {
    pub(crate) grantee: Grantee,
    pub(crate) permission: Permission,
}

/// An access control list.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Acl {
    /// Canonical id of the owner of the bucket or object.
    pub(crate) owner: String,
    pub(crate) grants: Vec<Grant>,
}

impl Grantee {
    /// The groups, with S3's names.
    pub(crate) const GROUPS: [(Self, &'static str); 3] = [
        (Self::AllUsers, "http://acs.amazonaws.com/groups/global/AllUsers"),
        (Self::AuthenticatedUsers, "http://acs.amazonaws.com/groups/global/AuthenticatedUsers"),
        (Self::LogDelivery, "http://acs.amazonaws.com/groups/s3/LogDelivery"),
    ];

    /// Group of a name.
    pub(crate) fn group(uri: &str) -> Option<Self> {
        Self::GROUPS.into_iter().find(|(_, name)| *name == uri).map(|(group, _)| group)
    }

    /// True if the group is public: all users, or all users with a key.
    fn is_public(&self) -> bool {
        matches!(self, Self::AllUsers | Self::AuthenticatedUsers)
    }

    fn is(&self, requester: &Requester) -> bool {
        match self {
            Self::Canonical(id) => requester.owns(id),
            Self::AllUsers => *requester != Requester::LogDelivery,
            Self::AuthenticatedUsers => matches!(requester, Requester::User(_)),
            Self::LogDelivery => *requester == Requester::LogDelivery,
        }
    }
}

impl Permission {
    /// All permissions, with S3's names.
    pub(crate) const ALL: [(Self, &'static str); 5] = [
        (Self::Read, "READ"),
        (Self::Write, "WRITE"),
        (Self::ReadAcp, "READ_ACP"),
        (Self::WriteAcp, "WRITE_ACP"),
        (Self::FullControl, "FULL_CONTROL"),
    ];

    /// Permission of a name.
    pub(crate) fn parse(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|(_, known)| *known == name).map(|(permission, _)| permission)
    }

    /// Name of the permission.
    pub(crate) fn name(self) -> &'static str {
        Self::ALL[self as usize].1
    }

    fn covers(self, wanted: Self) -> bool {
        self == wanted || self == Self::FullControl
    }
}

impl Grant {
    /// A grant of full control to one account.
    pub(crate) fn full(owner: &str) -> Self {
        let grantee = Grantee::Canonical(owner.to_owned());
        Self { grantee, permission: Permission::FullControl }
    }
}

impl Acl {
    /// A list that grants full control to its owner, equivalent to no list.
    pub(crate) fn private(owner: &str) -> Self {
        Self { owner: owner.to_owned(), grants: vec![Grant::full(owner)] }
    }

    /// True if the list is equivalent to no list.
    pub(crate) fn is_private(&self) -> bool {
        self.grants == [Grant::full(&self.owner)]
    }

    /// True if the list grants anything to a public group.
    pub(crate) fn is_public(&self) -> bool {
        self.grants.iter().any(|grant| grant.grantee.is_public())
    }

    /// True if `requester` has a permission. `ignores_public` disregards grants to public groups.
    pub(crate) fn allows(
        &self,
        requester: &Requester,
        wanted: Permission,
        ignores_public: bool,
    ) -> bool {
        let is_of_list = matches!(wanted, Permission::ReadAcp | Permission::WriteAcp);
        is_of_list && requester.owns(&self.owner)
            || self.grants.iter().any(|grant| {
                grant.permission.covers(wanted)
                    && grant.grantee.is(requester)
                    && !(ignores_public && grant.grantee.is_public())
            })
    }

    /// Encodes the list as a document.
    pub(crate) fn encode(&self) -> Vec<u8> {
        postcard::to_extend(self, vec![FORMAT]).expect("a list in memory can be written")
    }

    /// Decodes the list of a resource that belongs to `owner`. A list that can't be read grants
    /// nothing.
    pub(crate) fn decode(document: &[u8], owner: &str) -> Self {
        let read = match document.split_first() {
            Some((&FORMAT, rest)) => postcard::from_bytes(rest).ok(),
            _ => None,
        };
        read.unwrap_or_else(|| {
            tracing::error!("could not read an access control list");
            Self { owner: owner.to_owned(), grants: Vec::new() }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn list(grants: &[(Grantee, Permission)]) -> Acl {
        let grant = |(grantee, permission): &(Grantee, Permission)| Grant {
            grantee: grantee.clone(),
            permission: *permission,
        };
        Acl { owner: "alice".to_owned(), grants: grants.iter().map(grant).collect() }
    }

    fn bob() -> Grantee {
        Grantee::Canonical("bob".to_owned())
    }

    /// Permissions that a requester has.
    fn has(acl: &Acl, who: Option<&str>) -> Vec<Permission> {
        let requester = who.map_or(Requester::Anonymous, Requester::named);
        let all = Permission::ALL.into_iter().map(|(permission, _)| permission);
        all.filter(|wanted| acl.allows(&requester, *wanted, false)).collect()
    }

    #[test]
    fn grants_apply_to_their_grantees() {
        use Permission::{FullControl, Read, ReadAcp, Write, WriteAcp};
        let acl = list(&[(bob(), Read), (bob(), WriteAcp), (Grantee::LogDelivery, Write)]);
        assert_eq!(has(&acl, Some("bob")), [Read, WriteAcp]);
        assert_eq!(has(&acl, Some("alice")), [ReadAcp, WriteAcp], "it is hers, and no more");
        assert_eq!(has(&acl, Some("carol")), []);
        assert_eq!(has(&acl, None), []);
        let acl = list(&[(Grantee::AllUsers, Read), (Grantee::AuthenticatedUsers, Write)]);
        assert_eq!(has(&acl, None), [Read]);
        assert_eq!(has(&acl, Some("carol")), [Read, Write]);
        let all = Permission::ALL.map(|(permission, _)| permission);
        assert_eq!(has(&list(&[(bob(), FullControl)]), Some("bob")), all);
        assert_eq!(has(&Acl::private("alice"), Some("alice")), all);
        assert_eq!(has(&Acl::private("alice"), Some("root")), all);
    }

    #[test]
    fn public_grants_can_be_ignored_and_others_not() {
        let acl = list(&[(Grantee::AllUsers, Permission::Read), (bob(), Permission::Read)]);
        let allows =
            |who: &str, ignores| acl.allows(&Requester::named(who), Permission::Read, ignores);
        assert!(allows("bob", true) && !allows("carol", true) && allows("carol", false));
        assert!(!acl.allows(&Requester::Anonymous, Permission::Read, true));
        assert!(acl.is_public() && !Acl::private("alice").is_public());
        assert!(list(&[(Grantee::AuthenticatedUsers, Permission::WriteAcp)]).is_public());
        assert!(!list(&[(Grantee::LogDelivery, Permission::Write)]).is_public());
    }

    #[test]
    fn only_the_owners_full_control_is_private() {
        assert!(Acl::private("alice").is_private());
        assert!(!list(&[]).is_private());
        assert!(!list(&[(bob(), Permission::FullControl)]).is_private());
        assert!(!list(&[(Grantee::Canonical("alice".into()), Permission::Read)]).is_private());
    }

    #[test]
    fn documents_are_for_good() {
        let acl = list(&[(bob(), Permission::ReadAcp), (Grantee::LogDelivery, Permission::Write)]);
        let document = b"\x01\x05alice\x02\x00\x03bob\x02\x03\x01";
        assert_eq!(acl.encode(), document);
        assert_eq!(Acl::decode(document, "x"), acl);
        for grant in Permission::ALL {
            for (group, name) in Grantee::GROUPS {
                assert_eq!(Grantee::group(name), Some(group.clone()));
                let acl = list(&[(group, grant.0)]);
                assert_eq!(Acl::decode(&acl.encode(), "x"), acl);
            }
            assert_eq!(Permission::parse(grant.1), Some(grant.0));
            assert_eq!(grant.0.name(), grant.1);
        }
    }

    #[test]
    fn unreadable_lists_grant_nothing() {
        for document in [&b""[..], b"\x01", b"\x02\x05alice\x00", b"\x01\x05alice\x01\x09\x00"] {
            let acl = Acl::decode(document, "alice");
            assert_eq!((acl.owner.as_str(), acl.grants.len()), ("alice", 0), "{document:?}");
        }
    }
}
