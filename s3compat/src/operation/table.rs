//! Closed table of the supported operations.
//!
//! A request is exactly one of these operations, or none. A query key that is not in the
//! operation's row returns NotImplemented, so that no sub-resource falls through to another
//! operation.

use super::names::Operation;
use crate::messages;
use crate::refusal::Refusal;
use crate::target::Query;

/// Kind of resource that a path names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PathKind {
    /// The service itself.
    Service,
    /// A bucket.
    Bucket,
    /// An object.
    Object,
}

/// Handling of an operation's body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BodyKind {
    /// No body. A body that is sent is not read.
    Ignored,
    /// The body is stored, as a stream.
    Stream,
    /// The body is an XML document of limited length.
    Xml {
        /// Maximum length, in bytes.
        bytes_max: u64,
        /// True if `x-amz-checksum-*` headers describe the document, not the object.
        is_checked: bool,
    },
    /// The body is a text of limited length that is not XML.
    Text {
        /// Maximum length, in bytes.
        bytes_max: u64,
    },
}

/// Facts of an operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OperationRow {
    /// The operation.
    pub operation: Operation,
    /// S3's name of the operation.
    pub name: &'static str,
    /// HTTP method.
    pub method: &'static str,
    /// Kind of path.
    pub path: PathKind,
    /// Query keys that select the operation; `key=value` if the value matters.
    pub required: &'static [&'static str],
    /// Further query keys that the operation accepts.
    pub optional: &'static [&'static str],
    /// True if the operation copies: its requests have an `x-amz-copy-source`.
    pub is_copy: bool,
    /// Handling of the body.
    pub body: BodyKind,
}

const KIB: u64 = 1024;

/// Query key by which clients name the operation, for logs of their own.
pub(crate) const OPERATION_NAME: &str = "x-id";
/// Query keys of a GET that replace headers of its reply.
const OVERRIDES: [&str; 6] = [
    "response-cache-control",
    "response-content-disposition",
    "response-content-encoding",
    "response-content-language",
    "response-content-type",
    "response-expires",
];
const VERSION: &[&str] = &["versionId"];
const READ: &[&str] = &[
    "partNumber",
    "versionId",
    OVERRIDES[0],
    OVERRIDES[1],
    OVERRIDES[2],
    OVERRIDES[3],
    OVERRIDES[4],
    OVERRIDES[5],
];

/// An XML document of up to `bytes_max` bytes, which checksum headers describe.
const fn xml(bytes_max: u64) -> BodyKind {
    BodyKind::Xml { bytes_max, is_checked: true }
}

const fn row(
    operation: Operation,
    method: &'static str,
    path: PathKind,
    required: &'static [&'static str],
    optional: &'static [&'static str],
) -> OperationRow {
    let (name, body) = (operation.name(), BodyKind::Ignored);
    OperationRow { operation, name, method, path, required, optional, is_copy: false, body }
}

const fn with_body(row: OperationRow, body: BodyKind) -> OperationRow {
    OperationRow { body, ..row }
}

const fn copying(row: OperationRow) -> OperationRow {
    OperationRow { is_copy: true, ..row }
}

impl Operation {
    /// Facts of the operation.
    #[must_use]
    pub fn row(self) -> &'static OperationRow {
        &TABLE[self as usize]
    }
}

