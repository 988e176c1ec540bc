//! Preparation of a request for its operation.

use std::net::IpAddr;
use std::str::FromStr;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use bytes::Bytes;
use http::header::{
    AUTHORIZATION, CONTENT_ENCODING, CONTENT_LENGTH, HOST, HeaderMap, HeaderName, HeaderValue,
    TRANSFER_ENCODING,
};
use http::request::Parts;
use http::{Method, Request, Uri};
use martlet_protocol::limits::PUT_BYTES_MAX;
use s3s::Body;

use super::anonymous_check::AnonymousCheck;
use super::checksum::{check_checksums, check_md5, content_md5};
use super::config::HttpConfig;
use super::operation::Operation;
use super::reply::RequestId;
use super::table::{BodyKind, PathKind, find, is_override};
use super::{features, form, host, numbers, schema, xml};
use crate::auth::{
    Authenticator, Caller, Identity, Mechanism, Payload, Query, Refusal, RequestHead,
    RequestTarget, signs_v2, single_header,
};
use crate::checksums::{self, carried};
use crate::decode::{BodyError, BodyFacts, BodyPlan, ChunkDecoder, DecodedBody, Framing};
use crate::limits::LimitReason;
use crate::limits::documents::Documents;
use crate::messages;
use crate::service::Peer;

/// Query keys of a SigV4 signature.
const V4_KEYS: [&str; 8] = [
    "X-Amz-Algorithm",
    "X-Amz-Content-Sha256",
    "X-Amz-Credential",
    "X-Amz-Date",
    "X-Amz-Expires",
    "X-Amz-Security-Token",
    "X-Amz-Signature",
    "X-Amz-SignedHeaders",
];
/// Query keys of a SigV2 signature.
const V2_KEYS: [&str; 4] = ["AWSAccessKeyId", "Expires", "Signature", "x-amz-security-token"];
/// Payload hash of a body without a digest or signature.
const UNSIGNED_PAYLOAD: &str = "UNSIGNED-PAYLOAD";
/// Query key that changes the form of a listing, but not its content.
const ANOTHER_FORM: &str = "list-type=2";
/// Headers that operations no longer need.
const SPENT: [HeaderName; 7] = [
    AUTHORIZATION,
    TRANSFER_ENCODING,
    HeaderName::from_static("x-amz-content-sha256"),
    HeaderName::from_static("x-amz-date"),
    HeaderName::from_static("x-amz-decoded-content-length"),
    HeaderName::from_static("x-amz-security-token"),
    HeaderName::from_static("x-amz-trailer"),
];
/// Maximum number of trailers: more than there are checksums.
const TRAILERS_MAX: usize = 16;

/// Checks requests, and converts them to the form that operations expect.
#[derive(Debug)]
pub(super) struct RequestPipeline {
    pub(super) authenticator: Authenticator,
    pub(super) config: HttpConfig,
    /// Memory for bodies that are read whole.
    pub(super) documents: Documents,
    /// Early access check. If unset, no document is refused by its head alone.
    pub(super) judge: OnceLock<Arc<dyn AnonymousCheck>>,
}

/// Reason for which a request does not reach its operation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum PipelineError {
    /// The request is invalid or not allowed.
    Refused(Refusal),
    /// The request may be retried, after this time if known.
    Limited(LimitReason, Option<Duration>),
}

impl From<Refusal> for PipelineError {
    fn from(refusal: Refusal) -> Self {
        Self::Refused(refusal)
    }
}

impl From<BodyError> for PipelineError {
    fn from(error: BodyError) -> Self {
        match error {
            BodyError::NoMemory => Self::Limited(LimitReason::Overload, None),
            error => Self::Refused(error.into()),
        }
    }
}

/// Function that counts a request for its principal, in place of the principal before.
pub(super) type AdmissionCheck<'a> =
    &'a mut (dyn FnMut(&Identity) -> Result<(), PipelineError> + Send);

/// Document of a request, for operations that read more of it than s3s does.
#[derive(Clone, Debug)]
pub(crate) struct RequestDocument(pub(crate) Bytes);

