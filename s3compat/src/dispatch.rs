//! Dispatch of requests to operations.
//!
//! The HTTP pipeline has decided the operation of a request. This module opens the request's
//! session, checks access, runs the operation, and completes its reply:
//!
//! ```text
//! PreparedRequest ─▶ session ─▶ bucket name ─▶ access ─▶ keys ─▶ operation ─▶ Reply
//!                                                 │                  │
//!                     Reply ◀─ error document ◀───┴── concealment ◀──┘
//! ```
//!
//! s3s contributes the types of S3's documents and their XML. Routing, headers, access checks and
//! replies are decided here and in `http`, once for each request.
//!
//! Invariants:
//! * An operation runs only after its access check. An operation whose check needs the document
//!   parses the document first, and checks before it calls the store.
//! * Each reply that reached a session reports the consistency of that session, errors included.

use std::sync::{Arc, OnceLock};

use futures::future::BoxFuture;
use martlet_protocol::Clock;
use martlet_proxy::{ObjectStore, Session};
use s3s::{S3Error, S3ErrorCode, S3Result};

use crate::body::RequestBody;
use crate::change_log::{ChangeLog, RecordedChange, recorded};
use crate::consistency;
use crate::encryption::Encryption;
use crate::http::OperationHandler;
use crate::in_place::InPlaceConfig;
use crate::ops::{AccessCheck, Operations, conceal, enter_view, unlock};
use crate::rdma;
use crate::refusal::{DETAIL, detail};
use crate::reply::Reply;
use crate::request::{OperationRequest, PreparedRequest};
use crate::token::TokenKey;

/// Runs the operations of prepared requests. Cheap to clone.
#[derive(Clone)]
pub(crate) struct Dispatcher(Arc<DispatcherState>);

struct DispatcherState {
    store: ObjectStore,
    clock: Arc<dyn Clock>,
    /// Region that this store reports to clients.
    region: Arc<str>,
    tokens: TokenKey,
    in_place: OnceLock<InPlaceConfig>,
    /// Log of changes of buckets, if the process keeps one.
    changes: OnceLock<Arc<dyn ChangeLog>>,
}

impl std::fmt::Debug for Dispatcher {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Dispatcher")
    }
}

impl Dispatcher {
    pub(crate) fn new(
        store: ObjectStore,
        region: Arc<str>,
        tokens: TokenKey,
        clock: Arc<dyn Clock>,
    ) -> Self {
        let (in_place, changes) = (OnceLock::new(), OnceLock::new());
        Self(Arc::new(DispatcherState { store, clock, region, tokens, in_place, changes }))
    }

    /// Lets clients read in place. Only the first call has an effect.
    pub(crate) fn set_in_place(&self, config: InPlaceConfig) {
        let _ = self.0.in_place.set(config);
    }

    /// Records changes of buckets. Only the first call has an effect.
    pub(crate) fn set_change_log(&self, log: Arc<dyn ChangeLog>) {
        let _ = self.0.changes.set(log);
    }

    /// Answers a request. A change of a bucket is recorded.
    async fn answer_recorded(&self, request: PreparedRequest) -> Reply {
        let log = self.0.changes.get();
        let change = log.and_then(|log| Some((log, RecordedChange::of(&request.head)?)));
        let Some((log, change)) = change else { return self.answer(request).await };
        let dispatcher = self.clone();
        let answer = move |request| async move { dispatcher.answer(request).await };
        Box::pin(recorded(log.clone(), change, request, answer)).await
    }

    async fn answer(&self, request: PreparedRequest) -> Reply {
        let PreparedRequest { mut head, body, form: _ } = request;
        head.encryption = Encryption::take(&mut head.headers);
        let session = match consistency::requested(&head.headers) {
            Ok(options) => self.0.store.session(options),
            Err(error) => return error.into(),
        };
        let mut reply = match self.run(&session, &mut head, body).await {
            Ok(reply) => reply,
            Err(error) => refusal(error, &head),
        };
        if let Some(encrypted) = session.encrypted().filter(|_| reply.status.is_success()) {
            Encryption::add_headers(head.encryption.as_ref(), encrypted, &mut reply.headers);
        }
        consistency::add_headers(&mut reply.headers, session.given());
        rdma::decline(head.operation(), &head.headers, &mut reply.headers);
        reply
    }

    /// Checks access, and runs the operation.
    async fn run(
        &self,
        session: &Session,
        request: &mut OperationRequest,
        body: RequestBody,
    ) -> S3Result<Reply> {
        enter_view(request, session).await?;
        if let Some(bucket) = request.target.bucket()
            && !s3s::path::check_bucket_name(bucket)
        {
            return Err(S3ErrorCode::InvalidBucketName.into());
        }
        let clock = &*self.0.clock;
        let guarded = AccessCheck { session, clock }.check(request).await?;
        if let Some(view) = &request.view {
            request.raw_query.clone_from(&view.query);
        }
        let store = guarded.unwrap_or_else(|| session.clone());
        unlock(request, &store)?;
        let operations = Operations {
            store,
            clock: self.0.clock.clone(),
            region: self.0.region.clone(),
            tokens: self.0.tokens.clone(),
            in_place: self.0.in_place.get().cloned(),
        };
        let outcome = operations.call(request, body).await;
        conceal(request.authorization.as_ref(), outcome).await
    }
}

impl OperationHandler for Dispatcher {
    fn handle(&self, request: PreparedRequest) -> BoxFuture<'_, Reply> {
        Box::pin(self.answer_recorded(request))
    }
}

/// Reply to a request whose operation failed. Names the missing resource, except for copies, which
/// have two objects.
fn refusal(error: S3Error, request: &OperationRequest) -> Reply {
    let missing = match error.code() {
        _ if request.operation().row().is_copy => None,
        S3ErrorCode::NoSuchBucket => Some(("BucketName", request.bucket().to_owned())),
        S3ErrorCode::NoSuchKey => Some(("Key", request.key().to_owned())),
        S3ErrorCode::NoSuchUpload => {
            let query = request.query().ok();
            let id = query.as_ref().and_then(|query| query.get("uploadId"));
            id.map(|id| ("UploadId", id.to_owned()))
        }
        _ => None,
    };
    let mut reply = Reply::from(error);
    if let Some((name, text)) = missing {
        reply.headers.append(DETAIL, detail(name, text));
    }
    reply
}
