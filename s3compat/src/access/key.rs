//! The closed list of condition keys.
//!
//! A policy with any other key is refused when it is put, as its condition could never be
//! evaluated.

use http::HeaderName;

/// Type of a key's values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum KeyType {
    Text,
    Number,
    Date,
    Address,
    Flag,
    Arn,
}

/// Source of a key's values.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum ValueSource {
    /// The requester, the connection, or the clock.
    Request,
    /// A header.
    Header(HeaderName),
    /// A header with a property of a new object. Requests for parts of an upload don't repeat it.
    ObjectHeader(HeaderName),
    /// A query parameter.
    Query(&'static str),
    /// The tag of this name on the existing object.
    ExistingTag,
    /// The tag of this name that the request sets.
    RequestTag,
    /// The names of all tags that the request sets.
    RequestTagKeys,
    /// Computed from the properties that the request gives a new object.
    OfObject,
}

/// A row of the list.
#[derive(Debug)]
pub(super) struct KeyDefinition {
    /// Name of the key in documents.
    pub(super) name: &'static str,
    pub(super) kind: KeyType,
    pub(super) source: ValueSource,
}

const fn header(name: &'static str) -> ValueSource {
    ValueSource::Header(HeaderName::from_static(name))
}

const fn of_object(name: &'static str) -> ValueSource {
    ValueSource::ObjectHeader(HeaderName::from_static(name))
}

const fn row(name: &'static str, kind: KeyType, source: ValueSource) -> KeyDefinition {
    KeyDefinition { name, kind, source }
}

/// All keys.
pub(super) static KEYS: [KeyDefinition; 43] = {
    use KeyType::{Address, Arn, Date, Flag, Number, Text};
    use ValueSource::{ExistingTag, OfObject, Query, Request, RequestTag, RequestTagKeys};
    [
        row("aws:CurrentTime", Date, Request),
        row("aws:EpochTime", Date, Request),
        row("aws:PrincipalAccount", Text, Request),
        row("aws:PrincipalArn", Arn, Request),
        row("aws:PrincipalType", Text, Request),
        row("aws:Referer", Text, header("referer")),
        row("aws:SecureTransport", Flag, Request),
        row("aws:SourceAccount", Text, Request),
        row("aws:SourceArn", Arn, Request),
        row("aws:SourceIp", Address, Request),
        row("aws:UserAgent", Text, header("user-agent")),
        row("aws:userid", Text, Request),
        row("aws:username", Text, Request),
        row("s3:ExistingObjectTag", Text, ExistingTag),
        row("s3:RequestObjectTag", Text, RequestTag),
        row("s3:RequestObjectTagKeys", Text, RequestTagKeys),
        row("s3:ResourceAccount", Text, Request),
        row("s3:TlsVersion", Number, Request),
        row("s3:VersionId", Text, Request),
        row("s3:authType", Text, Request),
        row("s3:delimiter", Text, Query("delimiter")),
        row("s3:if-match", Text, Request),
        row("s3:if-none-match", Text, Request),
        row("s3:max-keys", Number, Query("max-keys")),
        row("s3:object-lock-legal-hold", Text, of_object("x-amz-object-lock-legal-hold")),
        row("s3:object-lock-mode", Text, of_object("x-amz-object-lock-mode")),
        row("s3:object-lock-remaining-retention-days", Number, OfObject),
        row(
            "s3:object-lock-retain-until-date",
            Date,
            of_object("x-amz-object-lock-retain-until-date"),
        ),
        row("s3:prefix", Text, Query("prefix")),
        row("s3:signatureversion", Text, Request),
        row("s3:x-amz-acl", Text, of_object("x-amz-acl")),
        row("s3:x-amz-copy-source", Text, Request),
        row("s3:x-amz-grant-full-control", Text, of_object("x-amz-grant-full-control")),
        row("s3:x-amz-grant-read", Text, of_object("x-amz-grant-read")),
        row("s3:x-amz-grant-read-acp", Text, of_object("x-amz-grant-read-acp")),
        row("s3:x-amz-grant-write", Text, of_object("x-amz-grant-write")),
        row("s3:x-amz-grant-write-acp", Text, of_object("x-amz-grant-write-acp")),
        row("s3:x-amz-metadata-directive", Text, header("x-amz-metadata-directive")),
        row("s3:x-amz-server-side-encryption", Text, of_object("x-amz-server-side-encryption")),
        row(
            "s3:x-amz-server-side-encryption-aws-kms-key-id",
            Text,
            of_object("x-amz-server-side-encryption-aws-kms-key-id"),
        ),
        row(
            "s3:x-amz-server-side-encryption-customer-algorithm",
            Text,
            header("x-amz-server-side-encryption-customer-algorithm"),
        ),
        row("s3:x-amz-storage-class", Text, of_object("x-amz-storage-class")),
        row(
            "s3:x-amz-website-redirect-location",
            Text,
            of_object("x-amz-website-redirect-location"),
        ),
    ]
};

