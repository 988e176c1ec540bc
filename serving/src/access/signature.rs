//! Signed requests of the admin API: SigV4 with the service `admin` in the region `martlet`.
//!
//! Both ends use the signer of `aws-sigv4`: a process signs the received request again with the
//! secret of the key, and compares the signatures in constant time. A signature covers method,
//! path, query, host, date, and the SHA-256 of the body; also each `x-amz-` and `x-martlet-` header.
//!
//! A date may be at most five minutes from the clock of the process.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use aws_credential_types::Credentials;
use aws_sigv4::http_request::{
    PayloadChecksumKind, PercentEncodingMode, SignableBody, SignableRequest, SigningSettings,
    UriPathNormalizationMode, sign,
};
use aws_sigv4::sign::v4::SigningParams;
use axum::http::header::{AUTHORIZATION, HOST};
use axum::http::{HeaderMap, HeaderName, Method, Uri};
use martlet_protocol::id::random_bytes;
use sha2::{Digest, Sha256};
use subtle::ConstantTimeEq;
use time::PrimitiveDateTime;
use time::macros::format_description;

use super::secret::is_key_id;

const ALGORITHM: &str = "AWS4-HMAC-SHA256";
const REGION: &str = "martlet";
const SERVICE: &str = "admin";
const DATE: &str = "x-amz-date";
const CONTENT: &str = "x-amz-content-sha256";
/// Header with random digits, so that two equal requests have different signatures.
const NONCE: &str = "x-martlet-nonce";
/// Largest difference between the date of a request and the clock of the process.
pub(crate) const SKEW_MS_MAX: u64 = 5 * 60 * 1000;

/// Key that signs requests.
#[derive(Clone)]
pub struct SigningKey {
    /// Id of the key.
    pub id: String,
    /// Secret of the key.
    pub secret: String,
}

impl std::fmt::Debug for SigningKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "SigningKey({})", self.id)
    }
}

/// Request that a client is going to send.
#[derive(Clone, Copy, Debug)]
pub struct UnsignedRequest<'a> {
    /// Method.
    pub method: &'a Method,
    /// Path and query, encoded.
    pub target: &'a str,
    /// Value of the header `host`.
    pub host: &'a str,
    /// Body.
    pub body: &'a [u8],
}

impl SigningKey {
    /// Signs a request at the time `now_ms`. Returns the headers that the request needs besides
    /// `host`.
    pub fn sign(&self, request: UnsignedRequest<'_>, now_ms: u64) -> Vec<(String, String)> {
        let nonce: [u8; 16] = random_bytes();
        let nonce = hex::encode(nonce);
        let headers = [("host", request.host), (NONCE, nonce.as_str())];
        let content = hex::encode(Sha256::digest(request.body));
        let (_, mut made) = self
            .signed(request.method, request.target, &headers, &content, now_ms)
            .expect("a request of this client can be signed");
        made.push((NONCE.to_owned(), nonce));
        made
    }

    /// Returns the signature of a request, and the headers that carry it. `None` for a request that
    /// can't be signed.
    fn signed(
        &self,
        method: &Method,
        target: &str,
        headers: &[(&str, &str)],
        content: &str,
        now_ms: u64,
    ) -> Option<(String, Vec<(String, String)>)> {
        let uri = format!("http://martlet{target}");
        let body = SignableBody::Precomputed(content.to_owned());
        let headers = headers.iter().copied();
        let signable = SignableRequest::new(method.as_str(), uri, headers, body).ok()?;
        let identity =
            Credentials::new(self.id.as_str(), self.secret.as_str(), None, None, "martlet").into();
        let params = SigningParams::builder()
            .identity(&identity)
            .region(REGION)
            .name(SERVICE)
            .time(time_of(now_ms))
            .settings(settings())
            .build()
            .ok()?;
        let (instructions, signature) = sign(signable, &params.into()).ok()?.into_parts();
        let made = instructions.headers().map(|(name, value)| (name.to_owned(), value.to_owned()));
        Some((signature, made.collect()))
    }
}

fn time_of(ms: u64) -> SystemTime {
    UNIX_EPOCH + Duration::from_millis(ms)
}

fn settings() -> SigningSettings {
    let mut settings = SigningSettings::default();
    settings.percent_encoding_mode = PercentEncodingMode::Single;
    settings.uri_path_normalization_mode = UriPathNormalizationMode::Disabled;
    settings.payload_checksum_kind = PayloadChecksumKind::XAmzSha256;
    settings.excluded_headers = None;
    settings
}

/// Signature that a request presents.
#[derive(Debug)]
pub(crate) struct PresentedSignature<'a> {
    /// Id of the key.
    pub(crate) key: &'a str,
    /// SHA-256 of the body, in hexadecimal digits.
    pub(crate) content: &'a str,
    /// Date of the signature, in milliseconds since 1970.
    pub(crate) signed_ms: u64,
    /// The signature itself.
    pub(crate) signature: &'a str,
    signed_headers: &'a str,
}

