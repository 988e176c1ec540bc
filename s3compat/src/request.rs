//! One request, from the HTTP pipeline to its operation.
//!
//! The pipeline decides everything about a request once, and passes the decisions on as one typed
//! value. Nothing about a request travels in untyped extensions, except what the server adds to
//! the HTTP request: [`Peer`] and [`TlsParameters`].

use std::fmt;
use std::net::IpAddr;
use std::sync::Arc;

use bytes::Bytes;
use http::{Extensions, HeaderMap};

use crate::access::AclUse;
use crate::auth::{Identity, Mechanism, RequestTarget};
use crate::body::RequestBody;
use crate::decode::BodyFacts;
use crate::encryption::Encryption;
use crate::events::EventSink;
use crate::http::{FormReply, Operation};
use crate::limits::documents::DocumentMemory;
use crate::ops::Authorization;
use crate::service::{Peer, TlsParameters};

/// Connection of a request.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Connection {
    /// Address of the client.
    pub(crate) peer: Option<IpAddr>,
    /// None without TLS.
    pub(crate) tls: Option<TlsParameters>,
}

impl Connection {
    /// Reads what the server added to a request.
    pub(crate) fn of(extensions: &Extensions) -> Self {
        let peer = extensions.get().map(|Peer(address)| *address);
        Self { peer, tls: extensions.get().copied() }
    }
}

/// State that a request shares with the observers of its reply.
#[derive(Clone, Debug, Default)]
pub(crate) struct Observation {
    /// Records that an access control list admitted the request.
    pub(crate) acl_use: AclUse,
    /// Receiver of events, for requests that configure targets.
    pub(crate) sink: Option<Arc<dyn EventSink>>,
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
    pub(crate) target: RequestTarget,
    /// Query of the operation as received, without keys of the signature.
    pub(crate) raw_query: String,
    pub(crate) headers: HeaderMap,
    /// None for operations without a document.
    pub(crate) document: Option<Document>,
    /// Encryption headers, whose keys are removed from `headers`.
    pub(crate) encryption: Option<Encryption>,
    /// Rights of the request, once access is checked. None for operations without a bucket.
    pub(crate) authorization: Option<Authorization>,
}

/// A request that has passed the HTTP pipeline.
#[derive(Debug)]
pub(crate) struct PreparedRequest {
    pub(crate) head: OperationRequest,
    /// Body that the operation stores.
    pub(crate) body: RequestBody,
    /// Reply that the form of the request asks for.
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
            target,
            raw_query,
            headers,
            document: None,
            encryption: None,
            authorization: None,
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

    /// Key of the request. Operations of the table on an object have one.
    pub(crate) fn key(&self) -> &str {
        self.target.key().unwrap_or_default()
    }
}