/// Keys that only trust documents use.
static TRUST_KEYS: [KeyDefinition; 4] = [
    row("sts:ExternalId", KeyType::Text, ValueSource::Request),
    row("sts:RoleSessionName", KeyType::Text, ValueSource::Request),
    row("token:aud", KeyType::Text, ValueSource::Request),
    row("token:sub", KeyType::Text, ValueSource::Request),
];

impl KeyDefinition {
    /// True if the key is a property that the request gives a new object.
    pub(super) fn is_of_new_objects(&self) -> bool {
        match self.source {
            ValueSource::ObjectHeader(_)
            | ValueSource::RequestTag
            | ValueSource::RequestTagKeys
            | ValueSource::OfObject => true,
            ValueSource::Request
            | ValueSource::Header(_)
            | ValueSource::Query(_)
            | ValueSource::ExistingTag => false,
        }
    }

    /// Finds a key by its name in the list, in exact case.
    pub(super) fn named(name: &str) -> Option<&'static Self> {
        KEYS.binary_search_by(|row| row.name.cmp(name)).ok().map(|at| &KEYS[at])
    }
}

/// A key, with the tag's name for keys of tags.
#[derive(Clone, Debug)]
pub(super) struct Key {
    pub(super) row: &'static KeyDefinition,
    pub(super) tag: Option<String>,
}

impl PartialEq for Key {
    fn eq(&self, other: &Self) -> bool {
        self.row.name == other.row.name && self.tag == other.tag
    }
}

impl Key {
    /// True if the key's value is the client's address.
    pub(super) fn is_address(&self) -> bool {
        self.row.kind == KeyType::Address
    }

    /// Reads a key of a document. Its case is ignored, except in the name of a tag.
    pub(super) fn parse(text: &str) -> Option<Self> {
        let (name, tag) = match text.split_once('/') {
            None => (text, None),
            Some((name, tag)) => (name, Some(tag.to_owned())),
        };
        let row = KEYS.iter().find(|row| row.name.eq_ignore_ascii_case(name))?;
        let has_tag = matches!(row.source, ValueSource::ExistingTag | ValueSource::RequestTag);
        let is_right = tag.as_ref().map_or(!has_tag, |tag| has_tag && !tag.is_empty());
        is_right.then_some(Self { row, tag })
    }

    /// Reads a key of a trust document. Claims in the tokens of `provider` are written with its
    /// name as prefix.
    pub(super) fn of_trust(text: &str, provider: Option<&str>) -> Option<Self> {
        let claim = provider.and_then(|name| text.strip_prefix(name)?.strip_prefix(':'));
        let name = match claim {
            Some("aud") => "token:aud",
            Some("sub") => "token:sub",
            _ if text.starts_with("token:") => return None,
            _ => text,
        };
        let of_trust = TRUST_KEYS.iter().find(|row| row.name.eq_ignore_ascii_case(name));
        match of_trust {
            Some(row) => Some(Self { row, tag: None }),
            None => Self::parse(text).filter(|key| {
                key.row.name.starts_with("aws:") && key.row.source == ValueSource::Request
            }),
        }
    }

    /// True if requests for parts of an upload don't give the key, because the request that began
    /// the upload did.
    pub(super) fn is_of_new_objects(&self) -> bool {
        self.row.is_of_new_objects()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_list_is_sorted_and_each_is_found() {
        assert!(KEYS.is_sorted_by(|one, other| one.name < other.name));
        for row in &KEYS {
            let has_tag = matches!(row.source, ValueSource::ExistingTag | ValueSource::RequestTag);
            let name = if has_tag { format!("{}/t", row.name) } else { row.name.to_owned() };
            let key = Key::parse(&name.to_uppercase()).unwrap();
            assert_eq!(key.row.name, row.name);
            assert_eq!(Key::parse(&name).unwrap().tag.is_some(), has_tag);
        }
    }

    #[test]
    fn tags_are_named_and_others_have_none() {
        let tag = |text: &str| Key::parse(text).and_then(|key| key.tag);
        assert_eq!(tag("s3:ExistingObjectTag/A/b"), Some("A/b".to_owned()));
        for text in [
            "s3:ExistingObjectTag",
            "s3:RequestObjectTag/",
            "s3:prefix/a",
            "aws:SourceVpc",
            "prefix",
            "",
        ] {
            assert!(Key::parse(text).is_none(), "{text}");
        }
        assert_ne!(
            Key::parse("s3:RequestObjectTag/a").unwrap(),
            Key::parse("s3:RequestObjectTag/A").unwrap()
        );
    }
}
