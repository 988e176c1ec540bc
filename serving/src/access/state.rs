//! State of the gate: tokens, rules of routes, and means to admit requests.

use std::sync::{Arc, OnceLock};

use axum::http::{Method, StatusCode};
use axum::response::Response;

use super::AdminAccess;
use super::replays::Replays;
use crate::api::RouteRule;
use crate::refusal::refuse;
use crate::token::AdminToken;

const NOT_YET: &str = "the process is starting: try again in a moment";

/// Refusal of a request.
pub(super) type Refused = Box<Response>;

/// State of the gate.
pub(crate) struct GateState {
    tokens: Vec<AdminToken>,
    /// False if a setting refuses the tokens of secrets.
    allows_tokens: OnceLock<bool>,
    /// Rules of the routes that every process has.
    own: Vec<RouteRule>,
    open: OnceLock<OpenGate>,
    pub(super) replays: Replays,
}

/// State of the gate of an open role.
struct OpenGate {
    access: Arc<AdminAccess>,
    rules: Vec<RouteRule>,
    opened_ms: u64,
}

impl GateState {
    /// Makes the state of a process whose role is not open yet.
    pub(crate) fn new(tokens: Vec<AdminToken>, own: Vec<RouteRule>) -> Self {
        let (allows_tokens, open) = (OnceLock::new(), OnceLock::new());
        Self { tokens, allows_tokens, own, open, replays: Replays::default() }
    }

    /// Sets whether the tokens of secrets are accepted. They are by default.
    pub(crate) fn allow_tokens(&self, allows: bool) {
        // The first call decides.
        let _ = self.allows_tokens.set(allows);
    }

    /// Opens the gate to the routes of a role.
    pub(crate) fn open(&self, access: Arc<AdminAccess>, rules: Vec<RouteRule>) {
        let opened_ms = access.clock.now_ms();
        // As above.
        let _ = self.open.set(OpenGate { access, rules, opened_ms });
    }

    /// Returns the means to admit requests, once the role is open.
    pub(crate) fn access(&self) -> Result<&Arc<AdminAccess>, Refused> {
        let not_yet = || refusal(StatusCode::SERVICE_UNAVAILABLE, NOT_YET);
        self.open.get().map(|open| &open.access).ok_or_else(not_yet)
    }

    /// Returns the begin of the role, in milliseconds since 1970.
    pub(super) fn opened_ms(&self) -> u64 {
        self.open.get().map_or(u64::MAX, |open| open.opened_ms)
    }

    /// Returns true if `text` is an accepted token of a secret. Constant time for each secret.
    pub(super) fn is_token(&self, text: &str) -> bool {
        let is_one = self.tokens.iter().fold(false, |is_one, token| token.is(text) | is_one);
        is_one && *self.allows_tokens.get().unwrap_or(&true)
    }

    /// Returns the rule of a route.
    pub(super) fn rule_of(&self, method: &Method, path: &str) -> Result<RouteRule, Refused> {
        let rules = self.open.get().map_or(&self.own, |open| &open.rules);
        let mut of_path = rules.iter().filter(|rule| rule.is_at(path)).peekable();
        let is_path = of_path.peek().is_some();
        if let Some(rule) = of_path.find(|rule| rule.has(method)) {
            return Ok(*rule);
        }
        if self.open.get().is_none() {
            return Err(refusal(StatusCode::SERVICE_UNAVAILABLE, NOT_YET));
        }
        Err(if is_path {
            refusal(StatusCode::METHOD_NOT_ALLOWED, "the path has no route with this method")
        } else {
            refusal(StatusCode::NOT_FOUND, "there is no such route: see /openapi.json")
        })
    }
}

/// Returns true if requests with this method change something.
pub(super) fn is_change(method: &Method) -> bool {
    *method != Method::GET && *method != Method::HEAD
}

#[expect(clippy::unnecessary_box_returns, reason = "callers return it as an error")]
pub(super) fn refusal(status: StatusCode, sentence: &str) -> Refused {
    Box::new(refuse(status, sentence))
}

#[expect(clippy::unnecessary_box_returns, reason = "callers return it as an error")]
pub(super) fn unauthenticated(sentence: &str) -> Refused {
    refusal(StatusCode::UNAUTHORIZED, sentence)
}
