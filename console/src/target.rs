//! Targets of S3 requests in paths of the console: `/s3/BUCKET/KEY`, where `KEY` is the base64 of the
//! key's bytes, in the alphabet of URLs and without padding.
//!
//! Browsers resolve `..`, `%2e%2e` and `\` in paths before they send them. A key of a hostile tenant,
//! such as `../../session`, would otherwise lead a request to another route of this console.

use axum::extract::Query;
use axum::http::Uri;
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};

/// Characters that S3 encodes in queries.
pub(crate) const QUERY: &AsciiSet =
    &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~');
/// Characters that S3 encodes in keys.
const PATH: &AsciiSet = &QUERY.remove(b'/');
/// Maximum length of a key, in bytes.
const KEY_BYTES_MAX: usize = 1024;
/// Maximum length of a bucket's name, in bytes, with the suffix of a view.
const BUCKET_BYTES_MAX: usize = 80;
/// Parameters by which a query carries a signature of its own.
const SIGNED: [&str; 3] = ["awsaccesskeyid", "signature", "expires"];
/// Prefix of such parameters in version 4.
const SIGNED_PREFIX: &str = "x-amz-";

/// Query key of replies that have tokens, which read an object without a signature.
const LOCATE: &str = "locate";

/// Target of a request: the service, a bucket, or an object.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct S3Target {
    pub(crate) bucket: Option<String>,
    pub(crate) key: Option<String>,
}

impl S3Target {
    /// Reads the path of a request of a page.
    ///
    /// # Errors
    /// A sentence for the page.
    pub(crate) fn of_path(path: &str) -> Result<Self, &'static str> {
        let rest = path.strip_prefix("/s3").ok_or("the path is not one of S3")?;
        let mut parts = rest.split('/').skip(1).filter(|part| !part.is_empty());
        let (bucket, key) = (parts.next(), parts.next());
        if parts.next().is_some() {
            return Err("the path has more than a bucket and a key");
        }
        let bucket = bucket.map(|name| named(name).ok_or("the bucket's name is invalid"));
        let key = key.map(|text| decoded(text).ok_or("the key is not the base64 of a text"));
        Ok(Self { bucket: bucket.transpose()?, key: key.transpose()? })
    }

    /// Target of an object, or `None` if the bucket's name or the key is invalid.
    pub(crate) fn object(bucket: &str, key: &str) -> Option<Self> {
        let is_key = !key.is_empty() && key.len() <= KEY_BYTES_MAX;
        let bucket = named(bucket).filter(|_| is_key)?;
        Some(Self { bucket: Some(bucket), key: Some(key.to_owned()) })
    }

    /// Path of the target at the S3 address. `..` in a key stays as it is.
    pub(crate) fn s3_path(&self) -> String {
        let mut path = String::from("/");
        path.push_str(self.bucket.as_deref().unwrap_or_default());
        if let Some(key) = &self.key {
            path.push('/');
            path.push_str(&encode(key, PATH));
        }
        path
    }

    /// Value of `Content-Disposition` under which a browser saves the object.
    pub(crate) fn disposition(&self) -> String {
        let key = self.key.as_deref().unwrap_or_default();
        let name = key.trim_end_matches('/').rsplit('/').next().unwrap_or_default();
        if name.is_empty() {
            return "attachment".to_owned();
        }
        format!("attachment; filename*=UTF-8''{}", encode(name, QUERY))
    }
}

/// Returns the query of a request of a page, encoded as S3 signs it and without the
/// console's `own` parameter.
///
/// # Errors
/// A sentence for the page: the query can't be read, or carries a signature of its own.
pub(crate) fn s3_query(uri: &Uri, own: &str) -> Result<String, &'static str> {
    let pairs: Query<Vec<(String, String)>> =
        Query::try_from_uri(uri).map_err(|_| "the query can't be read")?;
    let mut query = String::new();
    for (name, value) in pairs.0.iter().filter(|(name, _)| name != own) {
        if name == LOCATE {
            return Err("tokens for reads in place are not for pages");
        }
        let lower = name.to_ascii_lowercase();
        if lower.starts_with(SIGNED_PREFIX) || SIGNED.contains(&lower.as_str()) {
            return Err("the query has a signature of its own: the console signs requests itself");
        }
        query.push(if query.is_empty() { '?' } else { '&' });
        query.push_str(&encode(name, QUERY));
        query.push('=');
        query.push_str(&encode(value, QUERY));
    }
    Ok(query)
}

