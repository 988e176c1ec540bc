//! SigV4 for the bench's requests, with the primitives of `aws-sigv4`.
//!
//! All paths, queries and headers here are already canonical: keys are plain ASCII, and queries are
//! sorted. So the canonical request is built directly, and the signing key is made once a day.

use std::fmt::Write as _;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use aws_sigv4::sign::v4::{calculate_signature, generate_signing_key};
use sha2::{Digest, Sha256};
use time::OffsetDateTime;
use time::macros::format_description;

/// Payload hash of an unsigned body.
pub(super) const UNSIGNED_PAYLOAD: &str = "UNSIGNED-PAYLOAD";

const SIGNED_HEADERS: &str = "host;x-amz-content-sha256;x-amz-date";

/// Credentials and region of the signer.
#[derive(Clone, Debug)]
pub(super) struct SigningIdentity {
    pub(super) access_key: String,
    pub(super) secret_key: String,
    pub(super) region: String,
}

/// Signer of requests to one host. Each worker has its own signer.
#[derive(Clone, Debug)]
pub(super) struct Signer {
    identity: SigningIdentity,
    host: String,
    day: String,
    key: Vec<u8>,
    text: String,
}

/// Signed parts of a request.
#[derive(Clone, Copy, Debug)]
pub(super) struct SignedRequest<'a> {
    pub(super) method: &'a str,
    /// Canonically encoded path.
    pub(super) path: &'a str,
    /// Canonically encoded and sorted query.
    pub(super) query: &'a str,
    /// Hash of the payload in hexadecimal, or [`UNSIGNED_PAYLOAD`].
    pub(super) payload: &'a str,
    /// Names and values of more signed headers, which sort after `x-amz-date`.
    pub(super) extra: &'a [(&'static str, String)],
}

/// Headers that carry a signature.
#[derive(Debug)]
pub(super) struct Signature {
    pub(super) date: String,
    pub(super) authorization: String,
}

impl Signer {
    pub(super) fn new(identity: SigningIdentity, host: &str) -> Self {
        Self {
            identity,
            host: host.to_owned(),
            day: String::new(),
            key: Vec::new(),
            text: String::new(),
        }
    }

    /// Signs a request by its headers.
    pub(super) fn headers(&mut self, request: SignedRequest<'_>, now_ms: u64) -> Signature {
        let date = self.at(now_ms);
        let SignedRequest { method, path, query, payload, extra } = request;
        let (mut names, mut lines) = (SIGNED_HEADERS.to_owned(), String::new());
        for (name, value) in extra {
            names = names + ";" + name;
            lines = lines + name + ":" + value + "\n";
        }
        let host = &self.host;
        self.text.clear();
        write!(
            self.text,
            "{method}\n{path}\n{query}\nhost:{host}\nx-amz-content-sha256:{payload}\n\
             x-amz-date:{date}\n{lines}\n{names}\n{payload}",
        )
        .expect("writing to a String can't fail");
        let signature = self.signature(&date);
        let authorization = format!(
            "AWS4-HMAC-SHA256 Credential={}/{},SignedHeaders={names},Signature={signature}",
            self.identity.access_key,
            self.scope(),
        );
        Signature { date, authorization }
    }

    /// Returns the query of a presigned URL. Parameters in `query` must sort after `X-Amz-`, as
    /// lower case does.
    pub(super) fn presign(
        &mut self,
        request: SignedRequest<'_>,
        now_ms: u64,
        expires_s: u64,
    ) -> String {
        let date = self.at(now_ms);
        let SignedRequest { method, path, query, .. } = request;
        let credential =
            format!("{}/{}", self.identity.access_key, self.scope()).replace('/', "%2F");
        let query = format!(
            "X-Amz-Algorithm=AWS4-HMAC-SHA256&X-Amz-Credential={credential}&X-Amz-Date={date}\
             &X-Amz-Expires={expires_s}&X-Amz-SignedHeaders=host{}{query}",
            if query.is_empty() { "" } else { "&" },
        );
        let host = &self.host;
        self.text.clear();
        write!(self.text, "{method}\n{path}\n{query}\nhost:{host}\n\nhost\n{UNSIGNED_PAYLOAD}")
            .expect("writing to a String can't fail");
        let signature = self.signature(&date);
        format!("{query}&X-Amz-Signature={signature}")
    }

