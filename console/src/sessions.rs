//! Sessions of browsers, in memory. A restart of the process ends them.

use std::collections::HashMap;
use std::sync::Arc;

use axum::http::HeaderMap;
use martlet_admin_api::principals::PrincipalLine;
use martlet_protocol::Clock;
use martlet_protocol::id::random_bytes;
use parking_lot::Mutex;
use subtle::ConstantTimeEq;

use crate::cookies::SESSION;
use crate::sign::AccessKey;

/// Maximum number of sessions. One more ends the session that was used longest ago, and one without
/// the admin API before one with it: tenants can't end sessions of operators.
pub(crate) const SESSIONS_MAX: usize = 1024;
/// Maximum number of sessions of one principal: a user, a tenant itself, or a subject of an identity
/// provider. One more ends the oldest of them.
pub(crate) const KEY_SESSIONS_MAX: usize = 16;
/// Maximum number of sessions of all keys of one account. One more ends the oldest of the account.
pub(crate) const ACCOUNT_SESSIONS_MAX: usize = 128;
/// Length of a session, in seconds.
pub(crate) const SESSION_S: u64 = 8 * 3600;
/// Time without a request after which a session is over, in milliseconds.
pub(crate) const IDLE_MS_MAX: u64 = 60 * 60 * 1000;
/// Session of a browser. Has rights at the admin API, at S3, or at both.
#[derive(Clone)]
pub(crate) struct Session {
    /// Rights of the session.
    pub(crate) rights: Rights,
    /// CSRF token, which each request must repeat.
    pub(crate) csrf: String,
    /// Token of links that save an object, which nothing else accepts.
    pub(crate) link_token: String,
    ends_ms: u64,
    used_ms: u64,
}

/// Rights of a session.
#[derive(Clone, Default)]
pub(crate) struct Rights {
    /// Session of the admin API.
    pub(crate) admin: Option<AdminRights>,
    /// Access key whose name S3 requests are signed in.
    pub(crate) s3: Option<Arc<AccessKey>>,
}

/// Session of the admin API.
#[derive(Clone)]
pub(crate) struct AdminRights {
    /// Bearer token.
    pub(crate) token: String,
    /// Principal of the token.
    pub(crate) principal: PrincipalLine,
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
    pub(crate) fn begin(&self, rights: Rights) -> NewSession {
        let now_ms = self.clock.now_ms();
        let span_ms = now_ms.saturating_add(SESSION_S * 1000);
        let admin_ms = rights.admin.as_ref().and_then(|admin| admin.principal.expires_ms);
        let s3_ms = rights.s3.as_ref().and_then(|key| key.expires_ms());
        let ends_ms = [admin_ms, s3_ms].into_iter().flatten().fold(span_ms, u64::min);
        let csrf = hex::encode(random_bytes::<16>());
        let link_token = hex::encode(random_bytes::<16>());
        let session = Session { rights, csrf, link_token, ends_ms, used_ms: now_ms };
        let id = hex::encode(random_bytes::<32>());
        let mut open = self.open.lock();
        open.retain(|_, session| session.is_open(now_ms));
        let of_key = open.values().filter(|other| other.has_key_of(&session)).count();
        if of_key >= KEY_SESSIONS_MAX {
            remove_oldest(&mut open, |other| other.has_key_of(&session));
        }
        let of_account = open.values().filter(|other| other.has_account_of(&session)).count();
        if of_account >= ACCOUNT_SESSIONS_MAX {
            remove_oldest(&mut open, |other| other.has_account_of(&session));
        }
        if open.len() >= SESSIONS_MAX
            && !remove_oldest(&mut open, |other| other.rights.admin.is_none())
        {
            remove_oldest(&mut open, |_| true);
        }
        open.insert(id.clone(), session.clone());
        NewSession { id, session }
    }

    /// Returns the open session of a request, and notes its use. Two cookies of the name are none: a
    /// page of another port may have set one of them, with a session of its own.
    pub(crate) fn of(&self, headers: &HeaderMap, is_secure: bool) -> Option<Session> {
        let now_ms = self.clock.now_ms();
        let mut open = self.open.lock();
        open.retain(|_, session| session.is_open(now_ms));
        let [id] = SESSION.values(headers, is_secure)[..] else { return None };
        let session = open.get_mut(id)?;
        session.used_ms = now_ms;
        Some(session.clone())
    }

