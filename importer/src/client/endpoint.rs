//! Address of a bucket: scheme, host, path style or virtual-host style, and the URLs of its objects.

use std::fmt::Write as _;

use http::Uri;
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};

use crate::error::{Error, Result};

/// Characters that SigV4 leaves plain in a query are letters, digits and these four.
const QUERY: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'_').remove(b'.').remove(b'~');
const PATH: &AsciiSet = &QUERY.remove(b'/');

/// Place of the bucket's name in a URL.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Addressing {
    /// Host for endpoints of AWS, path for all others.
    #[default]
    Auto,
    /// In the path: `https://host/bucket/key`.
    Path,
    /// In the host: `https://bucket.host/key`.
    Virtual,
}

/// Parameters of a query, in any order.
pub(crate) type Query<'a> = &'a [(&'a str, &'a str)];

/// Bucket at an endpoint.
#[derive(Clone, Debug)]
pub(crate) struct Endpoint {
    scheme: &'static str,
    /// Host, with the port unless it is the scheme's.
    authority: String,
    bucket: String,
    is_virtual: bool,
}

impl Endpoint {
    /// Parses `http://host[:port]` or `https://host[:port]`.
    pub(crate) fn parse(url: &str, bucket: &str, addressing: Addressing) -> Result<Self> {
        let malformed = || {
            Error::fatal(format!(
                "the endpoint \"{url}\" must have the form http://host:port or https://host"
            ))
        };
        let uri: Uri = url.parse().map_err(|_| malformed())?;
        let authority = uri.authority().ok_or_else(malformed)?;
        let (scheme, port) = match uri.scheme_str() {
            Some("http") => ("http", 80),
            Some("https") => ("https", 443),
            _ => return Err(malformed()),
        };
        if !matches!(uri.path(), "" | "/") || authority.as_str().contains('@') {
            return Err(malformed());
        }
        let is_default = authority.port_u16().is_none_or(|it| it == port);
        let authority =
            if is_default { authority.host().to_owned() } else { authority.as_str().to_owned() };
        let is_virtual = match addressing {
            Addressing::Auto => authority.ends_with(".amazonaws.com") && !bucket.contains('.'),
            Addressing::Path => false,
            Addressing::Virtual => true,
        };
        Ok(Self { scheme, authority, bucket: bucket.to_owned(), is_virtual })
    }

    /// Returns the value of the header `Host`.
    pub(crate) fn host(&self) -> String {
        if self.is_virtual {
            format!("{}.{}", self.bucket, self.authority)
        } else {
            self.authority.clone()
        }
    }

    /// Returns the URL of the bucket, or of one of its objects.
    pub(crate) fn uri(&self, key: Option<&str>, query: Query<'_>) -> Result<Uri> {
        let mut url = format!("{}://{}", self.scheme, self.host());
        if !self.is_virtual {
            let _ = write!(url, "/{}", utf8_percent_encode(&self.bucket, QUERY));
        }
        if let Some(key) = key {
            let _ = write!(url, "/{}", utf8_percent_encode(key, PATH));
        } else if self.is_virtual {
            url.push('/');
        }
        let mut sorted = query.to_vec();
        sorted.sort_unstable();
        for (at, (name, value)) in sorted.iter().enumerate() {
            let mark = if at == 0 { '?' } else { '&' };
            let value = utf8_percent_encode(value, QUERY);
            let _ = write!(url, "{mark}{}={value}", utf8_percent_encode(name, QUERY));
        }
        url.parse().map_err(|_| Error::fatal(format!("{url} is not a URL")))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn endpoint(url: &str, addressing: Addressing) -> Endpoint {
        Endpoint::parse(url, "box", addressing).unwrap()
    }

    #[test]
    fn keys_are_encoded_as_signatures_need_them() {
        let endpoint = endpoint("http://127.0.0.1:9000", Addressing::Auto);
        let uri = endpoint.uri(Some("a b/ü+%.. /"), &[]).unwrap();
        assert_eq!(uri, "http://127.0.0.1:9000/box/a%20b/%C3%BC%2B%25..%20/");
        let uri = endpoint.uri(None, &[("prefix", "a/ b"), ("list-type", "2")]).unwrap();
        assert_eq!(uri, "http://127.0.0.1:9000/box?list-type=2&prefix=a%2F%20b");
        assert_eq!(endpoint.uri(Some("a/../b"), &[]).unwrap().path(), "/box/a/../b");
    }

    #[test]
    fn the_bucket_is_in_the_host_for_aws_and_on_request() {
        let aws = endpoint("https://s3.eu-west-1.amazonaws.com:443/", Addressing::Auto);
        assert_eq!(aws.host(), "box.s3.eu-west-1.amazonaws.com");
        let uri = aws.uri(Some("key"), &[("tagging", "")]).unwrap();
        assert_eq!(uri, "https://box.s3.eu-west-1.amazonaws.com/key?tagging=");
        let own = endpoint("http://store:9000", Addressing::Virtual);
        assert_eq!(own.uri(None, &[]).unwrap(), "http://box.store:9000/");
        let dotted = Endpoint::parse("https://s3.amazonaws.com", "a.b", Addressing::Auto).unwrap();
        assert_eq!(dotted.host(), "s3.amazonaws.com");
    }

    #[test]
    fn other_urls_are_refused() {
        for url in ["store:9000", "ftp://store", "http://store/path", "https://me@store", ""] {
            assert!(Endpoint::parse(url, "box", Addressing::Auto).is_err(), "{url}");
        }
    }
}
