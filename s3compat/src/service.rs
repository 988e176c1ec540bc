//! The S3 service: the HTTP pipeline, the dispatch to operations, and the observers of replies.
//!
//! ```text
//! request ─▶ HttpService ─▶ Dispatcher ─▶ Operations ─▶ ObjectStore
//!                │
//! reply  ◀───────┴──▶ RequestObserver
//! ```

use std::convert::Infallible;
use std::sync::Arc;

use bytes::Bytes;
use futures::future::BoxFuture;
use http::{Request, Response};
use martlet_protocol::Clock;
use martlet_proxy::ObjectStore;

use crate::auth::{Keys, UNNAMED_REGION};
use crate::body::ResponseBody;
use crate::change_log::ChangeLog;
use crate::dispatch::Dispatcher;
use crate::http::{HttpConfig, HttpService};
use crate::in_place::InPlaceConfig;
use crate::limits::{QueueFigures, WaitingKey};
use crate::ops::{BucketCorsRules, StoreAnonymousCheck};
use crate::request::Observation;
use crate::request_observer::{Observers, RequestObserver};
use crate::sts::{self, Claims, TokenRefusal};
use crate::token::TokenKey;

/// S3 service over the buckets and objects of a store. Cheap to clone; one service serves all
/// connections.
#[derive(Clone, Debug)]
pub struct S3Service {
    http: HttpService<Dispatcher>,
    dispatcher: Dispatcher,
    observer: RequestObserver,
}

impl S3Service {
    /// Creates a service over `store` for the holders of `keys`. Buckets are in the first region of
    /// the configuration. `tokens` creates and verifies continuation tokens.
    pub fn new(
        store: ObjectStore,
        config: HttpConfig,
        clock: Arc<dyn Clock>,
        keys: Keys,
        tokens: TokenKey,
    ) -> Self {
        let region = config.auth.regions.first().map_or(UNNAMED_REGION, String::as_str);
        let cors = Arc::new(BucketCorsRules(store.clone()));
        let anonymous_check = Arc::new(StoreAnonymousCheck(store.clone()));
        let region: Arc<str> = region.into();
        let observer = RequestObserver::new(store.clone(), region.clone(), clock.clone());
        let dispatcher = Dispatcher::new(store, region, tokens, clock.clone());
        let http = HttpService::new(config, clock, keys, Some(cors), dispatcher.clone())
            .checked_by(anonymous_check);
        Self { http, dispatcher, observer }
    }

    /// Lets clients read in place, where nodes have data ports.
    #[must_use]
    pub fn reading_in_place(self, config: InPlaceConfig) -> Self {
        self.dispatcher.set_in_place(config);
        self
    }

    /// Records requests that make, delete or configure buckets, or the keys of users.
    #[must_use]
    pub fn recording_changes(self, log: Arc<dyn ChangeLog>) -> Self {
        self.http.set_change_log(log.clone());
        self.dispatcher.set_change_log(log);
        self
    }

    /// Sets the receivers of events and logs.
    #[must_use]
    pub fn observed_by(mut self, observers: Observers) -> Self {
        self.observer.observers = observers;
        self
    }

    /// Verifies a token of an identity provider, as `AssumeRoleWithWebIdentity` does.
    ///
    /// # Errors
    /// The token is not of a known provider, not for this store, or not valid now.
    pub async fn verify_token(&self, token: &str) -> Result<Claims, TokenRefusal> {
        sts::verify_token(self.http.authenticator(), token).await
    }

    /// Counters of the requests that wait for a turn, by kind.
    pub fn queue_figures(&self) -> [QueueFigures; 3] {
        self.http.queue_figures()
    }

    /// The keys with the most requests that wait for a turn; at most 16.
    pub fn waiting_keys(&self) -> Vec<WaitingKey> {
        self.http.waiting_keys()
    }

    /// Answers one request. Dropping the future early abandons the request: no write becomes
    /// visible without an acknowledgement.
    pub async fn call<B>(&self, request: Request<B>) -> Response<ResponseBody>
    where
        B: http_body::Body<Data = Bytes> + Send + Unpin + 'static,
        B::Error: std::fmt::Display,
    {
        let seen = self.observer.see(&request);
        let observation =
            seen.as_ref().map_or_else(Observation::default, |it| it.observation.clone());
        let mut response = self.http.answer_observed(request, observation).await;
        if let Some(seen) = seen {
            self.observer.notify(&self.http, seen, &mut response).await;
        }
        response
    }
}

impl<B> hyper::service::Service<Request<B>> for S3Service
where
    B: http_body::Body<Data = Bytes> + Send + Unpin + 'static,
    B::Error: std::fmt::Display,
{
    type Response = Response<ResponseBody>;
    type Error = Infallible;
    type Future = BoxFuture<'static, Result<Self::Response, Infallible>>;

    fn call(&self, request: Request<B>) -> Self::Future {
        let service = self.clone();
        Box::pin(async move { Ok(service.call(request).await) })
    }
}