/// All operations. The first row that matches a request applies.
pub static TABLE: [OperationRow; Operation::COUNT] = {
    use Operation as O;
    use PathKind::{Bucket, Object, Service};
    [
        row(
            O::ListBuckets,
            "GET",
            Service,
            &[],
            &["prefix", "continuation-token", "max-buckets", "bucket-region"],
        ),
        row(O::HeadBucket, "HEAD", Bucket, &[], &[]),
        row(O::GetBucketLocation, "GET", Bucket, &["location"], &[]),
        row(
            O::ListMultipartUploads,
            "GET",
            Bucket,
            &["uploads"],
            &[
                "prefix",
                "delimiter",
                "key-marker",
                "upload-id-marker",
                "max-uploads",
                "encoding-type",
            ],
        ),
        row(
            O::ListObjectsV2,
            "GET",
            Bucket,
            &["list-type=2"],
            &[
                "prefix",
                "delimiter",
                "start-after",
                "allow-unordered",
                "continuation-token",
                "max-keys",
                "encoding-type",
                "fetch-owner",
            ],
        ),
        row(
            O::ListObjects,
            "GET",
            Bucket,
            &[],
            // A form's redirect may lead to the bucket, with the uploaded object in its query.
            &[
                "prefix",
                "delimiter",
                "marker",
                "max-keys",
                "encoding-type",
                "allow-unordered",
                "bucket",
                "key",
                "etag",
            ],
        ),
        with_body(row(O::CreateBucket, "PUT", Bucket, &[], &[]), xml(64 * KIB)),
        row(O::DeleteBucket, "DELETE", Bucket, &[], &[]),
        row(O::GetBucketPolicy, "GET", Bucket, &["policy"], &[]),
        row(O::GetBucketPolicyStatus, "GET", Bucket, &["policyStatus"], &[]),
        with_body(
            row(O::PutBucketPolicy, "PUT", Bucket, &["policy"], &[]),
            BodyKind::Text { bytes_max: 64 * KIB },
        ),
        row(O::DeleteBucketPolicy, "DELETE", Bucket, &["policy"], &[]),
        with_body(row(O::DeleteObjects, "POST", Bucket, &["delete"], &[]), xml(2 * KIB * KIB)),
        with_body(row(O::PostObject, "POST", Bucket, &[], &[]), BodyKind::Stream),
        row(O::GetBucketAcl, "GET", Bucket, &["acl"], &[]),
        with_body(row(O::PutBucketAcl, "PUT", Bucket, &["acl"], &[]), xml(64 * KIB)),
        row(O::GetBucketCors, "GET", Bucket, &["cors"], &[]),
        with_body(row(O::PutBucketCors, "PUT", Bucket, &["cors"], &[]), xml(64 * KIB)),
        row(O::DeleteBucketCors, "DELETE", Bucket, &["cors"], &[]),
        row(O::GetBucketEncryption, "GET", Bucket, &["encryption"], &[]),
        with_body(row(O::PutBucketEncryption, "PUT", Bucket, &["encryption"], &[]), xml(64 * KIB)),
        row(O::DeleteBucketEncryption, "DELETE", Bucket, &["encryption"], &[]),
        row(O::GetBucketLifecycleConfiguration, "GET", Bucket, &["lifecycle"], &[]),
        with_body(
            row(O::PutBucketLifecycleConfiguration, "PUT", Bucket, &["lifecycle"], &[]),
            xml(KIB * KIB),
        ),
        row(O::DeleteBucketLifecycle, "DELETE", Bucket, &["lifecycle"], &[]),
        row(O::GetBucketLogging, "GET", Bucket, &["logging"], &[]),
        with_body(row(O::PutBucketLogging, "PUT", Bucket, &["logging"], &[]), xml(64 * KIB)),
        row(O::GetBucketNotificationConfiguration, "GET", Bucket, &["notification"], &[]),
        with_body(
            row(O::PutBucketNotificationConfiguration, "PUT", Bucket, &["notification"], &[]),
            xml(256 * KIB),
        ),
        row(O::GetObjectLockConfiguration, "GET", Bucket, &["object-lock"], &[]),
        with_body(
            row(O::PutObjectLockConfiguration, "PUT", Bucket, &["object-lock"], &[]),
            xml(64 * KIB),
        ),
        row(O::GetBucketOwnershipControls, "GET", Bucket, &["ownershipControls"], &[]),
        with_body(
            row(O::PutBucketOwnershipControls, "PUT", Bucket, &["ownershipControls"], &[]),
            xml(64 * KIB),
        ),
        row(O::DeleteBucketOwnershipControls, "DELETE", Bucket, &["ownershipControls"], &[]),
        row(O::GetPublicAccessBlock, "GET", Bucket, &["publicAccessBlock"], &[]),
        with_body(
            row(O::PutPublicAccessBlock, "PUT", Bucket, &["publicAccessBlock"], &[]),
            xml(64 * KIB),
        ),
        row(O::DeletePublicAccessBlock, "DELETE", Bucket, &["publicAccessBlock"], &[]),
        row(O::GetBucketRequestPayment, "GET", Bucket, &["requestPayment"], &[]),
        row(O::GetBucketTagging, "GET", Bucket, &["tagging"], &[]),
        with_body(row(O::PutBucketTagging, "PUT", Bucket, &["tagging"], &[]), xml(64 * KIB)),
        row(O::DeleteBucketTagging, "DELETE", Bucket, &["tagging"], &[]),
        row(O::GetBucketVersioning, "GET", Bucket, &["versioning"], &[]),
        with_body(row(O::PutBucketVersioning, "PUT", Bucket, &["versioning"], &[]), xml(64 * KIB)),
        row(O::GetBucketCheckpoints, "GET", Bucket, &["checkpoints"], &[]),
        with_body(
            row(O::PutBucketCheckpoints, "PUT", Bucket, &["checkpoints"], &[]),
            BodyKind::Text { bytes_max: 48 * KIB },
        ),
        row(O::DeleteBucketCheckpoints, "DELETE", Bucket, &["checkpoints"], &[]),
        row(
            O::GetCheckpointRetention,
            "GET",
            Bucket,
            &["checkpoints", "retention"],
            &["prefix", "after"],
        ),
        row(O::GetCheckpoint, "GET", Bucket, &["checkpoint"], &[]),
        with_body(
            row(O::CommitCheckpoint, "POST", Bucket, &["checkpoint"], &["as"]),
            BodyKind::Text { bytes_max: 4 * KIB * KIB },
        ),
        row(O::HoldCheckpoint, "PUT", Bucket, &["checkpoint", "hold"], &["generation"]),
        row(O::DeleteCheckpoint, "DELETE", Bucket, &["checkpoint"], &["generation", "objects"]),
        row(
            O::ListObjectVersions,
            "GET",
            Bucket,
            &["versions"],
            &[
                "prefix",
                "delimiter",
                "key-marker",
                "version-id-marker",
                "max-keys",
                "encoding-type",
            ],
        ),
        row(O::HeadObject, "HEAD", Object, &[], READ),
        row(O::GetObjectAcl, "GET", Object, &["acl"], VERSION),
        with_body(row(O::PutObjectAcl, "PUT", Object, &["acl"], VERSION), xml(64 * KIB)),
        row(O::GetObjectAttributes, "GET", Object, &["attributes"], VERSION),
        row(O::GetObjectLegalHold, "GET", Object, &["legal-hold"], VERSION),
        with_body(
            row(O::PutObjectLegalHold, "PUT", Object, &["legal-hold"], VERSION),
            xml(64 * KIB),
        ),
        row(O::GetObjectRetention, "GET", Object, &["retention"], VERSION),
        with_body(
            row(O::PutObjectRetention, "PUT", Object, &["retention"], VERSION),
            xml(64 * KIB),
        ),
        row(O::GetObjectTagging, "GET", Object, &["tagging"], VERSION),
        row(
            O::ListParts,
            "GET",
            Object,
            &["uploadId"],
            &["max-parts", "part-number-marker", "encoding-type"],
        ),
        row(O::LocateObject, "GET", Object, &["locate"], VERSION),
        row(O::GetObject, "GET", Object, &[], READ),
        with_body(row(O::PutObjectTagging, "PUT", Object, &["tagging"], VERSION), xml(64 * KIB)),
        copying(row(O::UploadPartCopy, "PUT", Object, &["partNumber", "uploadId"], &[])),
        with_body(
            row(O::UploadPart, "PUT", Object, &["partNumber", "uploadId"], &[]),
            BodyKind::Stream,
        ),
        copying(row(O::CopyObject, "PUT", Object, &[], &[])),
        with_body(row(O::PutObject, "PUT", Object, &[], &[]), BodyKind::Stream),
        row(O::CreateMultipartUpload, "POST", Object, &["uploads"], &[]),
        with_body(
            row(O::CompleteMultipartUpload, "POST", Object, &["uploadId"], &[]),
            BodyKind::Xml { bytes_max: 4 * KIB * KIB, is_checked: false },
        ),
        row(O::DeleteObjectTagging, "DELETE", Object, &["tagging"], VERSION),
        row(O::AbortMultipartUpload, "DELETE", Object, &["uploadId"], &[]),
        row(O::DeleteObject, "DELETE", Object, &[], VERSION),
    ]
};

