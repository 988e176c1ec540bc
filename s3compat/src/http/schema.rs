//! Schemas of request documents: the elements of S3's schema, and those that are numbers.
//!
//! s3s ignores unknown elements in many places, and reads a number from its leading digits. A
//! misspelt element would be a setting that is acknowledged but never made, and `1,000` days would
//! be one day. So documents are checked against this table first.

use self::ContentKind::{Group, Number, Text};
use crate::operation::Operation;

/// An element and its content.
#[derive(Clone, Copy, Debug)]
pub(super) struct Element {
    pub(super) name: &'static str,
    pub(super) kind: ContentKind,
}

/// Content of an element.
#[derive(Clone, Copy, Debug)]
pub(super) enum ContentKind {
    /// Text of any kind.
    Text,
    /// A whole number in decimal digits.
    Number,
    /// Other elements.
    Group(&'static [Element]),
}

impl Element {
    /// Child element of this name.
    pub(super) fn child(&self, name: &str) -> Option<&'static Self> {
        match self.kind {
            Group(children) => children.iter().find(|child| child.name == name),
            Text | Number => None,
        }
    }
}

const fn text(name: &'static str) -> Element {
    Element { name, kind: Text }
}

const fn number(name: &'static str) -> Element {
    Element { name, kind: Number }
}

const fn group(name: &'static str, children: &'static [Element]) -> Element {
    Element { name, kind: Group(children) }
}

const OWNER: Element = group("Owner", &[text("DisplayName"), text("ID")]);
const GRANTEE: Element = group(
    "Grantee",
    &[text("DisplayName"), text("EmailAddress"), text("ID"), text("Type"), text("URI")],
);
const GRANT: Element = group("Grant", &[GRANTEE, text("Permission")]);
const TAG: Element = group("Tag", &[text("Key"), text("Value")]);
const DEFAULT_RETENTION: Element =
    group("DefaultRetention", &[number("Days"), text("Mode"), number("Years")]);
const EVENT_FILTER: Element =
    group("Filter", &[group("S3Key", &[group("FilterRule", &[text("Name"), text("Value")])])]);

const ACL: Element = group("AccessControlPolicy", &[group("AccessControlList", &[GRANT]), OWNER]);
const COMPLETE: Element = group(
    "CompleteMultipartUpload",
    &[group(
        "Part",
        &[
            number("PartNumber"),
            text("ETag"),
            text("ChecksumCRC32"),
            text("ChecksumCRC32C"),
            text("ChecksumCRC64NVME"),
            text("ChecksumMD5"),
            text("ChecksumSHA1"),
            text("ChecksumSHA256"),
            text("ChecksumSHA512"),
            text("ChecksumXXHASH128"),
            text("ChecksumXXHASH3"),
            text("ChecksumXXHASH64"),
        ],
    )],
);
const CORS: Element = group(
    "CORSConfiguration",
    &[group(
        "CORSRule",
        &[
            text("AllowedHeader"),
            text("AllowedMethod"),
            text("AllowedOrigin"),
            text("ExposeHeader"),
            text("ID"),
            number("MaxAgeSeconds"),
        ],
    )],
);
const CREATE_BUCKET: Element = group(
    "CreateBucketConfiguration",
    &[
        group("Bucket", &[text("DataRedundancy"), text("Type")]),
        group("Location", &[text("Name"), text("Type")]),
        text("LocationConstraint"),
        group("Tags", &[TAG]),
    ],
);
const DELETE: Element = group(
    "Delete",
    &[
        group(
            "Object",
            &[
                text("ETag"),
                text("Key"),
                text("LastModifiedTime"),
                number("Size"),
                text("VersionId"),
            ],
        ),
        text("Quiet"),
    ],
);
const ENCRYPTION: Element = group(
    "ServerSideEncryptionConfiguration",
    &[group(
        "Rule",
        &[
            group(
                "ApplyServerSideEncryptionByDefault",
                &[text("KMSMasterKeyID"), text("SSEAlgorithm")],
            ),
            text("BucketKeyEnabled"),
        ],
    )],
);
const LEGAL_HOLD: Element = group("LegalHold", &[text("Status")]);
const LARGER: Element = number("ObjectSizeGreaterThan");
const SMALLER: Element = number("ObjectSizeLessThan");
const LIFECYCLE: Element = group(
    "LifecycleConfiguration",
    &[group(
        "Rule",
        &[
            group("AbortIncompleteMultipartUpload", &[number("DaysAfterInitiation")]),
            group("Expiration", &[text("Date"), number("Days"), text("ExpiredObjectDeleteMarker")]),
            group(
                "Filter",
                &[
                    group("And", &[LARGER, SMALLER, text("Prefix"), TAG]),
                    LARGER,
                    SMALLER,
                    text("Prefix"),
                    TAG,
                ],
            ),
            text("ID"),
            group(
                "NoncurrentVersionExpiration",
                &[number("NewerNoncurrentVersions"), number("NoncurrentDays")],
            ),
            group(
                "NoncurrentVersionTransition",
                &[
                    number("NewerNoncurrentVersions"),
                    number("NoncurrentDays"),
                    text("StorageClass"),
                ],
            ),
            text("Prefix"),
            text("Status"),
            group("Transition", &[text("Date"), number("Days"), text("StorageClass")]),
        ],
    )],
);
const LOCK: Element = group(
    "ObjectLockConfiguration",
    &[text("ObjectLockEnabled"), group("Rule", &[DEFAULT_RETENTION])],
);
const LOGGING: Element = group(
    "BucketLoggingStatus",
    &[group(
        "LoggingEnabled",
        &[
            text("TargetBucket"),
            group("TargetGrants", &[GRANT]),
            group(
                "TargetObjectKeyFormat",
                &[
                    group("PartitionedPrefix", &[text("PartitionDateSource")]),
                    group("SimplePrefix", &[]),
                ],
            ),
            text("TargetPrefix"),
        ],
    )],
);
const NOTIFICATION: Element = group(
    "NotificationConfiguration",
    &[
        group(
            "CloudFunctionConfiguration",
            &[text("CloudFunction"), text("Event"), EVENT_FILTER, text("Id")],
        ),
        group("EventBridgeConfiguration", &[]),
        group("QueueConfiguration", &[text("Event"), EVENT_FILTER, text("Id"), text("Queue")]),
        group("TopicConfiguration", &[text("Event"), EVENT_FILTER, text("Id"), text("Topic")]),
    ],
);
const OWNERSHIP: Element = group("OwnershipControls", &[group("Rule", &[text("ObjectOwnership")])]);
const PUBLIC_ACCESS: Element = group(
    "PublicAccessBlockConfiguration",
    &[
        text("BlockPublicAcls"),
        text("BlockPublicPolicy"),
        text("IgnorePublicAcls"),
        text("RestrictPublicBuckets"),
    ],
);
const RETENTION: Element = group("Retention", &[text("Mode"), text("RetainUntilDate")]);
const TAGGING: Element = group("Tagging", &[group("TagSet", &[TAG])]);
const VERSIONING: Element = group("VersioningConfiguration", &[text("MfaDelete"), text("Status")]);