/// A request that has passed the checks on its head. Only its body is left.
pub(super) struct CheckedHead {
    pub(super) identity: Identity,
    mechanism: Mechanism,
    pub(super) operation: Operation,
    plan: Option<BodyPlan>,
    pub(super) bucket: Option<String>,
}

impl RequestPipeline {
    pub(super) fn new(authenticator: Authenticator, config: HttpConfig) -> Self {
        let documents = Documents::new(config.document_bytes_max);
        Self { authenticator, config, documents, judge: OnceLock::new() }
    }

    /// Returns the request in the form that its operation expects. No part of its body is awaited
    /// before `admit` has counted it for its principal: slow senders hold only turns of their own.
    pub(super) async fn prepare<B>(
        &self,
        request: Request<B>,
        id: RequestId,
        admit: AdmissionCheck<'_>,
    ) -> Result<Request<Body>, PipelineError>
    where
        B: http_body::Body<Data = Bytes> + Send + Unpin + 'static,
        B::Error: std::fmt::Display,
    {
        let (mut parts, body) = request.into_parts();
        if form::is_form(&parts.method, &parts.headers)
            && let Some(to) = self.form_target(&parts)?
        {
            return self.prepare_form(to, (parts, body), (id, admit)).await;
        }
        let peer = peer_of(&parts);
        let query = parts.uri.query().unwrap_or_default();
        let caller = self.authenticator.caller(&parts.headers, query, peer).await?;
        let passed = self.pass(&parts.method, &mut parts.uri, &mut parts.headers, &caller)?;
        admit(&passed.identity)?;
        self.check_anonymous_document(&passed, id).await?;
        let facts = passed.plan.as_ref().map(|plan| plan.facts.clone()).unwrap_or_default();
        // An empty body without an announced length is no empty object: something removed the
        // headers.
        if passed.operation.row().body == BodyKind::Stream
            && facts.length().is_none()
            && body.is_end_stream()
        {
            return Err(no_length().into());
        }
        let body = match (passed.operation.row().body, passed.plan) {
            (BodyKind::Stream, Some(plan)) => Body::http_body_unsync(DecodedBody::new(body, plan)),
            (BodyKind::Xml { bytes_max, is_checked }, Some(plan)) => {
                let body = DecodedBody::new(body, plan);
                let document = self.collect(body, bytes_max, &mut parts, &passed.identity).await?;
                check_bytes(&document, is_checked, &facts, &parts.headers)?;
                let document = plain_document(document, passed.operation)?;
                if passed.operation == Operation::CreateBucket {
                    parts.extensions.insert(RequestDocument(document.clone()));
                }
                parts.headers.insert(CONTENT_LENGTH, HeaderValue::from(document.len()));
                Body::from(document)
            }
            (BodyKind::Text { bytes_max }, Some(plan)) => {
                let body = DecodedBody::new(body, plan);
                let text = self.collect(body, bytes_max, &mut parts, &passed.identity).await?;
                check_bytes(&text, true, &facts, &parts.headers)?;
                parts.headers.insert(CONTENT_LENGTH, HeaderValue::from(text.len()));
                Body::from(text)
            }
            _ => {
                parts.headers.remove(CONTENT_LENGTH);
                Body::empty()
            }
        };
        parts.extensions.insert(passed.identity);
        parts.extensions.insert(passed.mechanism);
        parts.extensions.insert(passed.operation);
        parts.extensions.insert(facts);
        parts.extensions.insert(id);
        Ok(Request::from_parts(parts, body))
    }

