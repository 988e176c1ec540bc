//! URLs of a provider that may be fetched.

use std::net::IpAddr;

use url::{Host, Url};

/// Checks the URL of an issuer.
///
/// # Errors
/// A sentence without the URL: the URL isn't HTTPS, is HTTP beyond the loopback interface, or has a
/// user, a query or a fragment.
pub fn check_issuer(issuer: &str) -> Result<(), String> {
    let url = parse(issuer)?;
    if url.query().is_some() {
        return Err("the URL of an issuer has no query".to_owned());
    }
    Ok(())
}

/// Parses a URL that may be fetched.
///
/// # Errors
/// As [`check_issuer`], but a query is accepted.
pub(crate) fn parse(text: &str) -> Result<Url, String> {
    let url = Url::parse(text).map_err(|error| format!("a URL of the provider: {error}"))?;
    let is_loopback = match url.host() {
        Some(Host::Domain(name)) => name == "localhost",
        Some(Host::Ipv4(ip)) => IpAddr::V4(ip).is_loopback(),
        Some(Host::Ipv6(ip)) => IpAddr::V6(ip).is_loopback(),
        None => return Err("a URL of the provider has no host".to_owned()),
    };
    if url.scheme() != "https" && !(url.scheme() == "http" && is_loopback) {
        return Err(
            "a URL of the provider must be https; http is for the loopback interface alone"
                .to_owned(),
        );
    }
    if !url.username().is_empty() || url.password().is_some() || url.fragment().is_some() {
        return Err("a URL of the provider has no user and no fragment".to_owned());
    }
    Ok(url)
}

/// Parses an endpoint that the metadata of `issuer` names.
///
/// # Errors
/// As [`parse`], or HTTP although the issuer is HTTPS.
pub(crate) fn parse_of(issuer: &str, text: &str) -> Result<Url, String> {
    let url = parse(text)?;
    if issuer.starts_with("https:") && url.scheme() != "https" {
        return Err("an endpoint of an https provider must be https".to_owned());
    }
    Ok(url)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn plain_http_is_for_the_loopback_alone() {
        for url in [
            "https://idp.example/realm",
            "https://10.0.0.7:8443",
            "http://127.0.0.1:8080/realm",
            "http://[::1]:8080",
            "http://localhost",
        ] {
            assert_eq!(check_issuer(url), Ok(()), "{url}");
        }
        for url in [
            "http://idp.example",
            "http://10.0.0.7",
            "http://localhost.example",
            "ftp://127.0.0.1",
            "file:///etc/passwd",
            "https://me:secret@idp.example",
            "https://idp.example#x",
            "https://idp.example?x=y",
            "idp.example",
            "",
        ] {
            let refusal = check_issuer(url).unwrap_err();
            assert!(!refusal.contains("secret"), "{refusal}");
        }
    }

    #[test]
    fn an_https_provider_names_no_plain_endpoint() {
        let at = |issuer: &str| parse_of(issuer, "http://127.0.0.1:1/token").is_ok();
        assert!(at("http://127.0.0.1:1") && !at("https://idp.example"));
        assert!(parse_of("https://idp.example", "https://other.example/token?v=2").is_ok());
    }
}
