//! Access control list in a request: canned, in headers, or in a document.

use http::{HeaderMap, StatusCode};
use s3s::dto::{AccessControlPolicy, Grant as WireGrant, Type};
use s3s::{S3Error, S3Result};

use super::canned::Canned;
use crate::access::{GRANTS_MAX, Permission};
use crate::errors::custom;
use crate::messages;

/// Header with the name of a canned list.
const CANNED: &str = "x-amz-acl";
/// Headers with grants, and the permission that each grants.
pub(in super::super) const GRANTS: [(&str, Permission); 5] = [
    ("x-amz-grant-read", Permission::Read),
    ("x-amz-grant-write", Permission::Write),
    ("x-amz-grant-read-acp", Permission::ReadAcp),
    ("x-amz-grant-write-acp", Permission::WriteAcp),
    ("x-amz-grant-full-control", Permission::FullControl),
];

/// Grantee as a request names it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum NamedGrantee {
    Id(String),
    Uri(String),
    Address(String),
}

/// Access control list in a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum RequestedAcl {
    Canned(Canned),
    Granted {
        /// Owner that the document names.
        owner: Option<String>,
        grants: Vec<(NamedGrantee, Permission)>,
    },
}

impl RequestedAcl {
    /// Parses the list in the headers, if any. Refuses a canned list together with grants.
    pub(super) fn in_headers(headers: &HeaderMap) -> S3Result<Option<Self>> {
        let canned = headers.get(CANNED).map(|value| {
            let name = value.to_str().unwrap_or_default();
            Canned::parse(name)
        });
        let canned = canned.transpose()?;
        let mut grants = Vec::new();
        for (name, permission) in GRANTS {
            let Some(value) = headers.get(name) else { continue };
            let value = value.to_str().unwrap_or_default();
            for named in value.split(',') {
                let named = named_in(named);
                let named = named.ok_or_else(|| messages::ACL_GRANT.argument(name, value))?;
                grants.push((named, permission));
            }
        }
        match (canned, grants.is_empty()) {
            (None, true) => Ok(None),
            (Some(canned), true) => Ok(Some(Self::Canned(canned))),
            (None, false) if grants.len() > GRANTS_MAX => Err(malformed()),
            (None, false) => Ok(Some(Self::Granted { owner: None, grants })),
            (Some(_), false) => Err(messages::ACLS_BOTH.error()),
        }
    }

    /// Parses the list of a `PutBucketAcl` or `PutObjectAcl` request, in headers or in a document.
    pub(super) fn of(headers: &HeaderMap, list: Option<AccessControlPolicy>) -> S3Result<Self> {
        match (Self::in_headers(headers)?, list) {
            (None, None) => Err(custom(
                "MissingSecurityHeader",
                "Your request was missing a required header: x-amz-acl",
                StatusCode::BAD_REQUEST,
            )),
            (Some(_), Some(_)) => Err(custom(
                "UnexpectedContent",
                "This request does not support content",
                StatusCode::BAD_REQUEST,
            )),
            (Some(requested_acl), None) => Ok(requested_acl),
            (None, Some(list)) => Self::in_document(list),
        }
    }

    fn in_document(list: AccessControlPolicy) -> S3Result<Self> {
        let owner = list.owner.and_then(|owner| owner.id).ok_or_else(malformed)?;
        let grants = list.grants.unwrap_or_default();
        if grants.len() > GRANTS_MAX {
            return Err(malformed());
        }
        let grants = grants.into_iter().map(|grant| granted(grant).ok_or_else(malformed));
        Ok(Self::Granted { owner: Some(owner), grants: grants.collect::<S3Result<_>>()? })
    }
}

/// Parses one grantee in a header: `id="…"`, `uri="…"` or `emailAddress="…"`.
fn named_in(text: &str) -> Option<NamedGrantee> {
    let (kind, value) = text.trim().split_once('=')?;
    let value = value.trim();
    let bare = value.strip_prefix('"').and_then(|value| value.strip_suffix('"'));
    let value = bare.unwrap_or(value);
    let is_plain = !value.is_empty() && !value.contains('"');
    let value = is_plain.then(|| value.to_owned())?;
    match kind.trim().to_ascii_lowercase().as_str() {
        "id" => Some(NamedGrantee::Id(value)),
        "uri" => Some(NamedGrantee::Uri(value)),
        "emailaddress" => Some(NamedGrantee::Address(value)),
        _ => None,
    }
}

/// Parses a grant's grantee and permission. None if the grant is malformed.
pub(super) fn granted(grant: WireGrant) -> Option<(NamedGrantee, Permission)> {
    let grantee = grant.grantee?;
    let permission = Permission::parse(grant.permission?.as_str())?;
    let named = match grantee.type_.as_str() {
        Type::CANONICAL_USER => NamedGrantee::Id(grantee.id?),
        Type::GROUP => NamedGrantee::Uri(grantee.uri?),
        Type::AMAZON_CUSTOMER_BY_EMAIL => NamedGrantee::Address(grantee.email_address?),
        _ => return None,
    };
    Some((named, permission))
}

pub(super) fn malformed() -> S3Error {
    custom("MalformedACLError", messages::MALFORMED_XML.text, StatusCode::BAD_REQUEST)
}

#[cfg(test)]
mod tests {
    use s3s::dto::{Grantee, Owner, Permission as WirePermission};

    use super::*;