    /// Makes all decisions that do not need the body.
    fn pass(
        &self,
        method: &Method,
        uri: &mut Uri,
        headers: &mut HeaderMap,
        caller: &Caller,
    ) -> Result<CheckedHead, Refusal> {
        let target = self.target(uri, headers)?;
        let query = Query::parse(uri.query().unwrap_or_default())?;
        let raw_path = uri.path();
        let head = RequestHead { method, raw_path, target: &target, query: &query, headers };
        let authenticated = self.authenticator.authenticate(&head, caller)?;
        let mechanism = authenticated.mechanism;
        if authenticated.identity == Identity::Anonymous && !self.config.allow_anonymous {
            return Err(messages::ACCESS_DENIED.refusal());
        }
        promote_query_headers(&query, mechanism, headers)?;
        let operation = operation(method, &target, &query, headers, mechanism)?;
        numbers::check(&query)?;
        if operation == Operation::PostObject {
            return Err(form::not_a_form());
        }
        features::check(headers)?;
        features::check_operation(operation, headers)?;
        features::check_source(headers)?;
        let plan = self.plan(operation, authenticated.payload, headers)?;
        let inner_uri = rewrite(uri, &target, &query, mechanism)?;
        if let Some(inner_uri) = inner_uri {
            *uri = inner_uri;
        }
        for name in SPENT {
            headers.remove(name);
        }
        let (identity, bucket) = (authenticated.identity, target.bucket().map(str::to_owned));
        Ok(CheckedHead { identity, mechanism, operation, plan, bucket })
    }

    /// Bucket and key of a request.
    pub(super) fn target(&self, uri: &Uri, headers: &HeaderMap) -> Result<RequestTarget, Refusal> {
        self.check_header_bytes(headers)?;
        let bucket = match single_header(headers, HOST.as_str())? {
            Some(host) => host::bucket_of(host, &self.config.domains),
            None => return Err(messages::HOST_MISSING.refusal()),
        };
        RequestTarget::parse(uri.path(), bucket.as_deref())
    }

    fn check_header_bytes(&self, headers: &HeaderMap) -> Result<(), Refusal> {
        let bytes: usize =
            headers.iter().map(|(name, value)| name.as_str().len() + value.len()).sum();
        if bytes <= self.config.header_bytes_max {
            return Ok(());
        }
        Err(messages::HEADER_SECTION
            .refusal()
            .with_detail("MaxSizeAllowed", self.config.header_bytes_max.to_string()))
    }

    /// Plans the handling of the body, and corrects the headers that describe it.
    fn plan(
        &self,
        operation: Operation,
        payload: Payload,
        headers: &mut HeaderMap,
    ) -> Result<Option<BodyPlan>, Refusal> {
        let is_chunked = matches!(payload, Payload::Chunked { .. });
        let kind = operation.row().body;
        strip_chunked(headers, &payload, kind)?;
        if kind == BodyKind::Ignored {
            return Ok(None);
        }
        let length = if is_chunked {
            let length = number(headers, "x-amz-decoded-content-length");
            Some(length.ok().flatten().ok_or_else(no_length)?)
        } else {
            number(headers, CONTENT_LENGTH.as_str())?
        };
        if let Some(length) = length.filter(|length| *length > PUT_BYTES_MAX) {
            return Err(messages::ENTITY_TOO_LARGE
                .refusal()
                .with_detail("ProposedSize", length.to_string())
                .with_detail("MaxSizeAllowed", PUT_BYTES_MAX.to_string()));
        }
        match length {
            Some(length) => headers.insert(CONTENT_LENGTH, HeaderValue::from(length)),
            None => headers.remove(CONTENT_LENGTH),
        };
        let declared = declared_trailers(headers)?;
        if !is_chunked && !declared.is_empty() {
            return Err(messages::TRAILER_NAME.refusal());
        }
        let (framing, declared) = match payload {
            Payload::Unsigned => (Framing::Plain, None),
            Payload::Sha256(digest) => (Framing::Hashed(digest), None),
            Payload::Chunked { signer, has_trailer } => {
                let declared = has_trailer.then_some(declared);
                let decoder = ChunkDecoder::new(signer.map(|signer| *signer), declared.clone());
                (Framing::Chunked(Box::new(decoder)), declared)
            }
        };
        let facts = BodyFacts::new(length, content_md5(headers)?, declared.unwrap_or_default());
        let patience = self.config.patience();
        Ok(Some(BodyPlan { framing, facts: Arc::new(facts), patience }))
    }
}

