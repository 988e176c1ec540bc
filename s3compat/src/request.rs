//! One request, from the HTTP pipeline to its operation.
//!
//! The pipeline decides everything about a request once, and passes the decisions on as one typed
//! value. Nothing about a request travels in untyped extensions, except what the server adds to
//! the HTTP request: the address of the client and the parameters of TLS.

use std::fmt;
use std::sync::{Arc, OnceLock};

use bytes::Bytes;
use http::HeaderMap;
use martlet_protocol::entry::Bucket;
use martlet_proxy::ObjectName;
use s3s::xml::Deserialize;
use s3s::{S3ErrorCode, S3Result};

use crate::access::{AclUse, Identity};
use crate::auth::Mechanism;
use crate::authorization::Authorization;
use crate::body::RequestBody;
use crate::connection::Connection;
use crate::decode::BodyFacts;
use crate::encryption::Encryption;
use crate::errors::denied;
use crate::events::EventSink;
use crate::fields;
use crate::form_reply::FormReply;
use crate::limits::documents::DocumentMemory;
use crate::operation::Operation;
use crate::request_headers::ParsedHeaders;
use crate::target::{Query, RequestTarget};
use crate::version_ids::named;
use crate::view::View;

/// State that a request shares with the observers of its reply.
#[derive(Clone, Debug, Default)]
pub(crate) struct Observation {
    /// Records that an access control list admitted the request.
    pub(crate) acl_use: AclUse,
    /// Receiver of events, for requests that configure targets.
    pub(crate) sink: Option<Arc<dyn EventSink>>,
    bucket: Arc<OnceLock<Arc<Bucket>>>,
}

impl Observation {
    /// An observation for receivers of events at `sink`.
    pub(crate) fn of(sink: Option<Arc<dyn EventSink>>) -> Self {
        Self { sink, acl_use: AclUse::recorded(), ..Self::default() }
    }

    /// Keeps the bucket of the request.
    pub(crate) fn note_bucket(&self, bucket: &Arc<Bucket>) {
        self.bucket.get_or_init(|| bucket.clone());
    }

    /// The bucket of the request. None if the request was refused before its bucket was looked up.
    pub(crate) fn bucket(&self) -> Option<&Arc<Bucket>> {
        self.bucket.get()
    }
}

/// Decisions of the HTTP pipeline about a request.
#[derive(Clone, Debug)]
pub(crate) struct RequestContext {
    pub(crate) operation: Operation,
    pub(crate) identity: Identity,
    pub(crate) mechanism: Mechanism,
    /// Facts about the body: announced ones, and its trailers after its end.
    pub(crate) facts: Arc<BodyFacts>,
    pub(crate) connection: Connection,
    pub(crate) observation: Observation,
}

/// Document of a request, and the memory that it holds until the request ends.
pub(crate) struct Document {
    bytes: Bytes,
    _memory: DocumentMemory,
}

impl Document {
    pub(crate) fn new(bytes: Bytes, memory: DocumentMemory) -> Self {
        Self { bytes, _memory: memory }
    }
}

impl fmt::Debug for OperationRequest {
    /// Customers' keys are among the headers, so only operation and target are shown.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { context, target, .. } = self;
        f.debug_struct("OperationRequest")
            .field("operation", &context.operation)
            .field("target", target)
            .finish_non_exhaustive()
    }
}

/// Head of a request, and its document if its operation reads one.
pub(crate) struct OperationRequest {
    pub(crate) context: RequestContext,
    /// Target as the client named it; of a view, as the view means it.
    pub(crate) target: Arc<RequestTarget>,
    /// Query of the operation as received, without keys of the signature.
    pub(crate) raw_query: String,
    pub(crate) headers: HeaderMap,
    /// None for operations without a document.
    pub(crate) document: Option<Document>,
    /// Encryption headers, whose keys are removed from `headers`.
    pub(crate) encryption: Option<Encryption>,
    /// Rights of the request, once access is checked. None for operations without a bucket.
    pub(crate) authorization: Option<Authorization>,
    /// The view that the request is of; none for the bucket itself.
    pub(crate) view: Option<View>,
}

