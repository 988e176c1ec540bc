//! The S3 service: the HTTP pipeline, s3s's routing and XML, and the operations.
//!
//! ```text
//! request ─▶ Door ─▶ lenient headers removed ─▶ s3s ─▶ Operations ─▶ ObjectStore
//! ```

use std::convert::Infallible;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use futures::future::BoxFuture;
use http::header::CONTENT_LENGTH;
use http::{Request, Response};
use martlet_protocol::Clock;
pub(crate) use martlet_protocol::http::{Peer, TlsParameters, TlsVersion};
use martlet_proxy::{Ask, ObjectStore};
use s3s::Body;
use s3s::config::{S3Config, StaticConfigProvider};
use s3s::service::{S3Service as Routes, S3ServiceBuilder};

use crate::auth::{Keys, UNNAMED_REGION};
use crate::checksums::carried::{self, CarriedValues};
use crate::consistency;
use crate::encryption::Encryption;
use crate::errors::internal;
use crate::http::{GuardedBody, HttpConfig, HttpService};
use crate::not_found;
use crate::ops::{
    BareTags, BucketCorsRules, NoSecrets, Operations, PolicyAccess, ReplyStatus,
    StoreAnonymousCheck,
};
use crate::request_headers::ParsedHeaders;
use crate::request_observer::{Observers, RequestObserver};
use crate::token::TokenKey;

/// Limit of an XML body, in bytes. Enough for 10,000 parts with checksums, or for 1,000 fully
/// escaped keys of 1,024 bytes.
const XML_BYTES_MAX: usize = 8 * 1024 * 1024;

/// S3 service over the buckets and objects of a store. Cheap to clone; one service serves all
/// connections.
#[derive(Clone, Debug)]
pub struct S3Service {
    http: HttpService<RoutedService>,
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
        let judge = Arc::new(StoreAnonymousCheck(store.clone()));
        let observer = RequestObserver::new(store.clone(), region.into(), clock.clone());
        let inner = RoutedService::new(store, region, tokens, clock.clone());
        let http = HttpService::new(config, clock, keys, Some(cors), inner).checked_by(judge);
        Self { http, observer }
    }

    /// Sets the receivers of events and logs.
    #[must_use]
    pub fn observed_by(mut self, observers: Observers) -> Self {
        self.observer.observers = observers;
        self
    }

    /// Answers one request. Dropping the future early abandons the request: no write becomes
    /// visible without an acknowledgement.
    pub async fn call<B>(&self, mut request: Request<B>) -> Response<GuardedBody>
    where
        B: http_body::Body<Data = Bytes> + Send + Unpin + 'static,
        B::Error: std::fmt::Display,
    {
        let seen = self.observer.see(&self.http, &mut request);
        let mut response = self.http.answer(request).await;
        if let Some(seen) = seen {
            self.observer.notify(seen, &mut response).await;
        }
        response
    }
}

impl<B> hyper::service::Service<Request<B>> for S3Service
where
    B: http_body::Body<Data = Bytes> + Send + Unpin + 'static,
    B::Error: std::fmt::Display,
{
    type Response = Response<GuardedBody>;
    type Error = Infallible;
    type Future = BoxFuture<'static, Result<Self::Response, Infallible>>;

    fn call(&self, request: Request<B>) -> Self::Future {
        let service = self.clone();
        Box::pin(async move { Ok(service.call(request).await) })
    }
}

/// The service behind the HTTP pipeline.
#[derive(Clone, Debug)]
struct RoutedService {
    store: ObjectStore,
    routes: Routes,
}

