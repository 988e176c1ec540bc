//! Policy context of a request, from its head.

use http::HeaderMap;
use martlet_proxy::{ETagCondition, ReadConditions};
use percent_encoding::percent_decode_str;
use s3s::S3Result;

use super::acl::GRANTS;
use crate::access::{Context, RequestTraits};
use crate::attributes::tags_of;
use crate::auth::Mechanism;
use crate::authorization::{add_connection, add_time};
use crate::lock;
use crate::operation::Operation;
use crate::request::OperationRequest;
use crate::target::Query;

/// Canned lists that change nothing: the owner's rights stay as they are.
const PLAIN_ACLS: [&str; 2] = ["private", "bucket-owner-full-control"];
/// Operations that give an object, or a bucket, the properties that their headers name. For any other, such
/// headers mean nothing: they must not meet a condition.
const GIVE_PROPERTIES: [Operation; 7] = [
    Operation::CopyObject,
    Operation::CreateBucket,
    Operation::CreateMultipartUpload,
    Operation::PostObject,
    Operation::PutBucketAcl,
    Operation::PutObject,
    Operation::PutObjectAcl,
];
/// Operations on parts of an upload. The object's attributes were set when the upload began.
const OF_PARTS: [Operation; 3] =
    [Operation::UploadPart, Operation::UploadPartCopy, Operation::CompleteMultipartUpload];

/// Head of a request.
#[derive(Clone, Copy, Debug)]
pub(super) struct PolicyRequest<'a> {
    pub(super) operation: Operation,
    pub(super) headers: &'a HeaderMap,
    pub(super) query: &'a str,
}

impl<'a> PolicyRequest<'a> {
    /// Head of a request.
    pub(super) fn of(request: &'a OperationRequest) -> Self {
        let OperationRequest { headers, raw_query: query, .. } = request;
        Self { operation: request.operation(), headers, query }
    }

    fn header(&self, name: &str) -> Option<&'a str> {
        self.headers.get(name)?.to_str().ok()
    }

    /// Properties of the request that decide which actions it needs. One pass over the headers costs
    /// less than a search for each of these names.
    pub(super) fn case(&self) -> S3Result<RequestTraits> {
        let names_version =
            !self.query.is_empty() && Query::parse(self.query)?.get("versionId").is_some();
        let mut traits = RequestTraits { names_version, ..RequestTraits::default() };
        for (name, value) in self.headers {
            let name = name.as_str();
            if !name.starts_with("x-amz-") {
                continue;
            }
            match (name, value.to_str()) {
                // Copies need the permission for named tags even if they do not replace the
                // source's tags.
                ("x-amz-tagging", _) => {
                    traits.sets_tags = tags_of(self.headers)?.is_some_and(|tags| !tags.is_empty());
                }
                ("x-amz-acl", Ok(acl)) => traits.sets_acl |= !PLAIN_ACLS.contains(&acl),
                ("x-amz-object-lock-mode" | "x-amz-object-lock-retain-until-date", Ok(_)) => {
                    traits.sets_retention = true;
                }
                ("x-amz-object-lock-legal-hold", Ok(_)) => traits.sets_legal_hold = true,
                ("x-amz-bypass-governance-retention", Ok(text)) => {
                    traits.bypasses_governance |= text.eq_ignore_ascii_case("true");
                }
                (name, _) => traits.sets_acl |= GRANTS.iter().any(|(grant, _)| *grant == name),
            }
        }
        Ok(traits)
    }

    /// Tags that the headers set. A copy sets tags only with the directive REPLACE.
    fn new_tags(&self) -> S3Result<Option<Vec<(String, String)>>> {
        if self.operation == Operation::CopyObject
            && self.header("x-amz-tagging-directive") != Some("REPLACE")
        {
            return Ok(None);
        }
        tags_of(self.headers)
    }

    /// Values for the conditions of policies.
    pub(super) fn context(&self, now_ms: u64) -> S3Result<Context> {
        let query = Query::parse(self.query)?;
        let mut context = Context::default();
        context.read(|name| self.headers.get(name)?.to_str().ok(), |name| query.get(name));
        if let Some(version) = query.get("versionId") {
            context.add("s3:VersionId", version);
        }
        if let Some(source) = self.header("x-amz-copy-source") {
            context.add("s3:x-amz-copy-source", source_of(source));
        }
        if GIVE_PROPERTIES.contains(&self.operation) {
            if let Some(tags) = self.new_tags()? {
                context.set_tags(tags.iter().map(|(name, value)| (name.as_str(), value.as_str())));
            }
            lock::add_remaining_days(&mut context, self.headers, now_ms);
        } else {
            context.forget_new_objects();
        }
        if OF_PARTS.contains(&self.operation) {
            context.set_part();
        }
        add_time(&mut context, now_ms);
        Ok(context)
    }
}

