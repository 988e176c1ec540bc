//! A client that signs with AWS's own signer, for tests and the fuzz target.

use std::time::Duration;

use aws_credential_types::Credentials;
use aws_sigv4::http_request::{
    PayloadChecksumKind, PercentEncodingMode, SignableBody, SignableRequest, SignatureLocation,
    SigningSettings, UriPathNormalizationMode, sign,
};
use aws_sigv4::sign::v4::SigningParams;
use http::{HeaderMap, Request, Uri};

use super::{Keys, SecretKey, Timestamp};

/// Access key of the examples in AWS's documentation.
pub(crate) const ACCESS_KEY: &str = "AKIAIOSFODNN7EXAMPLE";
/// Secret of that access key.
pub(crate) const SECRET: &str = "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY";
/// 2013-05-24T00:00:00Z, the time of AWS's examples.
pub(crate) const NOW_MS: u64 = 1_369_353_600_000;

/// Keys of a server with the documentation's key as root.
pub(crate) fn keys() -> Keys {
    Keys::root(ACCESS_KEY, SecretKey::new(SECRET))
}

/// Parameters of a signed request.
#[derive(Clone, Copy)]
pub(crate) struct TestSignature {
    pub(crate) at_ms: u64,
    pub(crate) access_key: &'static str,
    pub(crate) secret: &'static str,
    pub(crate) region: &'static str,
    pub(crate) service: &'static str,
    /// Lifetime of a presigned link in seconds; `None` signs in headers.
    pub(crate) expires_s: Option<u64>,
}

impl Default for TestSignature {
    fn default() -> Self {
        Self {
            at_ms: NOW_MS,
            access_key: ACCESS_KEY,
            secret: SECRET,
            region: "us-east-1",
            service: "s3",
            expires_s: None,
        }
    }
}

impl TestSignature {
    /// A link that is valid for an hour.
    pub(crate) fn link() -> Self {
        Self { expires_s: Some(3600), ..Self::default() }
    }

    /// Signs a request without a body, or with a body of the hash `payload`.
    pub(crate) fn sign(self, mut request: Request<()>, payload: &str) -> Request<()> {
        let host = request.headers()["host"].to_str().expect("hosts are ASCII").to_owned();
        let uri = format!("http://{host}{}", request.uri());
        let headers: Vec<(String, String)> = text_of(request.headers());
        let signable = SignableRequest::new(
            request.method().as_str(),
            &uri,
            headers.iter().map(|(name, value)| (name.as_str(), value.as_str())),
            SignableBody::Precomputed(payload.to_owned()),
        )
        .expect("a request of HTTP can be signed");
        let identity = Credentials::new(self.access_key, self.secret, None, None, "test").into();
        let params = SigningParams::builder()
            .identity(&identity)
            .region(self.region)
            .name(self.service)
            .time(Timestamp::from_unix_ms(self.at_ms).system_time())
            .settings(self.settings())
            .build()
            .expect("all parameters are set");
        let signed = sign(signable, &params.into()).expect("a request of HTTP can be signed");
        let (instructions, _) = signed.into_parts();
        *request.uri_mut() = uri.parse().expect("host and target are a URI");
        instructions.apply_to_request_http1x(&mut request);
        let path = request.uri().path_and_query().expect("a signed URI has a path");
        let path = path.as_str().to_owned();
        *request.uri_mut() = path.parse::<Uri>().expect("a path is a URI");
        request
    }

    fn settings(self) -> SigningSettings {
        let mut settings = SigningSettings::default();
        settings.percent_encoding_mode = PercentEncodingMode::Single;
        settings.uri_path_normalization_mode = UriPathNormalizationMode::Disabled;
        match self.expires_s {
            None => settings.payload_checksum_kind = PayloadChecksumKind::XAmzSha256,
            Some(expires_s) => {
                settings.signature_location = SignatureLocation::QueryParams;
                settings.expires_in = Some(Duration::from_secs(expires_s));
            }
        }
        settings
    }
}

fn text_of(headers: &HeaderMap) -> Vec<(String, String)> {
    let text = |value: &http::HeaderValue| String::from_utf8_lossy(value.as_bytes()).into_owned();
    headers.iter().map(|(name, value)| (name.to_string(), text(value))).collect()
}