    fn headers(pairs: &[(&'static str, &'static str)]) -> HeaderMap {
        pairs.iter().map(|(name, value)| (name.parse().unwrap(), value.parse().unwrap())).collect()
    }

    fn code<T: std::fmt::Debug>(outcome: S3Result<T>) -> String {
        outcome.unwrap_err().code().as_str().to_owned()
    }

    fn grant(kind: &'static str, permission: &'static str) -> WireGrant {
        let grantee = Grantee {
            display_name: None,
            email_address: Some("bob@example.com".to_owned()),
            id: Some("bob".to_owned()),
            type_: Type::from_static(kind),
            uri: Some("http://group".to_owned()),
        };
        let permission = Some(WirePermission::from_static(permission));
        WireGrant { grantee: Some(grantee), permission }
    }

    fn list(grants: Vec<WireGrant>) -> AccessControlPolicy {
        let owner = Owner { id: Some("alice".to_owned()), display_name: None };
        AccessControlPolicy { grants: Some(grants), owner: Some(owner) }
    }

    #[test]
    fn headers_grant_in_the_order_of_permissions() {
        let requested_acl = RequestedAcl::in_headers(&headers(&[
            ("x-amz-grant-full-control", "emailAddress=bob@example.com"),
            ("x-amz-grant-read", "id=\"bob\", URI = \"http://group\" ,id=carol"),
        ]));
        let grants = vec![
            (NamedGrantee::Id("bob".into()), Permission::Read),
            (NamedGrantee::Uri("http://group".into()), Permission::Read),
            (NamedGrantee::Id("carol".into()), Permission::Read),
            (NamedGrantee::Address("bob@example.com".into()), Permission::FullControl),
        ];
        assert_eq!(requested_acl.unwrap(), Some(RequestedAcl::Granted { owner: None, grants }));
        assert_eq!(RequestedAcl::in_headers(&HeaderMap::new()).unwrap(), None);
    }

    #[test]
    fn grant_headers_without_a_grantee_are_refused() {
        for wrong in ["", "bob", "id=", "id=\"\"", "name=bob", "id=bob,", "id=\"a\"b\""] {
            let refused = RequestedAcl::in_headers(&headers(&[("x-amz-grant-write", wrong)]));
            assert_eq!(code(refused), "InvalidArgument", "{wrong:?}");
        }
        let canned = |name| RequestedAcl::in_headers(&headers(&[("x-amz-acl", name)]));
        assert_eq!(canned("private").unwrap(), Some(RequestedAcl::Canned(Canned::Private)));
        assert_eq!(code(canned("public-ready")), "InvalidArgument");
        assert_eq!(code(canned("")), "InvalidArgument");
        let both = headers(&[("x-amz-acl", "private"), ("x-amz-grant-read", "id=bob")]);
        assert_eq!(code(RequestedAcl::in_headers(&both)), "InvalidRequest");
        let many = vec!["id=bob"; GRANTS_MAX + 1].join(",");
        let mut headers = HeaderMap::new();
        headers.insert("x-amz-grant-read", many.parse().unwrap());
        assert_eq!(code(RequestedAcl::in_headers(&headers)), "MalformedACLError");
    }

    #[test]
    fn a_document_has_its_owner_and_grantees() {
        let named = vec![
            grant("CanonicalUser", "WRITE"),
            grant("Group", "READ"),
            grant("AmazonCustomerByEmail", "READ_ACP"),
        ];
        let grants = vec![
            (NamedGrantee::Id("bob".into()), Permission::Write),
            (NamedGrantee::Uri("http://group".into()), Permission::Read),
            (NamedGrantee::Address("bob@example.com".into()), Permission::ReadAcp),
        ];
        let requested_acl = RequestedAcl::of(&HeaderMap::new(), Some(list(named))).unwrap();
        assert_eq!(requested_acl, RequestedAcl::Granted { owner: Some("alice".into()), grants });
        let requested_acl = RequestedAcl::of(&HeaderMap::new(), Some(list(Vec::new()))).unwrap();
        assert_eq!(
            requested_acl,
            RequestedAcl::Granted { owner: Some("alice".into()), grants: Vec::new() }
        );
    }

    #[test]
    fn documents_that_are_no_lists_are_refused() {
        let none = HeaderMap::new();
        let mut nobody = grant("CanonicalUser", "READ");
        nobody.grantee.as_mut().unwrap().id = None;
        for wrong in [
            list(vec![grant("CanonicalUser", "EVERYTHING")]),
            list(vec![grant("Everybody", "READ")]),
            list(vec![nobody]),
            list(vec![WireGrant { grantee: None, permission: None }]),
            list(vec![grant("CanonicalUser", "READ"); GRANTS_MAX + 1]),
            AccessControlPolicy { owner: None, ..list(Vec::new()) },
        ] {
            assert_eq!(code(RequestedAcl::of(&none, Some(wrong))), "MalformedACLError");
        }
        let most = list(vec![grant("CanonicalUser", "READ"); GRANTS_MAX]);
        RequestedAcl::of(&none, Some(most)).unwrap();
        assert_eq!(code(RequestedAcl::of(&none, None)), "MissingSecurityHeader");
        let private = headers(&[("x-amz-acl", "private")]);
        assert_eq!(code(RequestedAcl::of(&private, Some(list(Vec::new())))), "UnexpectedContent");
    }
}