impl<'a> PresentedSignature<'a> {
    /// Reads the signature of a request.
    ///
    /// # Errors
    /// A sentence for the client.
    pub(crate) fn of(headers: &'a HeaderMap, authorization: &'a str) -> Result<Self, String> {
        let malformed = |what: &str| {
            format!(
                "the signature is malformed: {what}; sign with SigV4 for the service {SERVICE} in \
                 the region {REGION}"
            )
        };
        let fields = authorization.strip_prefix(ALGORITHM).unwrap_or_default();
        let field = |name: &str| {
            let values = fields.split(',').filter_map(|it| it.trim().split_once('='));
            let mut values = values.filter(|(other, _)| *other == name).map(|(_, value)| value);
            let value = values.next();
            value
                .filter(|_| values.next().is_none())
                .ok_or_else(|| malformed(&format!("no {name}")))
        };
        let scope: Vec<&str> = field("Credential")?.split('/').collect();
        let [key, day, REGION, SERVICE, "aws4_request"] = scope[..] else {
            return Err(malformed("its scope is another"));
        };
        if !is_key_id(key) {
            return Err(malformed("its key is not one of the admin API"));
        }
        let date = single(headers, DATE).ok_or_else(|| malformed("no x-amz-date"))?;
        let content = single(headers, CONTENT).filter(|it| it.len() == 64);
        let content = content.ok_or_else(|| malformed("no x-amz-content-sha256 of the body"))?;
        let signed_ms = parse_date(date).filter(|_| date.starts_with(day));
        let presented = Self {
            key,
            content,
            signed_ms: signed_ms.ok_or_else(|| malformed("x-amz-date differs from its scope"))?,
            signature: field("Signature")?,
            signed_headers: field("SignedHeaders")?,
        };
        match presented.unsigned_header(headers) {
            Some(name) => Err(malformed(&format!("it doesn't cover {name}"))),
            None => Ok(presented),
        }
    }

    /// Returns the name of a header that the signature must cover and doesn't.
    fn unsigned_header(&self, headers: &HeaderMap) -> Option<String> {
        let covers = |name: &str| self.signed_headers.split(';').any(|signed| signed == name);
        let names = headers.keys().map(HeaderName::as_str);
        let needed = names.filter(|name| {
            *name == HOST.as_str() || name.starts_with("x-amz-") || name.starts_with("x-martlet-")
        });
        let all = needed.chain([HOST.as_str(), DATE, CONTENT]);
        all.into_iter().find(|name| !covers(name)).map(str::to_owned)
    }

    /// Returns true if the date is near the clock.
    pub(crate) fn is_near(&self, now_ms: u64) -> bool {
        now_ms.abs_diff(self.signed_ms) <= SKEW_MS_MAX
    }

    /// Returns true if the key with this secret signed the request. Constant time.
    pub(crate) fn is_right(
        &self,
        secret: String,
        method: &Method,
        uri: &Uri,
        headers: &HeaderMap,
    ) -> bool {
        let own = [DATE, CONTENT, AUTHORIZATION.as_str()];
        let mut covered = Vec::new();
        for name in self.signed_headers.split(';').filter(|name| !own.contains(name)) {
            for value in headers.get_all(name) {
                // A value that is no text is never covered by a valid signature.
                let Ok(value) = value.to_str() else { return false };
                covered.push((name, value));
            }
        }
        let target = uri.path_and_query().map_or("/", |target| target.as_str());
        let key = SigningKey { id: self.key.to_owned(), secret };
        let expected = key.signed(method, target, &covered, self.content, self.signed_ms);
        expected.is_some_and(|(signature, _)| {
            signature.as_bytes().ct_eq(self.signature.as_bytes()).into()
        })
    }
}

/// Returns true if `body` is the signed one.
pub(crate) fn is_content(body: &[u8], content: &str) -> bool {
    hex::encode(Sha256::digest(body)).as_bytes().ct_eq(content.as_bytes()).into()
}

fn single<'a>(headers: &'a HeaderMap, name: &str) -> Option<&'a str> {
    let mut values = headers.get_all(name).iter();
    let value = values.next()?.to_str().ok()?;
    values.next().is_none().then_some(value)
}

/// Milliseconds since 1970 of a date such as `20261128T023000Z`.
fn parse_date(text: &str) -> Option<u64> {
    let format = format_description!("[year][month][day]T[hour][minute][second]Z");
    let date = PrimitiveDateTime::parse(text, &format).ok()?.assume_utc();
    u64::try_from(date.unix_timestamp()).ok()?.checked_mul(1000)
}

#[cfg(test)]
mod tests {
    use axum::http::HeaderValue;

    use super::*;

    const NOW_MS: u64 = 1_795_833_000_000;