/// Inspects a document, and converts it to a form that s3s can parse.
fn plain_document(document: Bytes, operation: Operation) -> Result<Bytes, Refusal> {
    if document.is_empty() {
        return Ok(document);
    }
    let has_carried = xml::inspect(&document, schema::root_of(operation))?;
    let document = xml::spell_out(document);
    match std::str::from_utf8(&document) {
        Ok(text) if has_carried => Ok(Bytes::from(carried::insert_values(text))),
        _ => Ok(document),
    }
}

/// Address of the client, from the connection.
pub(super) fn peer_of(parts: &Parts) -> Option<IpAddr> {
    parts.extensions.get().map(|Peer(address)| *address)
}

/// Adds the headers in a presigned link's query to the request's headers. They were signed.
fn promote_query_headers(
    query: &Query<'_>,
    mechanism: Mechanism,
    headers: &mut HeaderMap,
) -> Result<(), Refusal> {
    if mechanism != Mechanism::Query {
        return Ok(());
    }
    for pair in query.pairs().iter().filter(|pair| is_hoisted(&pair.name)) {
        let malformed = || messages::LINK_HEADER.named(&pair.name);
        let name = HeaderName::from_bytes(pair.name.as_bytes()).map_err(|_| malformed())?;
        let value = HeaderValue::from_bytes(pair.value.as_bytes()).map_err(|_| malformed())?;
        match headers.get(&name) {
            Some(given) if *given != value => return Err(malformed()),
            _ => headers.insert(name, value),
        };
    }
    Ok(())
}

fn is_hoisted(name: &str) -> bool {
    name.get(..6).is_some_and(|start| start.eq_ignore_ascii_case("x-amz-"))
        && !V4_KEYS.contains(&name)
}

/// Returns true if a query key is not meant for the operation.
fn is_ours(name: &str, mechanism: Mechanism) -> bool {
    let is_of_signature = match mechanism {
        Mechanism::Query => V4_KEYS.contains(&name) || is_hoisted(name),
        Mechanism::QueryV2 => V2_KEYS.contains(&name),
        Mechanism::None | Mechanism::Header | Mechanism::HeaderV2 => false,
    };
    is_of_signature || name == "x-id"
}

fn operation(
    method: &Method,
    target: &RequestTarget,
    query: &Query<'_>,
    headers: &HeaderMap,
    mechanism: Mechanism,
) -> Result<Operation, Refusal> {
    let path = match (target.bucket(), target.key()) {
        (None, _) => PathKind::Service,
        (Some(_), None) => PathKind::Bucket,
        (Some(_), Some(_)) => PathKind::Object,
    };
    let is_copy = headers.contains_key("x-amz-copy-source");
    let ours = |name: &str| is_ours(name, mechanism);
    let operation = find(method.as_str(), path, is_copy, query, ours)?;
    if mechanism == Mechanism::QueryV2 {
        check_link(operation)?;
    }
    if mechanism == Mechanism::None && query.pairs().iter().any(|pair| is_override(&pair.name)) {
        return Err(messages::OVERRIDE_ANONYMOUS.refusal());
    }
    Ok(operation)
}

/// Refuses operations that a link of Version 2 does not cover. Its holder could otherwise add an
/// unsigned query key, and so run another operation on the object.
fn check_link(operation: Operation) -> Result<(), Refusal> {
    let is_covered = |key: &&&str| signs_v2(key) || **key == ANOTHER_FORM;
    match operation.row().required.iter().find(|key| !is_covered(key)) {
        None => Ok(()),
        Some(key) => Err(messages::LINK_V2.named(key)),
    }
}