impl RoutedService {
    fn new(store: ObjectStore, region: &str, tokens: TokenKey, clock: Arc<dyn Clock>) -> Self {
        let access = PolicyAccess { store: store.clone(), clock };
        let mut builder = S3ServiceBuilder::new(Operations {
            store: store.session(Ask::default()),
            region: region.into(),
            tokens,
        });
        // s3s checks access only if authentication is configured.
        builder.set_auth(NoSecrets);
        builder.set_access(access);
        let mut config = S3Config::default();
        config.xml_max_body_size = XML_BYTES_MAX;
        builder.set_config(Arc::new(StaticConfigProvider::new(Arc::new(config))));
        Self { store, routes: builder.build() }
    }

    async fn answer(self, mut request: Request<Body>) -> Response<Body> {
        let parsed = ParsedHeaders::take(request.headers_mut());
        request.extensions_mut().insert(parsed);
        let encryption = Encryption::take(request.headers_mut());
        if let Some(encryption) = &encryption {
            request.extensions_mut().insert(encryption.clone());
        }
        let session = match consistency::requested(request.headers()) {
            Ok(ask) => self.store.session(ask),
            Err(error) => return error.to_http_response().unwrap_or_else(|_| bare_error()),
        };
        request.extensions_mut().insert(session.clone());
        // A copy has two objects, and either may be missing.
        let is_copy = request.headers().contains_key("x-amz-copy-source");
        let uri = (!is_copy).then(|| request.uri().clone());
        let mut response = match self.routes.call(request).await {
            Ok(response) => response,
            Err(error) => {
                tracing::error!(?error, "could not write a reply");
                internal().to_http_response().unwrap_or_else(|_| bare_error())
            }
        };
        keep_carriage_returns(&mut response);
        if let Some(uri) = uri {
            not_found::name(&uri, &mut response);
        }
        if let Some(BareTags) = response.extensions_mut().remove() {
            bare_tags(&mut response);
        }
        if let Some(CarriedValues) = response.extensions_mut().remove() {
            rewrite(&mut response, carried::unload);
        }
        if let Some(ReplyStatus(status)) = response.extensions_mut().remove() {
            *response.status_mut() = status;
        }
        if let Some(encrypted) = session.encrypted().filter(|_| response.status().is_success()) {
            Encryption::add_headers(encryption.as_ref(), encrypted, response.headers_mut());
        }
        consistency::add_headers(response.headers_mut(), session.given());
        response
    }
}

/// Escapes carriage returns in documents: XML parsers read a bare one as a line feed, and keys may
/// contain some. Bodies of objects are streams and stay unchanged.
fn keep_carriage_returns(response: &mut Response<Body>) {
    let Some(document) = response.body().bytes().filter(|bytes| bytes.contains(&b'\r')) else {
        return;
    };
    let Ok(text) = std::str::from_utf8(&document) else { return };
    let text = text.replace('\r', "&#13;");
    response.headers_mut().remove(CONTENT_LENGTH);
    *response.body_mut() = Body::from(Bytes::from(text));
}

/// Removes the quotes from the entity tag in a document.
fn bare_tags(response: &mut Response<Body>) {
    rewrite(response, |text| text.replace("<ETag>\"", "<ETag>").replace("\"</ETag>", "</ETag>"));
}

/// Replaces the document of a reply.
fn rewrite(response: &mut Response<Body>, change: impl FnOnce(&str) -> String) {
    let Some(document) = response.body().bytes() else { return };
    let Ok(text) = std::str::from_utf8(&document) else { return };
    let text = change(text);
    response.headers_mut().remove(CONTENT_LENGTH);
    *response.body_mut() = Body::from(Bytes::from(text));
}

fn bare_error() -> Response<Body> {
    let mut response = Response::new(Body::empty());
    *response.status_mut() = http::StatusCode::INTERNAL_SERVER_ERROR;
    response
}

impl tower::Service<Request<Body>> for RoutedService {
    type Response = Response<Body>;
    type Error = Infallible;
    type Future = BoxFuture<'static, Result<Self::Response, Infallible>>;

    fn poll_ready(&mut self, _context: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        let inner = self.clone();
        Box::pin(async move { Ok(inner.answer(request).await) })
    }
}