    /// Removes the session of a request.
    pub(crate) fn end(&self, headers: &HeaderMap, is_secure: bool) {
        for id in SESSION.values(headers, is_secure) {
            self.open.lock().remove(id);
        }
    }
}

/// Removes the session that was used longest ago among those that `is_meant` accepts. Returns false
/// if it accepts none.
fn remove_oldest(open: &mut HashMap<String, Session>, is_meant: impl Fn(&Session) -> bool) -> bool {
    let meant = open.iter().filter(|(_, session)| is_meant(session));
    let oldest = meant.min_by_key(|(_, session)| session.used_ms).map(|(id, _)| id.clone());
    oldest.is_some_and(|id| open.remove(&id).is_some())
}

impl Session {
    /// Returns true if both sessions sign with keys of one holder.
    fn has_key_of(&self, other: &Self) -> bool {
        self.holder().is_some() && self.holder() == other.holder()
    }

    /// Returns the holder of the session's access key.
    fn holder(&self) -> Option<&str> {
        self.rights.s3.as_ref().map(|key| key.holder())
    }

    /// Returns true if the access keys of both sessions belong to one account.
    fn has_account_of(&self, other: &Self) -> bool {
        self.account().is_some() && self.account() == other.account()
    }

    /// Returns the account of the session's access key.
    fn account(&self) -> Option<&str> {
        self.rights.s3.as_ref().and_then(|key| key.account())
    }

    fn is_open(&self, now_ms: u64) -> bool {
        now_ms < self.ends_ms && now_ms < self.used_ms.saturating_add(IDLE_MS_MAX)
    }

    /// Returns true if a request repeats the CSRF token. Constant time.
    pub(crate) fn is_own(&self, given: Option<&str>) -> bool {
        is_equal(given, &self.csrf)
    }

    /// Returns true if a link repeats the token of links. Constant time.
    pub(crate) fn is_own_link(&self, given: Option<&str>) -> bool {
        is_equal(given, &self.link_token)
    }
}

fn is_equal(given: Option<&str>, token: &str) -> bool {
    given.is_some_and(|given| given.as_bytes().ct_eq(token.as_bytes()).into())
}

#[cfg(test)]
mod tests {
    use axum::http::{HeaderValue, header};
    use martlet_protocol::ManualClock;

    use super::*;

    fn headers(id: &str) -> HeaderMap {
        let value = format!("other=1; {}={id}", SESSION.plain);
        HeaderMap::from_iter([(header::COOKIE, HeaderValue::from_str(&value).unwrap())])
    }

    fn admin(principal: PrincipalLine) -> Rights {
        Rights { admin: Some(AdminRights { token: "t".into(), principal }), s3: None }
    }

    fn user(id: &str) -> Rights {
        let key = AccessKey::new(id.into(), "secret".into());
        Rights { admin: None, s3: Some(Arc::new(key)) }
    }

    #[test]
    fn users_end_no_session_of_an_operator_or_of_another_key() {
        let clock = Arc::new(ManualClock::at(1000));
        let sessions = Sessions::new(clock.clone());
        let operator = headers(&sessions.begin(admin(PrincipalLine::default())).id);
        clock.advance_ms(1);
        let other = headers(&sessions.begin(user("other")).id);
        for _ in 0..2 * KEY_SESSIONS_MAX {
            clock.advance_ms(1);
            sessions.begin(user("one"));
        }
        assert_eq!(sessions.open.lock().len(), KEY_SESSIONS_MAX + 2);
        assert!(sessions.of(&other, false).is_some());
        for at in 0..2 * SESSIONS_MAX {
            clock.advance_ms(1);
            sessions.begin(user(&at.to_string()));
        }
        assert_eq!(sessions.open.lock().len(), SESSIONS_MAX);
        assert!(sessions.of(&operator, false).is_some() && sessions.of(&other, false).is_none());
    }

    #[test]
    fn an_account_has_so_many_sessions() {
        let clock = Arc::new(ManualClock::at(1000));
        let sessions = Sessions::new(clock.clone());
        let of = |account: &str, at: usize| {
            let key = AccessKey::new(format!("{account}{at}"), "secret".into());
            let key = key.named(&format!("arn:aws:iam::{account}:user/u{at}"));
            Rights { admin: None, s3: Some(Arc::new(key)) }
        };
        let other = headers(&sessions.begin(of("other", 0)).id);
        for at in 0..2 * SESSIONS_MAX {
            clock.advance_ms(1);
            sessions.begin(of("one", at));
        }
        assert_eq!(sessions.open.lock().len(), ACCOUNT_SESSIONS_MAX + 1);
        assert!(sessions.of(&other, false).is_some());
    }

