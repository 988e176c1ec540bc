//! Signatures of S3 requests in the name of an access key, and links with a signature, by
//! `aws-sigv4`.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use aws_credential_types::Credentials;
use aws_sigv4::http_request::{
    PayloadChecksumKind, PercentEncodingMode, SignableBody, SignableRequest, SignatureLocation,
    SigningInstructions, SigningSettings, UriPathNormalizationMode, sign,
};
use aws_sigv4::sign::v4::SigningParams;
use axum::http::{HeaderMap, HeaderName, HeaderValue, Method};

/// Access key of a session. The secret stays in the memory of this process.
pub(crate) struct AccessKey {
    /// Id of the key.
    pub(crate) id: String,
    /// Name of the key's principal, as the token service returns it. Empty if it is unknown.
    pub(crate) arn: String,
    /// Name for people, if an identity provider has one.
    pub(crate) name: Option<String>,
    /// End of a temporary key, in milliseconds since 1970.
    expires_ms: Option<u64>,
    credentials: Credentials,
}

/// Service whose requests are signed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SignedService {
    S3,
    /// Security token service at the S3 address.
    Sts,
    /// Keys of users at the S3 address.
    Iam,
}

/// Request without a signature.
pub(crate) struct UnsignedRequest<'a> {
    pub(crate) method: &'a Method,
    /// Absolute URI, with path and query as they are sent.
    pub(crate) uri: &'a str,
    /// Headers with `host`; all are signed.
    pub(crate) headers: &'a HeaderMap,
    /// Bytes of the body, or `None` for a body that the signature does not cover.
    pub(crate) body: Option<&'a [u8]>,
    pub(crate) service: SignedService,
}

/// Place and time of a signature.
#[derive(Clone, Copy)]
pub(crate) struct SigningScope<'a> {
    pub(crate) region: &'a str,
    /// Time of the signature, in milliseconds since 1970.
    pub(crate) now_ms: u64,
}

impl AccessKey {
    pub(crate) fn new(id: String, secret: String) -> Self {
        let credentials = Credentials::new(id.clone(), secret, None, None, "console");
        Self { id, arn: String::new(), name: None, expires_ms: None, credentials }
    }

    /// Key of a session of a role, which ends at `expires_ms`. Requests carry its `token`.
    pub(crate) fn temporary(id: String, secret: String, token: String, expires_ms: u64) -> Self {
        let credentials = Credentials::new(id.clone(), secret, Some(token), None, "console");
        Self { id, arn: String::new(), name: None, expires_ms: Some(expires_ms), credentials }
    }

    /// Returns the end of a temporary key, in milliseconds since 1970.
    pub(crate) fn expires_ms(&self) -> Option<u64> {
        self.expires_ms
    }

    /// Returns the name by which requests and sessions are counted: the key's principal, who may have
    /// several keys, or the key's id if the principal is unknown.
    pub(crate) fn holder(&self) -> &str {
        if self.arn.is_empty() { &self.id } else { &self.arn }
    }

    /// Returns the account of the key, by its ARN.
    pub(crate) fn account(&self) -> Option<&str> {
        self.arn.split(':').nth(4).filter(|account| !account.is_empty())
    }

    /// Adds the name of the key's principal.
    pub(crate) fn named(self, arn: &str) -> Self {
        Self { arn: arn.to_owned(), ..self }
    }

    /// Returns the headers of a signed request, or `None` if a header is not text.
    pub(crate) fn sign(
        &self,
        request: &UnsignedRequest<'_>,
        scope: SigningScope<'_>,
    ) -> Option<HeaderMap> {
        let mut settings = settings();
        settings.payload_checksum_kind = PayloadChecksumKind::XAmzSha256;
        let made = self.instructions(request, scope, settings)?;
        let mut headers = request.headers.clone();
        for (name, value) in made.headers() {
            let mut value = HeaderValue::from_str(value).ok()?;
            value.set_sensitive(true);
            headers.insert(HeaderName::from_bytes(name.as_bytes()).ok()?, value);
        }
        Some(headers)
    }

    /// Returns a link that is valid for `expires_s` seconds. Only `host` is signed besides path and
    /// query.
    pub(crate) fn link(
        &self,
        request: &UnsignedRequest<'_>,
        scope: SigningScope<'_>,
        expires_s: u64,
    ) -> Option<String> {
        let mut settings = settings();
        settings.signature_location = SignatureLocation::QueryParams;
        settings.expires_in = Some(Duration::from_secs(expires_s));
        let made = self.instructions(request, scope, settings)?;
        let encode = |text: &str| crate::target::encode(text, crate::target::QUERY);
        let mut link = request.uri.to_owned();
        for (name, value) in made.params() {
            link.push(if link.contains('?') { '&' } else { '?' });
            link.push_str(&[encode(name), encode(value)].join("="));
        }
        Some(link)
    }

