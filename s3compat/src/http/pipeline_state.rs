//! State of the pipeline, and of a request on its way through.

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use http::Uri;
use http::header::{HOST, HeaderMap, HeaderName, HeaderValue};

use super::anonymous_check::AnonymousCheck;
use super::config::HttpConfig;
use super::host;
use crate::auth::{Authenticator, single_header};
use crate::change_log::ChangeLog;
use crate::decode::{BodyError, PollFlag};
use crate::limits::LimitReason;
use crate::limits::documents::Documents;
use crate::messages;
use crate::refusal::Refusal;
use crate::request::Observation;
use crate::target::RequestTarget;

/// Checks requests, and converts them to the form that operations expect.
#[derive(Debug)]
pub(super) struct RequestPipeline {
    pub(super) authenticator: Authenticator,
    pub(super) config: HttpConfig,
    /// Memory for bodies that are read whole.
    pub(super) documents: Documents,
    /// Early access check. If unset, no document is refused by its head alone.
    pub(super) anonymous_check: OnceLock<Arc<dyn AnonymousCheck>>,
    /// Log of changes of users' own keys, if there is one.
    pub(super) changes: OnceLock<Arc<dyn ChangeLog>>,
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

/// State of a request from its arrival.
#[derive(Clone, Debug)]
pub(super) struct Arrival {
    pub(super) id: HeaderValue,
    /// Set when the body is requested from the client.
    pub(super) polled: PollFlag,
    pub(super) observation: Observation,
}

impl RequestPipeline {
    pub(super) fn new(authenticator: Authenticator, config: HttpConfig) -> Self {
        let documents = Documents::new(config.document_bytes_max);
        let (anonymous_check, changes) = (OnceLock::new(), OnceLock::new());
        Self { authenticator, config, documents, anonymous_check, changes }
    }

    /// Bucket and key of a request.
    pub(super) fn target(&self, uri: &Uri, headers: &HeaderMap) -> Result<RequestTarget, Refusal> {
        self.check_header_bytes(headers)?;
        self.target_at(uri, single_header(headers, &HOST)?)
    }

    /// Target of a URI at a host.
    pub(super) fn target_at(
        &self,
        uri: &Uri,
        host: Option<&str>,
    ) -> Result<RequestTarget, Refusal> {
        let bucket = match host {
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
}

/// Parses a header that is a number.
pub(super) fn number(headers: &HeaderMap, name: &HeaderName) -> Result<Option<u64>, Refusal> {
    let Some(text) = single_header(headers, name)? else { return Ok(None) };
    let is_number = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    let number = text.parse().ok().filter(|_| is_number);
    number.map(Some).ok_or_else(|| messages::LENGTH.argument(name.as_str(), text))
}