/// Rewrites the URI to `/bucket/key` and the operation's query. None if it has that form already.
fn rewrite(
    uri: &Uri,
    target: &RequestTarget,
    query: &Query<'_>,
    mechanism: Mechanism,
) -> Result<Option<Uri>, Refusal> {
    let is_ours = |name: &str| is_ours(name, mechanism);
    let is_plain = uri.authority().is_none()
        && uri.path() == target.path()
        && !query.pairs().iter().any(|pair| is_ours(&pair.name));
    if is_plain {
        return Ok(None);
    }
    let mut text = String::with_capacity(target.path().len() + 64);
    text.push_str(target.path());
    let mut separator = '?';
    for pair in query.pairs().iter().filter(|pair| !is_ours(&pair.name)) {
        text.push(separator);
        text.push_str(pair.raw);
        separator = '&';
    }
    let uri = Uri::from_str(&text);
    uri.map(Some).map_err(|_| messages::INVALID_URI.refusal())
}

/// Removes `aws-chunked` from Content-Encoding, and keeps the rest. A stored body that is not
/// chunked keeps the name, as in S3.
fn strip_chunked(
    headers: &mut HeaderMap,
    payload: &Payload,
    body: BodyKind,
) -> Result<(), Refusal> {
    let Some(value) = headers.get(CONTENT_ENCODING) else { return Ok(()) };
    let text = value.to_str().unwrap_or_default();
    let is_named = |coding: &&str| coding.trim().eq_ignore_ascii_case("aws-chunked");
    if !text.split(',').any(|coding| is_named(&coding)) {
        return Ok(());
    }
    let is_chunked = matches!(payload, Payload::Chunked { .. });
    let is_stream = body == BodyKind::Stream;
    if is_stream && headers.get("x-amz-content-sha256").is_some_and(|it| it == UNSIGNED_PAYLOAD) {
        return Err(messages::UNSIGNED_CHUNKED.argument("Content-Encoding", text));
    }
    // The name alone frames nothing. But framing must never be stored as data, and framed bodies
    // announce their decoded length or their trailers.
    let is_framed = ["x-amz-decoded-content-length", "x-amz-trailer"]
        .iter()
        .any(|name| headers.contains_key(*name));
    if is_framed && !is_chunked {
        return Err(messages::CHUNKED_UNSAID.refusal());
    }
    if is_stream && !is_chunked {
        return Ok(());
    }
    let rest: Vec<&str> = text.split(',').filter(|c| !is_named(c)).collect();
    let rest = rest.join(",");
    match HeaderValue::from_str(rest.trim()) {
        Ok(value) if !rest.is_empty() => headers.insert(CONTENT_ENCODING, value),
        _ => headers.remove(CONTENT_ENCODING),
    };
    Ok(())
}

fn no_length() -> Refusal {
    messages::MISSING_LENGTH.refusal()
}

/// Parses a header that is a number.
pub(super) fn number(headers: &HeaderMap, name: &'static str) -> Result<Option<u64>, Refusal> {
    let Some(text) = single_header(headers, name)? else { return Ok(None) };
    let is_number = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    let number = text.parse().ok().filter(|_| is_number);
    number.map(Some).ok_or_else(|| messages::LENGTH.argument(name, text))
}

/// Parses the names in `x-amz-trailer`.
fn declared_trailers(headers: &HeaderMap) -> Result<Vec<HeaderName>, Refusal> {
    let Some(text) = single_header(headers, "x-amz-trailer")? else { return Ok(Vec::new()) };
    let names = text.split(',').map(str::trim).filter(|name| !name.is_empty());
    let names: Result<Vec<HeaderName>, _> =
        names.map(|name| HeaderName::from_bytes(name.as_bytes())).collect();
    match names {
        Ok(names)
            if names.len() <= TRAILERS_MAX
                && names.iter().all(|name| checksums::of_header(name.as_str()).is_some()) =>
        {
            Ok(names)
        }
        _ => Err(messages::TRAILER_NAME.refusal()),
    }
}

/// Compares a body that was read whole with its announced digests.
fn check_bytes(
    bytes: &[u8],
    is_checked: bool,
    facts: &BodyFacts,
    headers: &HeaderMap,
) -> Result<(), Refusal> {
    check_md5(bytes, facts.content_md5())?;
    if is_checked { check_checksums(bytes, headers, facts.trailers()) } else { Ok(()) }
}