/// Bucket and key of a copy's source, percent-decoded. Keys may contain question marks.
fn source_of(header: &str) -> String {
    let path = header.split_once("?versionId=").map_or(header, |(path, _)| path);
    let path = percent_decode_str(path).decode_utf8_lossy();
    path.strip_prefix('/').unwrap_or(&path).to_owned()
}

/// Adds the connection, the signature's kind and the conditions of a request.
pub(super) fn add_request(context: &mut Context, request: &OperationRequest) {
    add_connection(context, request.context.connection);
    if request.operation() == Operation::PostObject {
        context.add("s3:authType", "POST");
    }
    add_mechanism(context, request.context.mechanism);
    add_conditions(context, &request.conditions().conditions);
}

/// Adds the kind of the signature.
fn add_mechanism(context: &mut Context, mechanism: Mechanism) {
    let (kind, version) = match mechanism {
        Mechanism::None => return,
        Mechanism::Header => ("REST-HEADER", "AWS4-HMAC-SHA256"),
        Mechanism::Query => ("REST-QUERY-STRING", "AWS4-HMAC-SHA256"),
        Mechanism::HeaderV2 => ("REST-HEADER", "AWS"),
        Mechanism::QueryV2 => ("REST-QUERY-STRING", "AWS"),
    };
    context.add("s3:authType", kind);
    context.add("s3:signatureversion", version);
}

/// Adds the conditions on entity tags.
fn add_conditions(context: &mut Context, conditions: &ReadConditions) {
    add_tags(context, "s3:if-match", conditions.if_match.as_ref());
    add_tags(context, "s3:if-none-match", conditions.if_none_match.as_ref());
}