    /// Returns the date header for a time. Makes a new signing key when the day changes.
    fn at(&mut self, now_ms: u64) -> String {
        let now = UNIX_EPOCH + Duration::from_millis(now_ms);
        let date = OffsetDateTime::from(now)
            .format(format_description!("[year][month][day]T[hour][minute][second]Z"))
            .expect("every date of the clock can be written");
        if date[..8] != self.day {
            date[..8].clone_into(&mut self.day);
            self.key = signing_key(&self.identity, now);
        }
        date
    }

    fn scope(&self) -> String {
        format!("{}/{}/s3/aws4_request", self.day, self.identity.region)
    }

    /// Returns the signature of the canonical request in `self.text`.
    fn signature(&self, date: &str) -> String {
        let hash = hex::encode(Sha256::digest(&self.text));
        let string = format!("AWS4-HMAC-SHA256\n{date}\n{}\n{hash}", self.scope());
        calculate_signature(&self.key, string.as_bytes())
    }
}

fn signing_key(identity: &SigningIdentity, day: SystemTime) -> Vec<u8> {
    generate_signing_key(&identity.secret_key, day, &identity.region, "s3").as_ref().to_vec()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// 2013-05-24T00:00:00Z, the day of the examples in S3's documentation.
    const EXAMPLE_MS: u64 = 1_369_353_600_000;

    fn example() -> Signer {
        let identity = SigningIdentity {
            access_key: "AKIAIOSFODNN7EXAMPLE".to_owned(),
            secret_key: "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY".to_owned(),
            region: "us-east-1".to_owned(),
        };
        Signer::new(identity, "examplebucket.s3.amazonaws.com")
    }

    const EMPTY: &str = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";

    #[test]
    fn signs_as_the_documentation_does() {
        let request = SignedRequest {
            method: "GET",
            path: "/",
            query: "max-keys=2&prefix=J",
            payload: EMPTY,
            extra: &[],
        };
        let signature = example().headers(request, EXAMPLE_MS);
        assert_eq!(signature.date, "20130524T000000Z");
        assert_eq!(
            signature.authorization,
            "AWS4-HMAC-SHA256 Credential=AKIAIOSFODNN7EXAMPLE/20130524/us-east-1/s3/aws4_request,\
             SignedHeaders=host;x-amz-content-sha256;x-amz-date,\
             Signature=34b48302e7b5fa45bde8084f4b7868a86f0a534bc59db6670ed5711ef69dc6f7",
        );
    }

    #[test]
    fn presigns_as_the_documentation_does() {
        let request = SignedRequest {
            method: "GET",
            path: "/test.txt",
            query: "",
            payload: UNSIGNED_PAYLOAD,
            extra: &[],
        };
        let query = example().presign(request, EXAMPLE_MS, 86400);
        assert_eq!(
            query,
            "X-Amz-Algorithm=AWS4-HMAC-SHA256\
             &X-Amz-Credential=AKIAIOSFODNN7EXAMPLE%2F20130524%2Fus-east-1%2Fs3%2Faws4_request\
             &X-Amz-Date=20130524T000000Z&X-Amz-Expires=86400&X-Amz-SignedHeaders=host\
             &X-Amz-Signature=aeeed9bbccd4d02ee5c0109b86d86835f995330da4c265957d157751f604d404",
        );
    }

    #[test]
    fn a_new_day_has_a_new_key() {
        let mut signer = example();
        let request =
            SignedRequest { method: "GET", path: "/", query: "", payload: EMPTY, extra: &[] };
        let first = signer.headers(request, EXAMPLE_MS);
        let later = signer.headers(request, EXAMPLE_MS + 86_400_000);
        assert!(later.authorization.contains("/20130525/"));
        assert_ne!(first.authorization, later.authorization);
        assert_eq!(signer.headers(request, EXAMPLE_MS).authorization, first.authorization);
    }
}