    fn key() -> SigningKey {
        SigningKey { id: "MADMAAAAAAAAAAAAAAAA".into(), secret: "a secret".into() }
    }

    /// Head of a signed request.
    struct Head {
        method: Method,
        uri: Uri,
        headers: HeaderMap,
    }

    fn head(body: &[u8]) -> Head {
        let target = "/admin/v1/tenant?tenant=a%20b&x=%C3%BC%2B";
        let request = UnsignedRequest { method: &Method::PUT, target, host: "n1:9001", body };
        let mut headers = HeaderMap::new();
        headers.insert(HOST, HeaderValue::from_static("n1:9001"));
        for (name, value) in key().sign(request, NOW_MS) {
            let name: HeaderName = name.parse().unwrap();
            headers.insert(name, HeaderValue::from_str(&value).unwrap());
        }
        Head { method: Method::PUT, uri: target.parse().unwrap(), headers }
    }

    impl Head {
        fn is_right_for(&self, secret: &str) -> bool {
            let authorization = self.headers[AUTHORIZATION].to_str().unwrap();
            let presented = PresentedSignature::of(&self.headers, authorization);
            presented.is_ok_and(|it| {
                it.is_right(secret.to_owned(), &self.method, &self.uri, &self.headers)
            })
        }

        fn is_right(&self) -> bool {
            self.is_right_for("a secret")
        }
    }

    #[test]
    fn a_signature_covers_the_whole_head() {
        assert!(head(b"x").is_right());
        assert!(!head(b"x").is_right_for("another secret"));
        let changed = |change: &dyn Fn(&mut Head)| {
            let mut head = head(b"x");
            change(&mut head);
            head.is_right()
        };
        assert!(changed(&|_| ()));
        assert!(!changed(&|head| head.method = Method::DELETE));
        for uri in [
            "/admin/v1/tenant?tenant=a%20c&x=%C3%BC%2B",
            "/admin/v1/user?tenant=a%20b&x=%C3%BC%2B",
            "/admin/v1/tenant?tenant=a%20b",
            "/admin/v1/%74enant?tenant=a%20b&x=%C3%BC%2B",
        ] {
            assert!(!changed(&|head| head.uri = uri.parse().unwrap()), "{uri}");
        }
        for name in ["host", "x-amz-date", "x-amz-content-sha256", NONCE] {
            let other = HeaderValue::from_static("20261128T023001Z");
            assert!(!changed(&|head| drop(head.headers.insert(name, other.clone()))), "{name}");
            assert!(!changed(&|head| drop(head.headers.remove(name))), "{name}");
        }
        let added = HeaderValue::from_static("x");
        assert!(!changed(&|head| drop(head.headers.insert("x-martlet-other", added.clone()))));
        assert!(!changed(&|head| {
            head.headers.append("x-amz-date", added.clone());
        }));
        assert!(changed(&|head| drop(head.headers.insert("accept", added.clone()))));
    }

    #[test]
    fn two_equal_requests_have_different_signatures() {
        let [one, two] = [head(b""), head(b"")].map(|it| it.headers[AUTHORIZATION].clone());
        assert_ne!(one, two);
    }

    #[test]
    fn bodies_and_dates_are_checked() {
        let head = head(b"body");
        let authorization = head.headers[AUTHORIZATION].to_str().unwrap();
        let presented = PresentedSignature::of(&head.headers, authorization).unwrap();
        assert!(is_content(b"body", presented.content));
        assert!(!is_content(b"other", presented.content));
        assert_eq!(presented.signed_ms, NOW_MS);
        assert!(presented.is_near(NOW_MS + SKEW_MS_MAX) && presented.is_near(NOW_MS - SKEW_MS_MAX));
        assert!(!presented.is_near(NOW_MS + SKEW_MS_MAX + 1000));
        assert!(!presented.is_near(NOW_MS - SKEW_MS_MAX - 1000));
    }

    #[test]
    fn signatures_for_other_services_are_refused() {
        let head = head(b"");
        let authorization = head.headers[AUTHORIZATION].to_str().unwrap();
        let refusal = |from: &str, to: &str| {
            let changed = authorization.replace(from, to);
            assert_ne!(changed, authorization, "{from}");
            PresentedSignature::of(&head.headers, &changed).unwrap_err()
        };
        for (from, to) in [
            ("/admin/", "/s3/"),
            ("/martlet/", "/us-east-1/"),
            ("MADM", "AKIA"),
            ("Signature=", "Signed="),
            (ALGORITHM, "AWS4-ECDSA-P256-SHA256"),
            ("/2026", "/2025"),
            ("host;", ""),
        ] {
            assert!(refusal(from, to).contains("the signature is malformed"), "{from}");
        }
        let doubled = format!("{authorization}, Signature=00");
        assert!(PresentedSignature::of(&head.headers, &doubled).is_err());
    }
}