/// Adds the entity tags of a condition.
fn add_tags(context: &mut Context, key: &str, condition: Option<&ETagCondition>) {
    match condition {
        None => {}
        Some(ETagCondition::Any) => context.add(key, "*"),
        Some(ETagCondition::OneOf(tags)) => {
            for tag in tags {
                context.add(key, tag);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use http::{HeaderName, HeaderValue};
    use martlet_protocol::http::{TlsParameters, TlsVersion};

    use super::*;
    use crate::connection::Connection;
    use crate::request_headers::ParsedHeaders;

    fn headers(pairs: &[(&'static str, &'static str)]) -> HeaderMap {
        let pair = |(name, value): &(&'static str, &'static str)| {
            (HeaderName::from_static(name), HeaderValue::from_static(value))
        };
        pairs.iter().map(pair).collect()
    }

    fn case(operation: Operation, pairs: &[(&'static str, &'static str)]) -> RequestTraits {
        PolicyRequest { operation, headers: &headers(pairs), query: "" }.case().unwrap()
    }

    #[test]
    fn headers_decide_which_actions_it_is() {
        let tags = ("x-amz-tagging", "a=b");
        assert!(case(Operation::PutObject, &[tags]).sets_tags);
        assert!(!case(Operation::PutObject, &[("x-amz-tagging", "")]).sets_tags);
        assert!(case(Operation::CopyObject, &[tags]).sets_tags);
        assert!(
            case(Operation::CopyObject, &[tags, ("x-amz-tagging-directive", "REPLACE")]).sets_tags
        );
        assert!(case(Operation::PutObject, &[("x-amz-acl", "public-read")]).sets_acl);
        assert!(!case(Operation::PutObject, &[("x-amz-acl", "private")]).sets_acl);
        assert!(case(Operation::PutObject, &[("x-amz-grant-write-acp", "id=1")]).sets_acl);
        assert!(
            case(Operation::PutObject, &[("x-amz-object-lock-mode", "GOVERNANCE")]).sets_retention
        );
        let bypass = ("x-amz-bypass-governance-retention", "True");
        assert!(case(Operation::DeleteObject, &[bypass]).bypasses_governance);
        let none = HeaderMap::new();
        let version =
            PolicyRequest { operation: Operation::GetObject, headers: &none, query: "versionId=3" };
        assert!(version.case().unwrap().names_version);
        assert_eq!(source_of("bkt/a?b%3Fc?versionId=3"), "bkt/a?b?c");
        let broken = headers(&[("x-amz-tagging", "a=b&a=c")]);
        assert!(
            PolicyRequest { operation: Operation::PutObject, headers: &broken, query: "" }
                .case()
                .is_err()
        );
    }

    const LOCKED: &str = "x-amz-object-lock-legal-hold";

    #[test]
    fn request_heads_become_policy_context() {
        let headers = headers(&[
            ("x-amz-copy-source", "/bkt/a%20b?versionId=3"),
            ("x-amz-tagging", "a=b"),
            ("referer", "https://example.com/"),
        ]);
        let policy_request = PolicyRequest {
            operation: Operation::PutObject,
            headers: &headers,
            query: "prefix=a%2F&x",
        };
        let expected = Context::default()
            .with("aws:Referer", "https://example.com/")
            .with("s3:prefix", "a/")
            .with("s3:x-amz-copy-source", "bkt/a b")
            .with("s3:RequestObjectTag/a", "b")
            .with("s3:RequestObjectTagKeys", "a")
            .with("aws:CurrentTime", "2026-01-01T00:00:00Z")
            .with("aws:EpochTime", "1767225600");
        assert_eq!(policy_request.context(1_767_225_600_000).unwrap(), expected);
        let mut part = PolicyRequest { operation: Operation::UploadPart, ..policy_request }
            .context(0)
            .unwrap();
        assert_ne!(part, Context::default());
        for operation in [Operation::GetObject, Operation::PutObjectTagging, Operation::UploadPart]
        {
            let head = [("x-amz-tagging", "a=b"), ("x-amz-acl", "private"), (LOCKED, "ON")];
            let headers = &self::headers(&head);
            let mut context =
                PolicyRequest { operation, headers, query: "" }.context(1_767_225_600_000).unwrap();
            context.forget("aws:CurrentTime");
            context.forget("aws:EpochTime");
            let mut expected = Context::default();
            if operation == Operation::UploadPart {
                expected.set_part();
            }
            assert_eq!(context, expected, "{operation:?} makes no object");
        }
        part = Context::default();
        let peer = Some("::ffff:192.0.2.7".parse().unwrap());
        add_connection(&mut part, Connection { peer, tls: None });
        add_mechanism(&mut part, Mechanism::QueryV2);
        add_conditions(&mut part, &headers_of_conditions().conditions);
        let expected = Context::default()
            .with("aws:SourceIp", "192.0.2.7")
            .with("aws:SecureTransport", "false")
            .with("s3:authType", "REST-QUERY-STRING")
            .with("s3:signatureversion", "AWS")
            .with("s3:if-none-match", "*");
        assert_eq!(part, expected);
        part = Context::default();
        let tls = Some(TlsParameters { version: TlsVersion::V1_2, cipher: None });
        add_connection(&mut part, Connection { peer: None, tls });
        let secure =
            Context::default().with("aws:SecureTransport", "true").with("s3:TlsVersion", "1.2");
        assert_eq!(part, secure);
    }

    fn headers_of_conditions() -> ParsedHeaders {
        ParsedHeaders::parse(&headers(&[("if-none-match", "*")]))
    }
}
