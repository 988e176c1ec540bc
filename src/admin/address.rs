//! Admin address of a process, as commands name it: host, port and scheme.

use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::str::FromStr;

use serde::Deserialize;

/// Admin address of a process.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(try_from = "String")]
pub(crate) struct AdminAddress {
    /// `http` or `https`, if the address names it.
    scheme: Option<Scheme>,
    /// Host name or IP address, without brackets.
    host: String,
    port: u16,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Scheme {
    Http,
    Https,
}

impl AdminAddress {
    /// Address on this machine with this port, in clear unless an authority is named.
    pub(crate) fn local(port: u16) -> Self {
        Self { scheme: None, host: "127.0.0.1".to_owned(), port }
    }

    /// Address of another process, with the scheme of this one if this one names a scheme.
    pub(crate) fn beside(&self, other: SocketAddr) -> Self {
        Self { scheme: self.scheme, host: other.ip().to_string(), port: other.port() }
    }

    /// Address at a host, with the scheme of this one if this one names a scheme.
    pub(crate) fn at_host(&self, host: &str, port: u16) -> Self {
        Self { scheme: self.scheme, host: host.to_owned(), port }
    }

    /// Host name or IP address, without brackets.
    pub(crate) fn host(&self) -> &str {
        &self.host
    }

    /// Port.
    pub(crate) fn port(&self) -> u16 {
        self.port
    }

    /// Returns true for TLS. Without a scheme, other machines are reached over TLS, because the
    /// token of a request in clear could be read on its way. So is this machine, if an authority
    /// for its certificate is named.
    pub(crate) fn is_secure(&self, has_authority: bool) -> bool {
        match self.scheme {
            Some(scheme) => scheme == Scheme::Https,
            None => has_authority || !self.is_local(),
        }
    }

    /// Returns true for the loopback interface of this machine.
    pub(crate) fn is_local(&self) -> bool {
        let is_loopback = |ip: IpAddr| ip.to_canonical().is_loopback();
        self.host == "localhost" || self.host.parse().is_ok_and(is_loopback)
    }
}

/// Host and port, as a `Host` header has them.
impl fmt::Display for AdminAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { host, port, .. } = self;
        if host.contains(':') { write!(f, "[{host}]:{port}") } else { write!(f, "{host}:{port}") }
    }
}

impl FromStr for AdminAddress {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let malformed =
            || format!("\"{text}\" is not an admin address: write HOST:PORT or https://HOST:PORT");
        let (scheme, rest) = match text.split_once("://") {
            Some(("http", rest)) => (Some(Scheme::Http), rest),
            Some(("https", rest)) => (Some(Scheme::Https), rest),
            Some(_) => return Err(malformed()),
            None => (None, text),
        };
        let authority = rest.strip_suffix('/').unwrap_or(rest);
        let (host, port) = authority.rsplit_once(':').ok_or_else(malformed)?;
        let port = port.parse().map_err(|_| malformed())?;
        let bare = host.strip_prefix('[').and_then(|host| host.strip_suffix(']'));
        let is_ipv6 = |host: &str| host.parse::<IpAddr>().is_ok_and(|ip| ip.is_ipv6());
        let is_name = |host: &str| {
            let is_plain = |c: char| c.is_ascii_alphanumeric() || "-._".contains(c);
            !host.is_empty() && host.chars().all(is_plain)
        };
        match bare {
            Some(bare) if is_ipv6(bare) => Ok(Self { scheme, host: bare.to_owned(), port }),
            None if is_name(host) => Ok(Self { scheme, host: host.to_owned(), port }),
            _ => Err(malformed()),
        }
    }
}

impl TryFrom<String> for AdminAddress {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        text.parse()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(text: &str) -> AdminAddress {
        text.parse().unwrap()
    }

    #[test]
    fn hosts_have_names_or_numbers() {
        for (text, shown) in [
            ("n1.example.com:9001", "n1.example.com:9001"),
            ("https://n1:9001/", "n1:9001"),
            ("http://10.0.0.1:9001", "10.0.0.1:9001"),
            ("[::1]:9001", "[::1]:9001"),
        ] {
            assert_eq!(parsed(text).to_string(), shown);
        }
        assert_eq!((parsed("[fd00::1]:7").host(), parsed("[fd00::1]:7").port()), ("fd00::1", 7));
        for text in ["", "n1", "ftp://n1:1", "n1:x", "n1:99999", "::1:9001", "[n1]:1", "a b:1"] {
            assert!(text.parse::<AdminAddress>().is_err(), "{text}");
        }
    }

    #[test]
    fn other_processes_have_the_scheme_that_is_named() {
        let other = "[fd00::1]:6201".parse().unwrap();
        assert_eq!(parsed("http://n1:9001").beside(other), parsed("http://[fd00::1]:6201"));
        assert_eq!(parsed("n1:9001").beside(other), parsed("[fd00::1]:6201"));
    }

    #[test]
    fn other_machines_are_reached_over_tls_unless_the_scheme_is_http() {
        for text in ["127.0.0.1:1", "localhost:1", "[::1]:1", "127.8.8.8:1"] {
            assert!(!parsed(text).is_secure(false), "{text}");
            assert!(parsed(text).is_secure(true), "{text}");
        }
        for text in ["n1:1", "10.0.0.1:1", "localhost.example.com:1", "https://127.0.0.1:1"] {
            assert!(parsed(text).is_secure(false), "{text}");
        }
        assert!(!parsed("http://n1:1").is_secure(true));
    }
}
