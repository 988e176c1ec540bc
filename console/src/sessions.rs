//! Sessions of browsers, in memory. A restart of the process ends them.

use std::collections::HashMap;
use std::sync::Arc;

use axum::http::{HeaderMap, header};
use martlet_admin_api::principals::PrincipalLine;
use martlet_protocol::Clock;
use martlet_protocol::id::random_bytes;
use parking_lot::Mutex;
use subtle::ConstantTimeEq;

/// Maximum number of sessions. One more ends the session that was used longest ago.
pub(crate) const SESSIONS_MAX: usize = 1024;
/// Length of a session, in seconds.
pub(crate) const SESSION_S: u64 = 8 * 3600;
/// Time without a request after which a session is over, in milliseconds.
pub(crate) const IDLE_MS_MAX: u64 = 60 * 60 * 1000;
/// Cookie of a session; over TLS with a prefix that binds the cookie to this host.
const COOKIE: &str = "martlet-console";
const SECURE_COOKIE: &str = "__Host-martlet-console";

/// Session of a browser.
#[derive(Clone)]
pub(crate) struct Session {
    /// Bearer token at the admin API.
    pub(crate) token: String,
    /// CSRF token, which each change must repeat.
    pub(crate) csrf: String,
    /// Principal at the admin API.
    pub(crate) principal: PrincipalLine,
    ends_ms: u64,
    used_ms: u64,
}

/// Session that has begun.
pub(crate) struct NewSession {
    /// Value of the cookie.
    pub(crate) id: String,
    pub(crate) session: Session,
}

/// Sessions by the value of their cookie.
pub(crate) struct Sessions {
    open: Mutex<HashMap<String, Session>>,
    clock: Arc<dyn Clock>,
}

impl Sessions {
    pub(crate) fn new(clock: Arc<dyn Clock>) -> Self {
        Self { open: Mutex::default(), clock }
    }

    /// Begins a session.
    pub(crate) fn begin(&self, token: String, principal: PrincipalLine) -> NewSession {
        let now_ms = self.clock.now_ms();
        let span_ms = now_ms.saturating_add(SESSION_S * 1000);
        let ends_ms = principal.expires_ms.map_or(span_ms, |end| end.min(span_ms));
        let csrf = hex::encode(random_bytes::<16>());
        let session = Session { token, csrf, principal, ends_ms, used_ms: now_ms };
        let id = hex::encode(random_bytes::<32>());
        let mut open = self.open.lock();
        open.retain(|_, session| session.is_open(now_ms));
        if open.len() >= SESSIONS_MAX {
            let oldest = open.iter().min_by_key(|(_, session)| session.used_ms);
            if let Some(oldest) = oldest.map(|(id, _)| id.clone()) {
                open.remove(&oldest);
            }
        }
        open.insert(id.clone(), session.clone());
        NewSession { id, session }
    }

    /// Returns the open session of a request, and notes its use.
    pub(crate) fn of(&self, headers: &HeaderMap, is_secure: bool) -> Option<Session> {
        let now_ms = self.clock.now_ms();
        let id = cookie_of(headers, is_secure)?;
        let mut open = self.open.lock();
        let session = open.get_mut(id)?;
        if !session.is_open(now_ms) {
            open.remove(id);
            return None;
        }
        session.used_ms = now_ms;
        Some(session.clone())
    }

    /// Removes the session of a request.
    pub(crate) fn end(&self, headers: &HeaderMap, is_secure: bool) {
        if let Some(id) = cookie_of(headers, is_secure) {
            self.open.lock().remove(id);
        }
    }
}

impl Session {
    fn is_open(&self, now_ms: u64) -> bool {
        now_ms < self.ends_ms && now_ms < self.used_ms.saturating_add(IDLE_MS_MAX)
    }

    /// Returns true if a request repeats the CSRF token. Constant time.
    pub(crate) fn is_own(&self, given: Option<&str>) -> bool {
        given.is_some_and(|given| given.as_bytes().ct_eq(self.csrf.as_bytes()).into())
    }
}

/// Returns the cookie of a session. An empty `id` removes the cookie.
pub(crate) fn cookie(id: &str, is_secure: bool) -> String {
    let name = if is_secure { SECURE_COOKIE } else { COOKIE };
    let secure = if is_secure { "; Secure" } else { "" };
    let end = if id.is_empty() { "; Max-Age=0" } else { "" };
    format!("{name}={id}; Path=/; HttpOnly; SameSite=Strict{secure}{end}")
}

fn cookie_of(headers: &HeaderMap, is_secure: bool) -> Option<&str> {
    let wanted = if is_secure { SECURE_COOKIE } else { COOKIE };
    let values = headers.get_all(header::COOKIE).iter().filter_map(|value| value.to_str().ok());
    let mut pairs = values.flat_map(|value| value.split(';')).filter_map(|it| it.split_once('='));
    pairs.find(|(name, _)| name.trim() == wanted).map(|(_, value)| value.trim())
}

#[cfg(test)]
mod tests {
    use axum::http::HeaderValue;
    use martlet_protocol::ManualClock;

    use super::*;

    fn headers(id: &str) -> HeaderMap {
        let value = format!("other=1; {COOKIE}={id}");
        HeaderMap::from_iter([(header::COOKIE, HeaderValue::from_str(&value).unwrap())])
    }

    #[test]
    fn sessions_end_by_time_and_by_silence() {
        let clock = Arc::new(ManualClock::at(1000));
        let sessions = Sessions::new(clock.clone());
        let begin = |expires_ms| {
            let principal = PrincipalLine { expires_ms, ..PrincipalLine::default() };
            headers(&sessions.begin("t".into(), principal).id)
        };
        let (own, short) = (begin(None), begin(Some(2000)));
        assert!(sessions.of(&own, false).is_some() && sessions.of(&short, false).is_some());
        assert!(sessions.of(&own, true).is_none(), "the cookie of another scheme");
        clock.advance_ms(1000);
        assert!(sessions.of(&own, false).is_some() && sessions.of(&short, false).is_none());
        clock.advance_ms(IDLE_MS_MAX);
        assert!(sessions.of(&own, false).is_none());
        let busy = begin(None);
        for _ in 0..15 {
            clock.advance_ms(IDLE_MS_MAX / 2);
            assert!(sessions.of(&busy, false).is_some());
        }
        clock.advance_ms(IDLE_MS_MAX / 2);
        assert!(sessions.of(&busy, false).is_none(), "eight hours are over");
    }

    #[test]
    fn the_number_of_sessions_is_bounded() {
        let clock = Arc::new(ManualClock::at(1000));
        let sessions = Sessions::new(clock.clone());
        let first = sessions.begin("t".into(), PrincipalLine::default()).id;
        let mut last = String::new();
        for _ in 0..SESSIONS_MAX {
            clock.advance_ms(1);
            last = sessions.begin("t".into(), PrincipalLine::default()).id;
        }
        assert_eq!(sessions.open.lock().len(), SESSIONS_MAX);
        assert!(sessions.of(&headers(&first), false).is_none());
        assert!(sessions.of(&headers(&last), false).is_some());
        sessions.end(&headers(&last), false);
        assert!(sessions.of(&headers(&last), false).is_none());
    }

    #[test]
    fn cookies_are_kept_from_scripts_and_other_sites() {
        let secure = cookie("x", true);
        assert_eq!(secure, "__Host-martlet-console=x; Path=/; HttpOnly; SameSite=Strict; Secure");
        assert!(!cookie("x", false).contains("Secure") && cookie("", false).contains("Max-Age=0"));
    }
}
