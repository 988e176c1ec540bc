//! Preparation of a request for its operation.

use std::sync::Arc;

use bytes::Bytes;
use http::header::{
    AUTHORIZATION, CONTENT_ENCODING, CONTENT_LENGTH, HeaderMap, HeaderName, HeaderValue,
    TRANSFER_ENCODING,
};
use http::{Method, Request, Uri};
use martlet_protocol::http::with_request;
use martlet_protocol::limits::PUT_BYTES_MAX;

use super::admission::{Admission, RequestName};
use super::checksum::content_md5;
use super::form::{self, ReceivedForm};
use super::pipeline_state::{Arrival, PipelineError, RequestPipeline, number};
use super::{features, numbers};
use crate::access::Identity;
use crate::auth::{Caller, Mechanism, Payload, RequestHead, signs_v2, single_header};
use crate::body::RequestBody;
use crate::checksums;
use crate::connection::Connection;
use crate::decode::{BodyFacts, BodyPlan, ChunkDecoder, DecodedBody, Framing, PollFlag};
use crate::limits::RequestKind;
use crate::messages;
use crate::operation::{BodyKind, OPERATION_NAME, Operation, PathKind, find, is_override};
use crate::rdma;
use crate::refusal::Refusal;
use crate::request::{OperationRequest, PreparedRequest, RequestContext};
use crate::target::{Query, RequestTarget};

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

/// A request that has passed the checks on its head. Only its body is left.
struct CheckedHead {
    identity: Identity,
    mechanism: Mechanism,
    operation: Operation,
    target: RequestTarget,
    /// Query of the operation.
    query: String,
    plan: Option<BodyPlan>,
}

impl RequestPipeline {
    /// Returns the request in the form that its operation expects. No part of its body is awaited
    /// before it has a turn of its principal: slow senders hold only turns of their own.
    pub(super) async fn prepare<B>(
        &self,
        request: Request<B>,
        arrival: Arrival,
        admission: &mut Admission,
    ) -> Result<PreparedRequest, PipelineError>
    where
        B: http_body::Body<Data = Bytes> + Send + Unpin + 'static,
        B::Error: std::fmt::Display,
    {
        let (mut parts, body) = request.into_parts();
        if form::is_form(&parts.method, &parts.headers)
            && let Some(target) = self.form_target(&parts)?
        {
            let form = ReceivedForm { target, parts, body, arrival };
            return Box::pin(self.prepare_form(form, admission)).await;
        }
        let connection = Connection::of(&parts.extensions);
        let query = parts.uri.query().unwrap_or_default();
        let caller = self.authenticator.caller(&parts.headers, query, connection.peer).await?;
        let passed = self.pass(&parts.method, &parts.uri, &mut parts.headers, &caller)?;
        let name = RequestName { method: &parts.method, uri: &parts.uri, headers: &parts.headers };
        admission.admit(&passed.identity, RequestKind::of(passed.operation), name).await?;
        self.check_anonymous_document(&passed, &arrival.id).await?;
        let CheckedHead { identity, mechanism, operation, target, query, plan } = passed;
        let facts = plan.as_ref().map(|plan| plan.facts.clone()).unwrap_or_default();
        let observation = arrival.observation;
        let context = RequestContext {
            operation,
            identity,
            mechanism,
            facts: facts.clone(),
            connection,
            observation,
        };
        let mut head = OperationRequest::new(context, target, query, parts.headers);
        let mut stored = RequestBody::default();
        let kind = operation.row().body;
        // An empty body without an announced length is no empty object: something removed the
        // headers.
        if kind == BodyKind::Stream && facts.length().is_none() && body.is_end_stream() {
            return Err(no_length().into());
        }
        match plan.map(|plan| DecodedBody::new(body, BodyPlan { polled: arrival.polled, ..plan })) {
            Some(body) if kind == BodyKind::Stream => stored = RequestBody::new(body),
            Some(body) => Box::pin(self.read_document(body, &mut head)).await?,
            None => drop(head.headers.remove(CONTENT_LENGTH)),
        }
        Ok(PreparedRequest { head, body: stored, form: None })
    }

