//! Cookies of the console: of a session, and of a login that is under way.
//!
//! The name of a cookie has the port at which the browser reached the console, because browsers send
//! cookies to all ports of a host. Over TLS a prefix binds the cookie to this host.

use axum::http::{HeaderMap, header};

/// Kind of a cookie.
pub(crate) struct CookieKind {
    /// Beginning of its name without TLS.
    pub(crate) plain: &'static str,
    /// Beginning of its name over TLS.
    pub(crate) secure: &'static str,
    /// Requests of other sites that carry it.
    pub(crate) same_site: &'static str,
    /// Lifetime in seconds; `None` until the browser ends.
    pub(crate) max_age_s: Option<u64>,
}

/// Cookie of a session. Requests of other sites never carry it.
pub(crate) const SESSION: CookieKind = CookieKind {
    plain: "martlet-console",
    secure: "__Host-martlet-console",
    same_site: "Strict",
    max_age_s: None,
};

/// Cookie of a login at an identity provider. The provider's redirect, which is a navigation from
/// another site, carries it.
pub(crate) const LOGIN: CookieKind = CookieKind {
    plain: "martlet-login",
    secure: "__Host-martlet-login",
    same_site: "Lax",
    max_age_s: Some(600),
};

impl CookieKind {
    /// Returns the value of `set-cookie` for a browser that sent `headers`. An empty `value` removes
    /// the cookie.
    pub(crate) fn set(&self, value: &str, headers: &HeaderMap, is_secure: bool) -> String {
        let name = self.name(headers, is_secure);
        let secure = if is_secure { "; Secure" } else { "" };
        let age_s = if value.is_empty() { Some(0) } else { self.max_age_s };
        let end = age_s.map(|age_s| format!("; Max-Age={age_s}")).unwrap_or_default();
        let site = self.same_site;
        format!("{name}={value}; Path=/; HttpOnly; SameSite={site}{secure}{end}")
    }

    /// Returns all values of the cookie, in the order of the request. A page of another port can set
    /// a cookie of this name too, for a longer path.
    pub(crate) fn values<'a>(&self, headers: &'a HeaderMap, is_secure: bool) -> Vec<&'a str> {
        let wanted = self.name(headers, is_secure);
        let values = headers.get_all(header::COOKIE).iter();
        let values = values.filter_map(|value| value.to_str().ok());
        let pairs = values.flat_map(|value| value.split(';')).filter_map(|it| it.split_once('='));
        pairs.filter(|(name, _)| name.trim() == wanted).map(|(_, value)| value.trim()).collect()
    }

    fn name(&self, headers: &HeaderMap, is_secure: bool) -> String {
        let name = if is_secure { self.secure } else { self.plain };
        let host = headers.get(header::HOST).and_then(|host| host.to_str().ok());
        let port = host.and_then(|host| host.rsplit_once(':')?.1.parse::<u16>().ok());
        port.map_or_else(|| name.to_owned(), |port| format!("{name}-{port}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cookies_are_kept_from_scripts_and_other_sites() {
        let none = HeaderMap::new();
        let secure = SESSION.set("x", &none, true);
        assert_eq!(secure, "__Host-martlet-console=x; Path=/; HttpOnly; SameSite=Strict; Secure");
        assert!(!SESSION.set("x", &none, false).contains("Secure"));
        assert!(SESSION.set("", &none, false).contains("Max-Age=0"));
        let login = LOGIN.set("x", &none, true);
        let expected =
            "__Host-martlet-login=x; Path=/; HttpOnly; SameSite=Lax; Secure; Max-Age=600";
        assert_eq!(login, expected);
    }
}