impl OperationRow {
    fn takes(&self, keys: &[(&str, &str)]) -> bool {
        let is_required = |name: &str| self.required.iter().any(|key| key_of(key) == name);
        let is_present = |key: &&str| match key.split_once('=') {
            None => keys.iter().any(|(name, _)| name == key),
            Some(pair) => keys.contains(&pair),
        };
        self.required.iter().all(is_present)
            && keys.iter().all(|(name, _)| is_required(name) || self.optional.contains(name))
    }
}

fn key_of(required: &'static str) -> &'static str {
    required.split_once('=').map_or(required, |(key, _)| key)
}

/// Returns true if a query key replaces a header of the reply.
pub(crate) fn is_override(name: &str) -> bool {
    OVERRIDES.contains(&name)
}

/// Finds the operation of a request. `query` has only the keys that are meant for operations: none
/// of the signature, and no [`OPERATION_NAME`].
pub(crate) fn find(
    method: &str,
    path: PathKind,
    is_copy: bool,
    query: &Query<'_>,
) -> Result<Operation, Refusal> {
    let keys: Vec<(&str, &str)> =
        query.pairs().iter().map(|pair| (&*pair.name, &*pair.value)).collect();
    let mut rows = TABLE
        .iter()
        // Texts are compared last.
        .filter(|row| row.path == path && row.is_copy == is_copy && row.method == method);
    if let Some(row) = rows.find(|row| row.takes(&keys)) {
        return Ok(row.operation);
    }
    let is_known = matches!(method, "GET" | "HEAD" | "PUT" | "POST" | "DELETE" | "OPTIONS");
    let is_bare = keys.is_empty() && !is_copy && method != "OPTIONS"
        || method == "PUT" && path == PathKind::Object && matches!(keys[..], [("uploadId", _)]);
    if !is_known || is_bare {
        return Err(messages::METHOD_NOT_ALLOWED.refusal().with_detail("Method", method));
    }
    let strange = keys.iter().find(|(name, _)| name.starts_with("response-") && !is_override(name));
    if let Some((name, value)) = strange.filter(|_| matches!(method, "GET" | "HEAD")) {
        return Err(messages::OVERRIDE.named(name).with_detail("ArgumentValue", *value));
    }
    Err(misfit(method, path, is_copy, &keys))
}

/// Refusal of a request that is none of the operations, with S3's error.
fn misfit(method: &str, path: PathKind, is_copy: bool, keys: &[(&str, &str)]) -> Refusal {
    use PathKind::Object;
    let has = |name: &str| keys.iter().any(|(key, _)| *key == name);
    match (method, path) {
        _ if is_copy && (method != "PUT" || path != Object) => {
            messages::COPY_SOURCE_STRAY.named("x-amz-copy-source")
        }
        ("PUT", Object) if has("partNumber") && !has("uploadId") && keys.len() == 1 => {
            messages::PART_WITHOUT_UPLOAD.named("partNumber")
        }
        ("GET", Object) if has("uploads") => messages::UPLOADS_OF_KEY.refusal(),
        ("GET", Object) if has("versions") => messages::VERSIONS_OF_KEY.refusal(),
        _ => {
            let names: Vec<&str> = keys.iter().map(|(name, _)| *name).collect();
            messages::NOT_IMPLEMENTED
                .refusal()
                .with_detail("Method", method)
                .with_detail("QueryParameters", names.join(" "))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::refusal::Code;

    fn name(method: &str, path: PathKind, query: &str) -> Result<&'static str, Code> {
        find(method, path, false, &Query::parse(query).unwrap())
            .map(Operation::name)
            .map_err(|refusal| refusal.code)
    }

    #[test]
    fn every_row_is_reached() {
        for (row, operation) in TABLE.iter().zip(Operation::ALL) {
            assert_eq!((row.operation, operation.row()), (*operation, row));
            let query = Query::parse("").unwrap();
            let keys = row.required.join("&");
            let query = if keys.is_empty() { query } else { Query::parse(&keys).unwrap() };
            let found = find(row.method, row.path, row.is_copy, &query).unwrap();
            assert_eq!(found, row.operation);
        }
    }

    #[test]
    fn nothing_falls_through() {
        use PathKind::{Bucket, Object, Service};
        for (method, path, query) in [
            ("DELETE", Bucket, "acl"),
            ("DELETE", Bucket, "replication"),
            ("PUT", Object, "renameObject"),
            ("PUT", Object, "acl&partNumber=1"),
            ("PUT", Object, "tagging&uploadId=1"),
            ("DELETE", Bucket, "versioning"),
            ("PUT", Object, "versionId=null"),
            ("GET", Object, "torrent"),
            ("PUT", Bucket, "replication"),
            ("DELETE", Bucket, "versions"),
            ("GET", Bucket, "list-type=3"),
            ("GET", Bucket, "location&uploads"),
            ("GET", Service, "events"),
            ("POST", Object, "select&select-type=2"),
            ("POST", Object, "restore"),
            ("DELETE", Object, "versionId=1&uploadId=1"),
            ("DELETE", Object, "tagging&uploadId=1"),
            ("OPTIONS", Object, ""),
            ("GET", Object, "Tagging"),
        ] {
            assert_eq!(name(method, path, query), Err(Code::NotImplemented), "{method} ?{query}");
        }
        for (method, path) in
            [("PATCH", Object), ("POST", Object), ("HEAD", Service), ("PUT", Service)]
        {
            assert_eq!(name(method, path, ""), Err(Code::MethodNotAllowed), "{method}");
        }
    }

    #[test]
    fn unknown_operations_get_s3s_error_code() {
        use PathKind::Object;
        for (method, query, code) in [
            ("PUT", "partNumber=1", Code::InvalidArgument),
            ("PUT", "uploadId=1", Code::MethodNotAllowed),
            ("GET", "uploads", Code::InvalidRequest),
            ("GET", "versions&prefix=a", Code::InvalidRequest),
        ] {
            assert_eq!(name(method, Object, query), Err(code), "{method} ?{query}");
        }
    }

    #[test]
    fn a_copy_is_never_a_put() {
        let none = Query::default();
        let found = |is_copy| find("PUT", PathKind::Object, is_copy, &none).unwrap().name();
        assert_eq!((found(true), found(false)), ("CopyObject", "PutObject"));
        let get = find("GET", PathKind::Object, true, &none);
        assert_eq!(get.unwrap_err().code, Code::InvalidArgument);
    }

    #[test]
    fn queries_pick_their_operation() {
        use PathKind::{Bucket, Object};
        assert_eq!(name("GET", Bucket, "list-type=2&prefix=a"), Ok("ListObjectsV2"));
        assert_eq!(name("GET", Bucket, "prefix=a&max-keys=3"), Ok("ListObjects"));
        assert_eq!(name("GET", Bucket, "delimiter=/&list-type=1"), Err(Code::NotImplemented));
        assert_eq!(name("GET", Object, "partNumber=1"), Ok("GetObject"));
        assert_eq!(name("GET", Object, "response-x=1&versionId=a"), Err(Code::InvalidArgument));
        assert_eq!(name("PUT", Object, "response-x=1"), Err(Code::NotImplemented));
        assert_eq!(name("GET", Object, "uploadId=1"), Ok("ListParts"));
        assert_eq!(name("PUT", Object, "uploadId=1&partNumber=2"), Ok("UploadPart"));
    }

    /// Operations in `docs/S3.md`, with their sorted query keys.
    fn documented() -> Vec<(&'static str, Vec<&'static str>)> {
        let page = include_str!("../../../docs/S3.md");
        let table = page.lines().skip_while(|line| !line.starts_with("| operation")).skip(2);
        let rows = table.take_while(|line| line.starts_with('|'));
        let row = |line: &'static str| {
            let mut cells = line.trim_matches('|').split('|').map(str::trim);
            let name = cells.next().unwrap_or_default();
            let mut keys: Vec<&str> = cells
                .next()
                .unwrap_or_default()
                .split_whitespace()
                .map(|key| key.trim_matches('`'))
                .collect();
            keys.sort_unstable();
            (name, keys)
        };
        let mut rows: Vec<_> = rows.map(row).collect();
        rows.sort_unstable();
        rows
    }

    #[test]
    fn the_documentation_lists_what_is_there() {
        let keys = |row: &OperationRow| {
            let keys = row.required.iter().chain(row.optional);
            let mut keys: Vec<_> =
                keys.map(|key| if is_override(key) { "response-*" } else { key }).collect();
            keys.sort_unstable();
            keys.dedup();
            keys
        };
        let mut rows: Vec<_> = TABLE.iter().map(|row| (row.name, keys(row))).collect();
        rows.sort_unstable();
        assert_eq!(documented(), rows);
    }
}
