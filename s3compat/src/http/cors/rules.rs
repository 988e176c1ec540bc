//! Matching of requests with the CORS rules of a bucket, without I/O.
//!
//! The first rule applies that allows the origin, the method and (in a preflight) every requested
//! header. A pattern has at most one `*`, so that a match takes time linear in its length.

use std::fmt::Write as _;

use http::header::{
    ACCESS_CONTROL_ALLOW_CREDENTIALS, ACCESS_CONTROL_ALLOW_HEADERS, ACCESS_CONTROL_ALLOW_METHODS,
    ACCESS_CONTROL_ALLOW_ORIGIN, ACCESS_CONTROL_EXPOSE_HEADERS, ACCESS_CONTROL_MAX_AGE,
};
use http::{HeaderMap, HeaderName, HeaderValue};
use s3s::dto::CORSRule;

/// Request of a browser.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct BrowserRequest {
    /// Origin of the page.
    pub(super) origin: String,
    /// Method that the page will use, or has used.
    pub(super) method: String,
    /// Headers that the page will send, in lower case.
    pub(super) headers: Vec<String>,
}

impl BrowserRequest {
    /// Headers that grant the request. None if no rule does.
    pub(super) fn grant(&self, rules: &[CORSRule]) -> Option<HeaderMap> {
        rules.iter().find_map(|rule| {
            let origin = rule.allowed_origins.iter().find(|it| matches(it, &self.origin))?;
            let is_granted = rule.allowed_methods.contains(&self.method)
                && self.headers.iter().all(|header| allows_header(rule, header));
            is_granted.then(|| self.headers_of(rule, origin))
        })
    }

    fn headers_of(&self, rule: &CORSRule, origin: &str) -> HeaderMap {
        let mut headers = HeaderMap::new();
        let mut set = |name: HeaderName, value: &str| {
            // A value that no header can hold was in no request.
            if let Ok(value) = HeaderValue::from_str(value) {
                headers.insert(name, value);
            }
        };
        if origin == "*" {
            set(ACCESS_CONTROL_ALLOW_ORIGIN, "*");
        } else {
            set(ACCESS_CONTROL_ALLOW_ORIGIN, &self.origin);
            set(ACCESS_CONTROL_ALLOW_CREDENTIALS, "true");
        }
        set(ACCESS_CONTROL_ALLOW_METHODS, &rule.allowed_methods.join(", "));
        if !self.headers.is_empty() {
            set(ACCESS_CONTROL_ALLOW_HEADERS, &self.headers.join(", "));
        }
        if let Some(exposed) = rule.expose_headers.as_ref().filter(|it| !it.is_empty()) {
            set(ACCESS_CONTROL_EXPOSE_HEADERS, &exposed.join(", "));
        }
        if let Some(seconds) = rule.max_age_seconds {
            let mut text = String::new();
            write!(text, "{seconds}").expect("writing to a String can't fail");
            set(ACCESS_CONTROL_MAX_AGE, &text);
        }
        headers
    }
}

/// Returns true if a rule allows a header. Names of headers have no case.
fn allows_header(rule: &CORSRule, header: &str) -> bool {
    let patterns = rule.allowed_headers.iter().flatten();
    patterns.map(|pattern| pattern.to_ascii_lowercase()).any(|pattern| matches(&pattern, header))
}

/// Returns true if `text` matches `pattern`, whose only `*` stands for any text.
fn matches(pattern: &str, text: &str) -> bool {
    match pattern.split_once('*') {
        None => pattern == text,
        Some((head, tail)) => {
            let middle = text.strip_prefix(head);
            middle.is_some_and(|rest| rest.ends_with(tail))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rule(methods: &[&str], origins: &[&str], headers: &[&str]) -> CORSRule {
        let list = |texts: &[&str]| texts.iter().map(|&text| text.to_owned()).collect();
        CORSRule {
            allowed_headers: Some(list(headers)),
            allowed_methods: list(methods),
            allowed_origins: list(origins),
            expose_headers: None,
            id: None,
            max_age_seconds: None,
        }
    }

    fn wish(origin: &str, method: &str, headers: &[&str]) -> BrowserRequest {
        let headers = headers.iter().map(|&header| header.to_owned()).collect();
        BrowserRequest { origin: origin.to_owned(), method: method.to_owned(), headers }
    }

    #[test]
    fn one_star_stands_for_anything() {
        for (pattern, text, is_match) in [
            ("*", "", true),
            ("*", "http://a", true),
            ("http://*.example.com", "http://www.example.com", true),
            ("http://*.example.com", "http://.example.com", true),
            ("http://*.example.com", "http://example.com", false),
            ("http://*.example.com", "http://www.example.com.evil.net", false),
            ("start*end", "startend", true),
            ("start*end", "startxend", true),
            ("start*end", "starend", false),
            ("aa*aa", "aaa", false),
            ("aa*aa", "aaaa", true),
            ("http://a", "http://A", false),
            ("http://a", "http://ab", false),
        ] {
            assert_eq!(matches(pattern, text), is_match, "{pattern} {text}");
        }
    }

    #[test]
    fn the_first_rule_that_allows_all_of_it_counts() {
        let rules = [
            rule(&["GET"], &["http://a", "http://*.b"], &[]),
            rule(&["PUT", "POST"], &["http://a"], &["x-amz-*", "Content-Type"]),
        ];
        let grant = |wish: BrowserRequest| wish.grant(&rules);
        let granted = grant(wish("http://a", "GET", &[])).unwrap();
        assert_eq!(granted[ACCESS_CONTROL_ALLOW_METHODS], "GET");
        let granted = grant(wish("http://a", "POST", &["content-type", "x-amz-date"])).unwrap();
        assert_eq!(granted[ACCESS_CONTROL_ALLOW_METHODS], "PUT, POST");
        assert_eq!(granted[ACCESS_CONTROL_ALLOW_HEADERS], "content-type, x-amz-date");
        for refused in [
            wish("http://c", "GET", &[]),
            wish("http://w.b", "PUT", &[]),
            wish("http://a", "DELETE", &[]),
            wish("http://a", "GET", &["content-type"]),
            wish("http://a", "PUT", &["content-type", "x-other"]),
        ] {
            assert_eq!(grant(refused.clone()), None, "{refused:?}");
        }
    }

    #[test]
    fn wildcard_origins_get_a_star_and_named_ones_get_credentials() {
        let mut open = rule(&["GET"], &["*"], &["*"]);
        open.expose_headers = Some(vec!["ETag".to_owned(), "x-amz-meta-a".to_owned()]);
        open.max_age_seconds = Some(3000);
        let granted = wish("http://a", "GET", &["x-any"]).grant(&[open]).unwrap();
        assert_eq!(granted[ACCESS_CONTROL_ALLOW_ORIGIN], "*");
        assert!(!granted.contains_key(ACCESS_CONTROL_ALLOW_CREDENTIALS));
        assert_eq!(granted[ACCESS_CONTROL_EXPOSE_HEADERS], "ETag, x-amz-meta-a");
        assert_eq!(granted[ACCESS_CONTROL_MAX_AGE], "3000");
        let granted =
            wish("http://a", "GET", &[]).grant(&[rule(&["GET"], &["http*"], &[])]).unwrap();
        assert_eq!(granted[ACCESS_CONTROL_ALLOW_ORIGIN], "http://a");
        assert_eq!(granted[ACCESS_CONTROL_ALLOW_CREDENTIALS], "true");
        assert!(!granted.contains_key(ACCESS_CONTROL_ALLOW_HEADERS));
    }
}
