//! SigV4 of requests, by `aws-sigv4`.

use std::time::{Duration, UNIX_EPOCH};

use aws_credential_types::Credentials as SignedCredentials;
use aws_sigv4::http_request::{
    PayloadChecksumKind, PercentEncodingMode, SignableBody, SignableRequest, SigningSettings,
    UriPathNormalizationMode, sign,
};
use aws_sigv4::sign::v4::SigningParams;
use http::{HeaderMap, HeaderName, HeaderValue, Method, Uri};

use super::credentials::Credentials;
use crate::error::{Error, ErrorKind, Result};

/// Body as the signature covers it.
#[derive(Clone, Copy, Debug)]
pub(super) enum SignedBody<'a> {
    /// Bytes whose SHA-256 is signed.
    Bytes(&'a [u8]),
    /// Chunks with a checksum in the trailer.
    Trailer,
}

/// Request without a signature.
#[derive(Clone, Copy, Debug)]
pub(super) struct Unsigned<'a> {
    pub(super) method: &'a Method,
    pub(super) uri: &'a Uri,
    /// All headers but `Content-Length`; all are signed.
    pub(super) headers: &'a HeaderMap,
    pub(super) body: SignedBody<'a>,
    pub(super) region: &'a str,
    /// Time of the signature, in milliseconds since 1970.
    pub(super) now_ms: u64,
}

/// Signs a request and returns the headers that carry the signature.
pub(super) fn signature(request: Unsigned<'_>, keys: &Credentials) -> Result<HeaderMap> {
    let unsignable = |why: &dyn std::fmt::Display| {
        Error::new(ErrorKind::Refused, format!("the request can't be signed: {why}"))
    };
    let mut headers = Vec::with_capacity(request.headers.len());
    for (name, value) in request.headers {
        let text = std::str::from_utf8(value.as_bytes())
            .map_err(|_| unsignable(&format_args!("the header {name} is not UTF-8")))?;
        headers.push((name.as_str(), text));
    }
    let body = match request.body {
        SignedBody::Bytes(bytes) => SignableBody::Bytes(bytes),
        SignedBody::Trailer => SignableBody::StreamingUnsignedPayloadTrailer,
    };
    let uri = request.uri.to_string();
    let signable = SignableRequest::new(request.method.as_str(), uri, headers.into_iter(), body)
        .map_err(|error| unsignable(&error))?;
    let identity = SignedCredentials::new(
        keys.access_key_id.as_str(),
        keys.secret_access_key.as_str(),
        keys.session_token.clone(),
        None,
        "martlet",
    )
    .into();
    let params = SigningParams::builder()
        .identity(&identity)
        .region(request.region)
        .name("s3")
        .time(UNIX_EPOCH + Duration::from_millis(request.now_ms))
        .settings(settings())
        .build()
        .map_err(|error| unsignable(&error))?;
    let signed = sign(signable, &params.into()).map_err(|error| unsignable(&error))?;
    let mut made = HeaderMap::new();
    for (name, value) in signed.output().headers() {
        let name = HeaderName::try_from(name).map_err(|error| unsignable(&error))?;
        let mut value = HeaderValue::try_from(value).map_err(|error| unsignable(&error))?;
        value.set_sensitive(true);
        made.insert(name, value);
    }
    Ok(made)
}

fn settings() -> SigningSettings {
    let mut settings = SigningSettings::default();
    settings.percent_encoding_mode = PercentEncodingMode::Single;
    settings.uri_path_normalization_mode = UriPathNormalizationMode::Disabled;
    settings.payload_checksum_kind = PayloadChecksumKind::XAmzSha256;
    settings
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The example of S3's documentation: 2013-05-24T00:00:00Z.
    #[test]
    fn signs_as_the_documentation_does() {
        let uri = "https://examplebucket.s3.amazonaws.com/?max-keys=2&prefix=J".parse().unwrap();
        let mut headers = HeaderMap::new();
        headers.insert("host", HeaderValue::from_static("examplebucket.s3.amazonaws.com"));
        let request = Unsigned {
            method: &Method::GET,
            uri: &uri,
            headers: &headers,
            body: SignedBody::Bytes(b""),
            region: "us-east-1",
            now_ms: 1_369_353_600_000,
        };
        let keys = Credentials {
            access_key_id: "AKIAIOSFODNN7EXAMPLE".into(),
            secret_access_key: "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY".into(),
            session_token: None,
        };
        let signed = signature(request, &keys).unwrap();
        let authorization = signed["authorization"].to_str().unwrap();
        let expected = "34b48302e7b5fa45bde8084f4b7868a86f0a534bc59db6670ed5711ef69dc6f7";
        assert!(authorization.ends_with(expected), "{authorization}");
        assert!(!format!("{signed:?}").contains(expected));
    }
}