/// A request that has passed the HTTP pipeline.
#[derive(Debug)]
pub(crate) struct PreparedRequest {
    pub(crate) head: OperationRequest,
    /// Body that the operation stores.
    pub(crate) body: RequestBody,
    /// Reply that the form of the request names.
    pub(crate) form: Option<FormReply>,
}

impl OperationRequest {
    /// Creates a request without a document.
    pub(crate) fn new(
        context: RequestContext,
        target: RequestTarget,
        raw_query: String,
        headers: HeaderMap,
    ) -> Self {
        Self {
            context,
            target: Arc::new(target),
            raw_query,
            headers,
            document: None,
            encryption: None,
            authorization: None,
            view: None,
        }
    }

    /// Operation of the request.
    pub(crate) fn operation(&self) -> Operation {
        self.context.operation
    }

    /// Document of the request. Empty for operations without one.
    pub(crate) fn document(&self) -> &[u8] {
        self.document.as_ref().map_or(&[], |document| &document.bytes)
    }

    /// Bucket of the request. Operations of the table on a bucket or an object have one.
    pub(crate) fn bucket(&self) -> &str {
        self.target.bucket().unwrap_or_default()
    }

    /// Returns true if the request reads an object of the view.
    pub(crate) fn reads_view(&self) -> bool {
        let reads = [Operation::GetObject, Operation::HeadObject, Operation::LocateObject];
        self.view.is_some() && reads.contains(&self.operation())
    }

    /// Bucket as the client named it: the bucket, or its view.
    pub(crate) fn shown_bucket(&self) -> &str {
        self.view.as_ref().map_or_else(|| self.bucket(), |view| &view.bucket)
    }

    /// Key of the request. Operations of the table on an object have one.
    pub(crate) fn key(&self) -> &str {
        self.target.key().unwrap_or_default()
    }

    /// Query of the operation. The HTTP pipeline has parsed it before.
    pub(crate) fn query(&self) -> S3Result<Query<'_>> {
        Ok(Query::parse(&self.raw_query)?)
    }

    /// Object that the request names: its key, and the version in its query.
    pub(crate) fn object_name(&self) -> S3Result<ObjectName<'_>> {
        if self.raw_query.is_empty() {
            return Ok(ObjectName { key: self.key(), version: None });
        }
        named(self.key(), self.query()?.get("versionId"))
    }

    /// Conditions, range and expiration in the headers.
    pub(crate) fn conditions(&self) -> ParsedHeaders {
        ParsedHeaders::parse(&self.headers)
    }

    /// Refuses all conditions, for operations that evaluate none.
    pub(crate) fn refuse_conditions(&self) -> S3Result<()> {
        self.conditions().refuse_conditions()
    }

    /// Rights of the request. Refuses requests that skipped the access check.
    pub(crate) fn authorization(&self) -> S3Result<&Authorization> {
        self.authorization.as_ref().ok_or_else(denied)
    }

    /// Document that the operation requires.
    pub(crate) fn parse_document<T: for<'xml> Deserialize<'xml>>(&self) -> S3Result<T> {
        self.parse_optional_document()?.ok_or_else(|| S3ErrorCode::MissingRequestBodyError.into())
    }

    /// As [`parse_document`](Self::parse_document), but a missing document counts as malformed.
    pub(crate) fn parse_whole_document<T: for<'xml> Deserialize<'xml>>(&self) -> S3Result<T> {
        self.parse_optional_document()?.ok_or_else(|| S3ErrorCode::MalformedXML.into())
    }

    /// Document of the request, if it has one.
    pub(crate) fn parse_optional_document<T: for<'xml> Deserialize<'xml>>(
        &self,
    ) -> S3Result<Option<T>> {
        let document = self.document();
        if document.is_empty() { Ok(None) } else { fields::parse(document).map(Some) }
    }
}
