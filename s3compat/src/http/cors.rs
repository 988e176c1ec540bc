//! Cross-origin requests: preflights, and the headers of all other replies.
//!
//! A preflight (`OPTIONS`) has no signature, and is answered by the bucket's rules alone. Every
//! other reply to a request that names its origin, errors included, has the headers of the rule
//! that allows the request.

mod rules;

use std::fmt;

use futures::future::BoxFuture;
use http::header::{
    ACCESS_CONTROL_REQUEST_HEADERS, ACCESS_CONTROL_REQUEST_METHOD, HOST, ORIGIN, VARY,
};
use http::{HeaderMap, HeaderName, HeaderValue, Method, Uri};
use s3s::dto::CORSRule;

use self::rules::BrowserRequest;
use super::host;
use crate::auth::single_header;
use crate::messages::{self, ErrorMessage};
use crate::refusal::{Code, Refusal};
use crate::target::RequestTarget;

/// `Vary` of replies, for caches.
const VARIES: HeaderValue = HeaderValue::from_static(
    "Origin, Access-Control-Request-Headers, Access-Control-Request-Method",
);
/// Maximum number of headers in a preflight: more than any page sends.
const HEADERS_MAX: usize = 100;

/// Source of the CORS rules of buckets.
pub trait CorsRules: fmt::Debug + Send + Sync {
    /// Rules of a bucket, possibly cached. None if no rules are set. A missing bucket is
    /// [`Code::NoSuchBucket`].
    fn of<'a>(&'a self, bucket: &'a str) -> BoxFuture<'a, Result<Option<Vec<CORSRule>>, Refusal>>;
}

/// A cross-origin request.
#[derive(Debug)]
pub(super) struct CrossOriginRequest {
    bucket: String,
    is_object: bool,
    wish: BrowserRequest,
}

impl CrossOriginRequest {
    /// Parses a preflight for a bucket or an object. None if the path names no bucket.
    pub(super) fn preflight(
        uri: &Uri,
        headers: &HeaderMap,
        domains: &[String],
    ) -> Result<Option<Self>, Refusal> {
        let Some((bucket, is_object)) = aim(uri, headers, domains)? else { return Ok(None) };
        let origin =
            single_header(headers, &ORIGIN)?.ok_or_else(|| messages::CORS_ORIGIN.refusal())?;
        let method = single_header(headers, &ACCESS_CONTROL_REQUEST_METHOD)?;
        let method = method
            .filter(|it| is_method(it))
            .ok_or_else(|| messages::CORS_REQUEST_METHOD.with_subject(method.unwrap_or("null")))?;
        let wish = BrowserRequest {
            origin: origin.to_owned(),
            method: method.to_owned(),
            headers: requested_headers(headers)?,
        };
        Ok(Some(Self { bucket, is_object, wish }))
    }

    /// Parses a request that names the origin of its page.
    pub(super) fn actual(
        method: &Method,
        uri: &Uri,
        headers: &HeaderMap,
        domains: &[String],
    ) -> Option<Self> {
        let origin = single_header(headers, &ORIGIN).ok()??.to_owned();
        let (bucket, is_object) = aim(uri, headers, domains).ok()??;
        // A request that names another method gets the headers for that method.
        let requested_method = single_header(headers, &ACCESS_CONTROL_REQUEST_METHOD).ok()?;
        let method = requested_method.unwrap_or(method.as_str()).to_owned();
        // A request that names headers gets nothing from a rule that does not allow them.
        let headers = requested_headers(headers).ok()?;
        Some(Self { bucket, is_object, wish: BrowserRequest { origin, method, headers } })
    }

    /// Headers of the reply to a preflight.
    pub(super) async fn answer(&self, rules: &dyn CorsRules) -> Result<HeaderMap, Refusal> {
        let found = rules.of(&self.bucket).await.map_err(|refusal| match refusal.code {
            Code::NoSuchBucket => self.forbidden(messages::CORS_BUCKET),
            _ => refusal,
        })?;
        let Some(found) = found else {
            return Err(self.forbidden(messages::CORS_DISABLED));
        };
        let granted =
            self.wish.grant(&found).ok_or_else(|| self.forbidden(messages::CORS_FORBIDDEN));
        granted.map(varying)
    }

    /// Headers of another reply. If no rule allows the request, only `Vary` is set; if the bucket
    /// has no rules, nothing.
    pub(super) async fn headers(&self, rules: &dyn CorsRules) -> HeaderMap {
        match rules.of(&self.bucket).await {
            Ok(Some(found)) => varying(self.wish.grant(&found).unwrap_or_default()),
            Ok(None) | Err(_) => HeaderMap::new(),
        }
    }

    fn forbidden(&self, sentence: ErrorMessage) -> Refusal {
        sentence
            .refusal()
            .with_detail("Method", self.wish.method.clone())
            .with_detail("ResourceType", if self.is_object { "OBJECT" } else { "BUCKET" })
    }
}

fn varying(mut headers: HeaderMap) -> HeaderMap {
    headers.insert(VARY, VARIES);
    headers
}

/// Returns true if a rule may allow this method.
pub(crate) fn is_method(method: &str) -> bool {
    matches!(method, "GET" | "PUT" | "POST" | "DELETE" | "HEAD")
}

/// Bucket of a request, and true if the path names an object.
fn aim(
    uri: &Uri,
    headers: &HeaderMap,
    domains: &[String],
) -> Result<Option<(String, bool)>, Refusal> {
    let host = single_header(headers, &HOST)?;
    let bucket = host.and_then(|host| host::bucket_of(host, domains));
    let target = RequestTarget::parse(uri.path(), bucket.as_deref())?;
    Ok(target.bucket().map(|bucket| (bucket.to_owned(), target.key().is_some())))
}

/// The names in `Access-Control-Request-Headers`, in lower case.
fn requested_headers(headers: &HeaderMap) -> Result<Vec<String>, Refusal> {
    let given = headers.get(ACCESS_CONTROL_REQUEST_HEADERS).map(HeaderValue::as_bytes);
    let given = String::from_utf8_lossy(given.unwrap_or_default());
    let is_token = |name: &str| HeaderName::from_bytes(name.trim().as_bytes()).is_ok();
    let wrong = given.split(',').find(|name| !name.trim().is_empty() && !is_token(name));
    if let Some(name) = wrong {
        let header = ACCESS_CONTROL_REQUEST_HEADERS;
        return Err(messages::CORS_REQUEST_HEADER.with_subjects(header, name));
    }
    let text = single_header(headers, &ACCESS_CONTROL_REQUEST_HEADERS)?.unwrap_or_default();
    let names = text.split(',').map(str::trim).filter(|name| !name.is_empty());
    let names: Vec<_> = names.take(HEADERS_MAX + 1).map(str::to_ascii_lowercase).collect();
    if names.len() > HEADERS_MAX {
        return Err(messages::CORS_HEADERS.refusal());
    }
    Ok(names)
}

#[cfg(test)]
pub(super) mod tests;
