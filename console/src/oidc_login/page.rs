//! Refusals of logins, and the page with a refusal's sentence.

use std::net::IpAddr;

use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};

use crate::assets;

/// Refusal of a login. Its sentence has no text of a request, a token or the provider.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct LoginRefusal {
    status: StatusCode,
    sentence: &'static str,
}

impl LoginRefusal {
    pub(crate) const NOT_CONFIGURED: Self = Self::new(
        StatusCode::NOT_FOUND,
        "This console has no identity provider. Sign in with a key.",
    );
    pub(crate) const FOREIGN: Self = Self::new(
        StatusCode::FORBIDDEN,
        "Logins begin at the page of this console. Open it, and sign in there.",
    );
    pub(crate) const NOT_OPEN: Self = Self::new(
        StatusCode::SERVICE_UNAVAILABLE,
        "The store is not open yet. Try again in a moment.",
    );
    pub(crate) const TOO_MANY: Self = Self::new(
        StatusCode::TOO_MANY_REQUESTS,
        "Too many logins from your network have failed. Wait a minute, then begin the login again.",
    );
    pub(crate) const MALFORMED: Self = Self::new(
        StatusCode::BAD_REQUEST,
        "The identity provider's answer can't be read. Begin the login again.",
    );
    pub(crate) const UNKNOWN_STATE: Self = Self::new(
        StatusCode::BAD_REQUEST,
        "This login was not begun in this browser, took more than ten minutes, or was used before. \
         Begin it again.",
    );
    pub(crate) const OTHER_ISSUER: Self = Self::new(
        StatusCode::BAD_REQUEST,
        "The answer is of another identity provider than this console's. Begin the login again.",
    );
    pub(crate) const DENIED: Self = Self::new(
        StatusCode::FORBIDDEN,
        "The identity provider does not permit this login, or it was cancelled there.",
    );
    pub(crate) const PROVIDER: Self = Self::new(
        StatusCode::FORBIDDEN,
        "The identity provider refused the login. Begin it again; if that fails, an operator finds the \
         reason in the log of this process.",
    );
    pub(crate) const UNAVAILABLE: Self = Self::new(
        StatusCode::BAD_GATEWAY,
        "The identity provider does not answer, or its answer can't be used. Try again later, or sign \
         in with a key.",
    );
    pub(crate) const TOKEN: Self = Self::new(
        StatusCode::FORBIDDEN,
        "The identity provider's token is not valid for this console. An operator finds the reason in \
         the log of this process.",
    );
    pub(crate) const NO_ROLE: Self = Self::new(
        StatusCode::FORBIDDEN,
        "Your account at the identity provider names no role of this store, or several. Ask an operator.",
    );
    pub(crate) const UNTRUSTED: Self = Self::new(
        StatusCode::FORBIDDEN,
        "The role of this login does not trust your account, or does not exist. Ask an operator.",
    );
    pub(crate) const STORE: Self = Self::new(
        StatusCode::SERVICE_UNAVAILABLE,
        "The store could not begin the session. Try again; if that fails, an operator finds the reason \
         in the log of this process.",
    );

    const fn new(status: StatusCode, sentence: &'static str) -> Self {
        Self { status, sentence }
    }

    /// Returns the status of the reply.
    pub(crate) fn status(self) -> StatusCode {
        self.status
    }

    /// Returns true if the login of the browser's cookie is over.
    pub(crate) fn ends_login(self) -> bool {
        ![Self::UNKNOWN_STATE, Self::MALFORMED, Self::NOT_OPEN].contains(&self)
    }

    /// Writes the refusal to the log of the process.
    pub(crate) fn log(self, client: Option<IpAddr>) {
        let status = self.status.as_u16();
        tracing::info!(?client, status, "refused a login to the console: {}", self.sentence);
    }

    /// Returns the page with the sentence.
    pub(crate) fn page(self) -> Response {
        let sheet = assets::style_sheet().unwrap_or_default();
        let sheet = if sheet.is_empty() {
            String::new()
        } else {
            format!("<link rel=\"stylesheet\" href=\"/{sheet}\">")
        };
        let sentence = self.sentence;
        let page = format!(
            "<!doctype html><html lang=\"en\" data-theme=\"auto\"><head><meta charset=\"utf-8\">\
             <meta name=\"viewport\" content=\"width=device-width\"><title>Sign in · Martlet</title>\
             {sheet}</head><body><main class=\"login\"><section class=\"card\"><h1>Not signed in</h1>\
             <p role=\"alert\">{sentence}</p><p><a href=\"/\">Back to the login</a></p></section>\
             </main></body></html>"
        );
        (self.status, [(header::CONTENT_TYPE, "text/html; charset=utf-8")], page).into_response()
    }
}