/// Root of the document of each operation.
static ROOTS: [(Operation, Element); 18] = [
    (Operation::CompleteMultipartUpload, COMPLETE),
    (Operation::CreateBucket, CREATE_BUCKET),
    (Operation::DeleteObjects, DELETE),
    (Operation::PutBucketAcl, ACL),
    (Operation::PutBucketCors, CORS),
    (Operation::PutBucketEncryption, ENCRYPTION),
    (Operation::PutBucketLifecycleConfiguration, LIFECYCLE),
    (Operation::PutBucketLogging, LOGGING),
    (Operation::PutBucketNotificationConfiguration, NOTIFICATION),
    (Operation::PutBucketOwnershipControls, OWNERSHIP),
    (Operation::PutBucketTagging, TAGGING),
    (Operation::PutBucketVersioning, VERSIONING),
    (Operation::PutObjectAcl, ACL),
    (Operation::PutObjectLegalHold, LEGAL_HOLD),
    (Operation::PutObjectLockConfiguration, LOCK),
    (Operation::PutObjectRetention, RETENTION),
    (Operation::PutObjectTagging, TAGGING),
    (Operation::PutPublicAccessBlock, PUBLIC_ACCESS),
];

/// Root of an operation's document, if it has one.
pub(super) fn root_of(operation: Operation) -> Option<&'static Element> {
    ROOTS.iter().find(|(of, _)| *of == operation).map(|(_, root)| root)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::operation::{BodyKind, TABLE};

    #[test]
    fn every_operation_with_a_document_has_a_root() {
        let with_document = TABLE.iter().filter(|row| matches!(row.body, BodyKind::Xml { .. }));
        let mut names: Vec<&str> = with_document.map(|row| row.name).collect();
        names.sort_unstable();
        let roots: Vec<&str> = ROOTS.iter().map(|(operation, _)| operation.name()).collect();
        assert_eq!(names, roots);
    }

    #[test]
    fn parts_may_have_checksums_of_all_algorithms() {
        let part = root_of(Operation::CompleteMultipartUpload).unwrap().child("Part").unwrap();
        let Group(children) = part.kind else { panic!("a part holds elements") };
        let names = children.iter().filter(|child| child.name.starts_with("Checksum"));
        for child in names.clone() {
            assert!(
                crate::checksums::elements::of_element(child.name.as_bytes()).is_some(),
                "{}",
                child.name
            );
        }
        assert_eq!(names.count(), martlet_protocol::entry::ChecksumAlgorithm::ALL.len());
    }

    #[test]
    fn elements_are_found_where_they_belong() {
        let lifecycle = root_of(Operation::PutBucketLifecycleConfiguration).unwrap();
        let days = lifecycle.child("Rule").and_then(|rule| rule.child("Expiration")).unwrap();
        assert!(matches!(days.child("Days").unwrap().kind, Number));
        assert!(lifecycle.child("Days").is_none());
        assert!(root_of(Operation::GetObject).is_none());
    }
}