    fn instructions(
        &self,
        request: &UnsignedRequest<'_>,
        scope: SigningScope<'_>,
        settings: SigningSettings,
    ) -> Option<SigningInstructions> {
        let mut headers = Vec::with_capacity(request.headers.len());
        for (name, value) in request.headers {
            headers.push((name.as_str(), std::str::from_utf8(value.as_bytes()).ok()?));
        }
        let body = request.body.map_or(SignableBody::UnsignedPayload, SignableBody::Bytes);
        let signable =
            SignableRequest::new(request.method.as_str(), request.uri, headers.into_iter(), body);
        let identity = self.credentials.clone().into();
        let params = SigningParams::builder()
            .identity(&identity)
            .region(scope.region)
            .name(match request.service {
                SignedService::S3 => "s3",
                SignedService::Sts => "sts",
                SignedService::Iam => "iam",
            })
            .time(time_of(scope.now_ms))
            .settings(settings)
            .build()
            .ok()?;
        Some(sign(signable.ok()?, &params.into()).ok()?.into_parts().0)
    }
}

fn time_of(ms: u64) -> SystemTime {
    UNIX_EPOCH + Duration::from_millis(ms)
}

fn settings() -> SigningSettings {
    let mut settings = SigningSettings::default();
    settings.percent_encoding_mode = PercentEncodingMode::Single;
    settings.uri_path_normalization_mode = UriPathNormalizationMode::Disabled;
    settings
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Example of S3's documentation: 2013-05-24T00:00:00Z.
    const NOW_MS: u64 = 1_369_353_600_000;

    fn example() -> AccessKey {
        let secret = "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY";
        AccessKey::new("AKIAIOSFODNN7EXAMPLE".into(), secret.into())
    }

    fn request<'a>(
        uri: &'a str,
        headers: &'a HeaderMap,
        method: &'a Method,
    ) -> UnsignedRequest<'a> {
        let service = SignedService::S3;
        UnsignedRequest { method, uri, headers, body: Some(b""), service }
    }

    #[test]
    fn signs_and_links_as_the_documentation_does() {
        let host = HeaderValue::from_static("examplebucket.s3.amazonaws.com");
        let headers = HeaderMap::from_iter([("host".parse().unwrap(), host)]);
        let scope = SigningScope { region: "us-east-1", now_ms: NOW_MS };
        let list = "https://examplebucket.s3.amazonaws.com/?max-keys=2&prefix=J";
        let signed = example().sign(&request(list, &headers, &Method::GET), scope).unwrap();
        let authorization = signed["authorization"].to_str().unwrap();
        let expected = "34b48302e7b5fa45bde8084f4b7868a86f0a534bc59db6670ed5711ef69dc6f7";
        assert!(authorization.ends_with(expected), "{authorization}");
        assert!(!format!("{signed:?}").contains(expected));

        let get = "https://examplebucket.s3.amazonaws.com/test.txt";
        let unsigned = UnsignedRequest { body: None, ..request(get, &headers, &Method::GET) };
        let link = example().link(&unsigned, scope, 86_400).unwrap();
        let expected = "aeeed9bbccd4d02ee5c0109b86d86835f995330da4c265957d157751f604d404";
        assert!(link.starts_with(get) && link.contains("X-Amz-Expires=86400"), "{link}");
        assert!(link.contains(expected) && !link.contains("wJalr"), "{link}");
    }

    #[test]
    fn requests_of_temporary_keys_carry_their_token() {
        let host = HeaderValue::from_static("examplebucket.s3.amazonaws.com");
        let headers = HeaderMap::from_iter([("host".parse().unwrap(), host)]);
        let scope = SigningScope { region: "us-east-1", now_ms: NOW_MS };
        let key = AccessKey::temporary("ASIA".into(), "secret".into(), "t0k3n".into(), 7);
        assert_eq!(key.named("arn:aws:sts::lab:assumed-role/r/s").account(), Some("lab"));
        let key = AccessKey::temporary("ASIA".into(), "secret".into(), "t0k3n".into(), 7);
        let get = "https://examplebucket.s3.amazonaws.com/test.txt";
        let signed = key.sign(&request(get, &headers, &Method::GET), scope).unwrap();
        assert_eq!(signed["x-amz-security-token"], "t0k3n");
        let authorization = signed["authorization"].to_str().unwrap();
        assert!(authorization.contains("x-amz-security-token"), "{authorization}");
        let unsigned = UnsignedRequest { body: None, ..request(get, &headers, &Method::GET) };
        let link = key.link(&unsigned, scope, 60).unwrap();
        assert!(link.contains("X-Amz-Security-Token=t0k3n"), "{link}");
    }
}
