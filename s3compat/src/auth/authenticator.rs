//! The decision: which mechanism a request uses, and whether it holds.

use std::sync::Arc;

use http::{HeaderMap, HeaderValue, Method};
use martlet_protocol::Clock;

use super::date::Timestamp;
use super::keys::{Identity, Keys};
use super::payload::{Announced, Payload};
use super::query::Query;
use super::refusal::{Code, Refusal};
use super::target::Target;
use super::{v2, v4};

/// What counts as authentic.
#[derive(Clone, Debug)]
pub struct AuthConfig {
    /// Regions that a signature may name; the first is the one that errors speak of.
    pub regions: Vec<String>,
    /// Whether links signed with SigV2 are honoured.
    pub allow_v2_query: bool,
}

impl Default for AuthConfig {
    fn default() -> Self {
        Self { regions: vec!["us-east-1".to_owned()], allow_v2_query: true }
    }
}

/// A request as it came over the wire, without its body.
#[derive(Clone, Copy, Debug)]
pub struct Head<'a> {
    /// Its method.
    pub method: &'a Method,
    /// Its path, undecoded.
    pub raw_path: &'a str,
    /// The same path, understood.
    pub target: &'a Target,
    /// Its query.
    pub query: &'a Query<'a>,
    /// Its headers.
    pub headers: &'a HeaderMap,
}

impl<'a> Head<'a> {
    /// The one value of a header.
    pub(crate) fn header(&self, name: &'static str) -> Result<Option<&'a str>, Refusal> {
        single_header(self.headers, name)
    }

    pub(super) fn query_get(&self, name: &str) -> Option<&'a str> {
        let pair = self.query.pairs().iter().find(|pair| pair.name == name);
        pair.map(|pair| &*pair.value)
    }

    /// The value of a header that a presigned link carries in its query, in whatever case.
    pub(super) fn query_header(&self, name: &str) -> Option<&'a str> {
        let pair = self.query.pairs().iter().find(|pair| pair.name.eq_ignore_ascii_case(name));
        pair.map(|pair| &*pair.value)
    }

    /// Whether a presigned link carries the header in its query, where it is signed.
    pub(super) fn is_hoisted(&self, name: &str, value: &HeaderValue) -> bool {
        self.query.pairs().iter().any(|pair| {
            pair.name.eq_ignore_ascii_case(name) && pair.value.as_bytes() == value.as_bytes()
        })
    }
}

/// The one value of a header; two are refused, as nobody could say which one counts.
pub(crate) fn single_header<'a>(
    headers: &'a HeaderMap,
    name: &'static str,
) -> Result<Option<&'a str>, Refusal> {
    let mut values = headers.get_all(name).iter();
    let Some(value) = values.next() else { return Ok(None) };
    let text = value.to_str().ok().filter(|_| values.next().is_none());
    text.map(str::trim).map(Some).ok_or_else(|| {
        let message = "A header is given twice, or has a value that is no text";
        Refusal::new(Code::InvalidArgument, message).with_detail("ArgumentName", name)
    })
}

/// How a request said who sent it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mechanism {
    None,
    Header,
    Query,
    QueryV2,
}

/// Who sent a request, and how its body can be trusted.
#[derive(Debug)]
pub struct Authenticated {
    /// Who.
    pub identity: Identity,
    /// What must be true of the body.
    pub payload: Payload,
    pub(crate) mechanism: Mechanism,
}

/// Where and when a signature is checked.
pub(super) struct Site<'a> {
    pub(super) keys: &'a Keys,
    pub(super) regions: &'a [String],
    pub(super) now: Timestamp,
}

/// Decides who sent a request.
#[derive(Clone, Debug)]
pub struct Authenticator {
    pub(super) config: AuthConfig,
    pub(super) clock: Arc<dyn Clock>,
    pub(super) keys: Keys,
}

impl Authenticator {
    /// An authenticator that knows `keys`.
    pub fn new(config: AuthConfig, clock: Arc<dyn Clock>, keys: Keys) -> Self {
        Self { config, clock, keys }
    }

    /// Who sent the request. Refuses what is signed wrongly; what isn't signed is anonymous.
    pub fn authenticate(&self, head: &Head<'_>) -> Result<Authenticated, Refusal> {
        let site = Site {
            keys: &self.keys,
            regions: &self.config.regions,
            now: Timestamp::from_unix_ms(self.clock.now_ms()),
        };
        let authorization = head.header("authorization")?;
        let has = |name: &str| head.query_get(name).is_some();
        let v4_query = has("X-Amz-Signature") || has("X-Amz-Algorithm");
        let v2_query = has("Signature") || has("AWSAccessKeyId");
        if usize::from(authorization.is_some()) + usize::from(v4_query) + usize::from(v2_query) > 1
        {
            return Err(Refusal::new(
                Code::InvalidArgument,
                "Only one auth mechanism allowed; only the X-Amz-Algorithm query parameter, \
                 Signature query string parameter or the Authorization header should be specified",
            ));
        }
        if head.headers.contains_key("x-amz-security-token") || has("X-Amz-Security-Token") {
            let message = "The provided token is malformed or otherwise invalid.";
            return Err(Refusal::new(Code::InvalidToken, message));
        }
        match authorization {
            Some(authorization) => v4::by_header(head, authorization, &site),
            None if v4_query => v4::by_query(head, &site),
            None if v2_query && self.config.allow_v2_query => v2::by_query(head, &site),
            None if v2_query => Err(Refusal::new(
                Code::InvalidRequest,
                "The authorization mechanism you have provided is not supported. Please use \
                 AWS4-HMAC-SHA256.",
            )),
            None => anonymous(head),
        }
    }
}

fn anonymous(head: &Head<'_>) -> Result<Authenticated, Refusal> {
    let announced = head.header("x-amz-content-sha256")?.map(Announced::parse).transpose()?;
    Ok(Authenticated {
        identity: Identity::Anonymous,
        payload: announced.unwrap_or(Announced::Unsigned).without_signer()?,
        mechanism: Mechanism::None,
    })
}