    #[test]
    fn keys_of_one_user_count_together() {
        let clock = Arc::new(ManualClock::at(1000));
        let sessions = Sessions::new(clock.clone());
        let of = |user: &str, at: usize| {
            let key = AccessKey::new(format!("KEY{at}"), "secret".into());
            let key = key.named(&format!("arn:aws:iam::lab:user/{user}"));
            Rights { admin: None, s3: Some(Arc::new(key)) }
        };
        let other = headers(&sessions.begin(of("bob", 0)).id);
        for at in 0..2 * KEY_SESSIONS_MAX {
            clock.advance_ms(1);
            sessions.begin(of("alice", at));
        }
        assert_eq!(sessions.open.lock().len(), KEY_SESSIONS_MAX + 1);
        assert!(sessions.of(&other, false).is_some());
    }

    #[test]
    fn sessions_end_by_time_and_by_silence() {
        let clock = Arc::new(ManualClock::at(1000));
        let sessions = Sessions::new(clock.clone());
        let begin = |expires_ms| {
            let principal = PrincipalLine { expires_ms, ..PrincipalLine::default() };
            headers(&sessions.begin(admin(principal)).id)
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
    fn sessions_of_temporary_keys_end_with_them_and_count_by_subject() {
        let clock = Arc::new(ManualClock::at(1000));
        let sessions = Sessions::new(clock.clone());
        let of = |at: usize| {
            let arn = "arn:aws:sts::lab:assumed-role/reader/alice";
            let key = AccessKey::temporary(format!("ASIA{at}"), "s".into(), "t".into(), 9000);
            Rights { admin: None, s3: Some(Arc::new(key.named(arn))) }
        };
        for at in 0..2 * KEY_SESSIONS_MAX {
            sessions.begin(of(at));
            clock.advance_ms(1);
        }
        assert_eq!(sessions.open.lock().len(), KEY_SESSIONS_MAX);
        let last = sessions.begin(of(0));
        assert_eq!(last.session.ends_ms, 9000);
        clock.set_ms(8999);
        assert!(sessions.of(&headers(&last.id), false).is_some());
        clock.set_ms(9000);
        assert!(sessions.of(&headers(&last.id), false).is_none());
    }

    #[test]
    fn the_number_of_sessions_is_bounded() {
        let clock = Arc::new(ManualClock::at(1000));
        let sessions = Sessions::new(clock.clone());
        let first = sessions.begin(admin(PrincipalLine::default())).id;
        let mut last = String::new();
        for _ in 0..SESSIONS_MAX {
            clock.advance_ms(1);
            last = sessions.begin(admin(PrincipalLine::default())).id;
        }
        assert_eq!(sessions.open.lock().len(), SESSIONS_MAX);
        assert!(sessions.of(&headers(&first), false).is_none());
        assert!(sessions.of(&headers(&last), false).is_some());
        sessions.end(&headers(&last), false);
        assert!(sessions.of(&headers(&last), false).is_none());
    }

    #[test]
    fn consoles_of_one_host_have_cookies_of_their_own() {
        let sessions = Sessions::new(Arc::new(ManualClock::at(1000)));
        let id = sessions.begin(admin(PrincipalLine::default())).id;
        let sent = |host: &'static str, cookies: &str| {
            HeaderMap::from_iter([
                (header::HOST, HeaderValue::from_static(host)),
                (header::COOKIE, HeaderValue::from_str(cookies).unwrap()),
            ])
        };
        let name = SESSION.plain;
        let own = format!("{name}-9003={id}");
        assert!(sessions.of(&sent("127.0.0.1:9003", &own), false).is_some());
        assert!(sessions.of(&sent("[::1]:9004", &own), false).is_none());
        let beside = format!("{own}; {name}-9004=y");
        assert!(sessions.of(&sent("127.0.0.1:9003", &beside), false).is_some());
        // A second cookie of the name, which another port has set, leaves no session.
        let other = sessions.begin(admin(PrincipalLine::default())).id;
        for tossed in [format!("{name}-9003={other}; {own}"), format!("{own}; {name}-9003=x")] {
            assert!(sessions.of(&sent("127.0.0.1:9003", &tossed), false).is_none(), "{tossed}");
        }
    }
}