    /// Makes all decisions that do not need the body.
    fn pass(
        &self,
        method: &Method,
        uri: &Uri,
        headers: &mut HeaderMap,
        caller: &Caller,
    ) -> Result<CheckedHead, Refusal> {
        let target = self.target(uri, headers)?;
        let mut query = Query::parse(uri.query().unwrap_or_default())?;
        let raw_path = uri.path();
        let head = RequestHead { method, raw_path, target: &target, query: &query, headers };
        let authenticated = self.authenticator.authenticate(&head, caller)?;
        let mechanism = authenticated.mechanism;
        if authenticated.identity == Identity::Anonymous && !self.config.allow_anonymous {
            return Err(messages::ACCESS_DENIED.refusal());
        }
        promote_query_headers(&query, mechanism, headers)?;
        query.retain(|name| !is_ours(name, mechanism));
        let operation = operation(method, &target, &query, headers, mechanism)?;
        numbers::check(&query)?;
        if operation == Operation::PostObject {
            return Err(form::not_a_form());
        }
        features::check(headers)?;
        features::check_operation(operation, headers)?;
        features::check_source(headers)?;
        let plan = self.plan(operation, authenticated.payload, headers)?;
        rdma::check(operation, headers)?;
        let query = query.to_raw();
        for name in SPENT {
            headers.remove(name);
        }
        let identity = authenticated.identity;
        Ok(CheckedHead { identity, mechanism, operation, target, query, plan })
    }

    /// Refuses an anonymous document that nothing could allow, before its body is read.
    async fn check_anonymous_document(
        &self,
        passed: &CheckedHead,
        id: &HeaderValue,
    ) -> Result<(), Refusal> {
        let is_document =
            matches!(passed.operation.row().body, BodyKind::Xml { .. } | BodyKind::Text { .. });
        match self.anonymous_check.get() {
            Some(anonymous_check) if is_document && passed.identity == Identity::Anonymous => {
                let checked =
                    anonymous_check.check_anonymous(passed.operation, passed.target.bucket());
                Box::pin(with_request(id.clone(), checked)).await
            }
            _ => Ok(()),
        }
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
            let length = number(headers, &DECODED_LENGTH);
            Some(length.ok().flatten().ok_or_else(no_length)?)
        } else {
            number(headers, &CONTENT_LENGTH)?
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
        let polled = PollFlag::default();
        Ok(Some(BodyPlan { framing, facts: Arc::new(facts), patience, polled }))
    }
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
    is_of_amazon(name) && !V4_KEYS.contains(&name)
}

/// Returns true for keys of a SigV4 signature, and for headers.
fn is_of_amazon(name: &str) -> bool {
    name.get(..6).is_some_and(|start| start.eq_ignore_ascii_case("x-amz-"))
}

/// Returns true if a query key is not meant for the operation: it is of the signature, a header, or
/// the name of the operation.
fn is_ours(name: &str, mechanism: Mechanism) -> bool {
    let is_of_signature = match mechanism {
        Mechanism::Query => is_of_amazon(name),
        Mechanism::QueryV2 => V2_KEYS.contains(&name),
        Mechanism::None | Mechanism::Header | Mechanism::HeaderV2 => false,
    };
    is_of_signature || name == OPERATION_NAME
}

const COPY_SOURCE: HeaderName = HeaderName::from_static("x-amz-copy-source");
const DECODED_LENGTH: HeaderName = HeaderName::from_static("x-amz-decoded-content-length");

/// Operation of a request. `query` has only the keys that are meant for operations.
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
    let is_copy = headers.contains_key(COPY_SOURCE);
    let operation = find(method.as_str(), path, is_copy, query)?;
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