/// Percent-encodes a text.
pub(crate) fn encode(text: &str, set: &'static AsciiSet) -> String {
    utf8_percent_encode(text, set).to_string()
}

fn named(name: &str) -> Option<String> {
    let is_start = name.bytes().next().is_some_and(|byte| byte.is_ascii_alphanumeric());
    let is_inner = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.' | b'_');
    let is_name = is_start && name.len() <= BUCKET_BYTES_MAX && name.bytes().all(is_inner);
    is_name.then(|| name.to_owned())
}

fn decoded(text: &str) -> Option<String> {
    let bytes = URL_SAFE_NO_PAD.decode(text).ok()?;
    String::from_utf8(bytes).ok().filter(|key| !key.is_empty() && key.len() <= KEY_BYTES_MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn path_of(key: &str) -> String {
        format!("/s3/train/{}", URL_SAFE_NO_PAD.encode(key))
    }

    #[test]
    fn hostile_keys_stay_within_their_bucket() {
        for (key, wanted) in [
            ("../../session", "/train/../../session"),
            ("a//b", "/train/a//b"),
            ("a%2fb?x#y", "/train/a%252fb%3Fx%23y"),
            ("é \\\n", "/train/%C3%A9%20%5C%0A"),
            (".", "/train/."),
        ] {
            let target = S3Target::of_path(&path_of(key)).unwrap();
            assert_eq!(target.key.as_deref(), Some(key));
            assert_eq!(target.s3_path(), wanted);
        }
        let long = "k".repeat(KEY_BYTES_MAX);
        assert!(S3Target::of_path(&path_of(&long)).is_ok());
        assert!(S3Target::of_path(&path_of(&format!("{long}k"))).is_err());
    }

    #[test]
    fn other_paths_are_refused() {
        for path in [
            "/s3/..",
            "/s3/../session",
            "/s3/train/../../session",
            "/s3/train/a%2fb",
            "/s3/tr%2fain/YQ",
            "/s3/train/YQ==",
            "/s3/train/YQ/YQ",
            "/s3/.train",
            "/s3/-/YQ",
            "/s3/train/_w",
            "/api/x",
        ] {
            assert!(S3Target::of_path(path).is_err(), "{path}");
        }
        for path in ["/s3", "/s3/"] {
            assert_eq!(S3Target::of_path(path), Ok(S3Target::default()));
        }
        let bucket = S3Target::of_path("/s3/train--committed/").unwrap();
        assert_eq!((bucket.s3_path().as_str(), &bucket.key), ("/train--committed", &None));
    }

    #[test]
    fn queries_are_encoded_as_signed_and_carry_no_signature() {
        let of = |query: &str| s3_query(&format!("/s3/b?{query}").parse().unwrap(), "own");
        assert_eq!(of("prefix=a+b%2F*&uploads").unwrap(), "?prefix=a%20b%2F%2A&uploads=");
        assert_eq!(s3_query(&"/s3/b".parse().unwrap(), "own").unwrap(), "");
        for query in ["X-Amz-Signature=1", "x-amz-security-token=1", "x%2Damz-date=1"] {
            assert!(of(query).is_err(), "{query}");
        }
        for query in ["a=b&Signature=1", "AWSAccessKeyId=1", "Expires=1"] {
            assert!(of(query).is_err(), "{query}");
        }
    }

    #[test]
    fn files_have_the_last_part_of_their_key_as_name() {
        let of = |key: &str| S3Target::object("train", key).unwrap().disposition();
        assert_eq!(of("a/b c.html"), "attachment; filename*=UTF-8''b%20c.html");
        assert_eq!(of("a/\"\r\nx: y/"), "attachment; filename*=UTF-8''%22%0D%0Ax%3A%20y");
        assert_eq!(of("/"), "attachment");
    }
}
