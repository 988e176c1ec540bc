//! Encryption headers of requests and replies.
//!
//! Customer keys are removed from a request's headers before any other code reads them, and are
//! never printed. The values are validated only after the bucket's policy, which may refuse a
//! request for its encryption headers even where they are invalid.

use std::fmt;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use http::{HeaderMap, HeaderName, HeaderValue, StatusCode};
use martlet_proxy::{CustomerKey, Encrypted, Keys};
use md5::{Digest, Md5};
use s3s::{S3Error, S3Result, s3_error};

use crate::errors::custom;
use crate::messages::{self, ErrorMessage};

const SERVER_NAME: &str = "x-amz-server-side-encryption";
const SERVER: HeaderName = HeaderName::from_static(SERVER_NAME);
const KMS_KEY: HeaderName = HeaderName::from_static("x-amz-server-side-encryption-aws-kms-key-id");
const KMS_CONTEXT: HeaderName = HeaderName::from_static("x-amz-server-side-encryption-context");
const ALGORITHM: HeaderName =
    HeaderName::from_static("x-amz-server-side-encryption-customer-algorithm");
const KEY: HeaderName = HeaderName::from_static("x-amz-server-side-encryption-customer-key");
const KEY_MD5: HeaderName =
    HeaderName::from_static("x-amz-server-side-encryption-customer-key-md5");
const SOURCE_ALGORITHM: HeaderName =
    HeaderName::from_static("x-amz-copy-source-server-side-encryption-customer-algorithm");
const SOURCE_KEY: HeaderName =
    HeaderName::from_static("x-amz-copy-source-server-side-encryption-customer-key");
const SOURCE_KEY_MD5: HeaderName =
    HeaderName::from_static("x-amz-copy-source-server-side-encryption-customer-key-md5");
/// The only supported algorithm.
pub(crate) const AES256: &str = "AES256";

/// Headers of one customer key.
#[derive(Clone, Default)]
struct CustomerKeyHeaders {
    algorithm: Option<HeaderValue>,
    key: Option<HeaderValue>,
    md5: Option<HeaderValue>,
}

/// Encryption headers of a request.
#[derive(Clone, Default)]
pub(crate) struct Encryption {
    server: Option<HeaderValue>,
    kms: bool,
    own: CustomerKeyHeaders,
    source: CustomerKeyHeaders,
}

/// Use of keys by an operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum KeyUse {
    /// Creates an object or an upload, or writes a part.
    Make,
    /// Reads an object.
    Read,
    /// Completes an upload: needs no key, but a given key must be the upload's.
    Complete,
    /// Validates keys and uses none.
    Nothing,
}

impl fmt::Debug for Encryption {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Encryption").field("server", &self.server).finish_non_exhaustive()
    }
}

impl CustomerKeyHeaders {
    fn is_silent(&self) -> bool {
        self.algorithm.is_none() && self.key.is_none() && self.md5.is_none()
    }

    /// Returns the key, or `None` without any of the headers.
    ///
    /// # Errors
    /// A missing header, another algorithm than AES256, a key that isn't 32 bytes, or a wrong MD5.
    fn key(&self) -> S3Result<Option<CustomerKey>> {
        if self.is_silent() {
            return Ok(None);
        }
        let algorithm =
            self.algorithm.as_ref().ok_or_else(|| refused(&messages::CUSTOMER_ALGORITHM))?;
        if algorithm.as_bytes() != AES256.as_bytes() {
            return Err(custom(
                "InvalidEncryptionAlgorithmError",
                "The encryption request that you specified is not valid. The valid value is AES256.",
                StatusCode::BAD_REQUEST,
            ));
        }
        let key = self.key.as_ref().ok_or_else(|| refused(&messages::CUSTOMER_KEY))?;
        let md5 = self.md5.as_ref().ok_or_else(|| refused(&messages::CUSTOMER_KEY_MD5))?;
        let key = STANDARD.decode(key.as_bytes()).ok();
        let key: [u8; 32] = key
            .and_then(|key| key.try_into().ok())
            .ok_or_else(|| refused(&messages::CUSTOMER_KEY_SIZE))?;
        if STANDARD.encode(Md5::digest(key)).as_bytes() != md5.as_bytes() {
            return Err(refused(&messages::CUSTOMER_KEY_MISMATCH));
        }
        Ok(Some(CustomerKey::new(&key)))
    }
}

impl Encryption {
    /// Removes customer keys from a request's headers and records all encryption headers. Returns
    /// `None` for a request without any.
    pub(crate) fn take(headers: &mut HeaderMap) -> Option<Self> {
        let speaks = |name: &HeaderName| {
            let name = name.as_str();
            name.starts_with(SERVER.as_str()) || name.starts_with("x-amz-copy-source-server-side-")
        };
        if !headers.keys().any(speaks) {
            return None;
        }
        Some(Self {
            server: headers.get(SERVER).cloned(),
            kms: headers.contains_key(KMS_KEY) || headers.contains_key(KMS_CONTEXT),
            own: CustomerKeyHeaders {
                algorithm: headers.get(ALGORITHM).cloned(),
                key: headers.remove(KEY),
                md5: headers.remove(KEY_MD5),
            },
            source: CustomerKeyHeaders {
                algorithm: headers.get(SOURCE_ALGORITHM).cloned(),
                key: headers.remove(SOURCE_KEY),
                md5: headers.remove(SOURCE_KEY_MD5),
            },
        })
    }

    /// Validated keys for an operation.
    pub(crate) fn keys(&self, used: KeyUse) -> S3Result<Keys> {
        let keys = Keys { managed: false, customer: self.own.key()?, source: self.source.key()? };
        match used {
            KeyUse::Make => Ok(Keys { managed: self.managed()?, ..keys }),
            KeyUse::Read if self.server.is_some() || self.kms => {
                Err(refused(&messages::ENCRYPTION_OF_READ))
            }
            KeyUse::Read => Ok(keys),
            KeyUse::Complete => Ok(Keys { customer: keys.customer, ..Keys::default() }),
            KeyUse::Nothing => Ok(Keys::default()),
        }
    }

    /// True if the request selects encryption by a master key of the server.
    fn managed(&self) -> S3Result<bool> {
        let server = match self.server.as_ref().map(HeaderValue::as_bytes) {
            None if self.kms => {
                return Err(refused(&messages::KMS_KEY_ALONE));
            }
            None => return Ok(false),
            Some(server) => server,
        };
        if !self.own.is_silent() {
            return Err(refused(&messages::CUSTOMER_AND_SERVER));
        }
        match server {
            b"AES256" if self.kms => Err(refused(&messages::KMS_KEY_WITH_AES256)),
            b"AES256" => Ok(true),
            b"aws:kms" | b"aws:kms:dsse" => Err(no_kms()),
            _ => {
                let server = String::from_utf8_lossy(server);
                Err(messages::ENCRYPTION_METHOD.argument(SERVER_NAME, server).into())
            }
        }
    }

    /// Adds the encryption of the reply's object to its headers.
    pub(crate) fn add_headers(said: Option<&Self>, encrypted: Encrypted, headers: &mut HeaderMap) {
        match (encrypted, said.and_then(|said| said.own.md5.clone())) {
            (Encrypted::Managed, _) => {
                headers.insert(SERVER, HeaderValue::from_static(AES256));
            }
            (Encrypted::Customer, Some(md5)) => {
                headers.insert(ALGORITHM, HeaderValue::from_static(AES256));
                headers.insert(KEY_MD5, md5);
            }
            (Encrypted::Customer, None) => {}
        }
    }

    /// True if the headers request a change of encryption, which permits a copy of an object onto
    /// itself.
    pub(crate) fn changes_copy(headers: &HeaderMap) -> bool {
        [SERVER, ALGORITHM, SOURCE_ALGORITHM].iter().any(|name| headers.contains_key(name))
    }
}

/// 501: no key management service exists.
pub(crate) fn no_kms() -> S3Error {
    s3_error!(
        NotImplemented,
        "Key management services are not supported: use AES256 with server or customer keys"
    )
}

/// An error about encryption. Like S3, it always names `x-amz-server-side-encryption`.
fn refused(sentence: &ErrorMessage) -> S3Error {
    sentence.named(SERVER_NAME).into()
}

#[cfg(test)]
mod tests {
    use super::*;

    const ZEROS: &str = "AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=";

    fn zeros_md5() -> String {
        STANDARD.encode(Md5::digest([0; 32]))
    }

    fn requested(pairs: &[(HeaderName, &str)]) -> Option<Encryption> {
        let value = |text: &str| HeaderValue::from_str(text).unwrap();
        let mut headers: HeaderMap =
            pairs.iter().map(|(name, text)| (name.clone(), value(text))).collect();
        let taken = Encryption::take(&mut headers);
        let secrets = [KEY, KEY_MD5, SOURCE_KEY, SOURCE_KEY_MD5];
        assert!(secrets.iter().all(|name| !headers.contains_key(name)));
        taken
    }

    fn keys(pairs: &[(HeaderName, &str)], used: KeyUse) -> Result<Keys, String> {
        let said = requested(pairs).expect("a header is set");
        said.keys(used).map_err(|error| error.code().as_str().to_owned())
    }

    #[test]
    fn a_customers_key_is_read_and_never_printed() {
        let md5 = zeros_md5();
        let own = [(ALGORITHM, AES256), (KEY, ZEROS), (KEY_MD5, md5.as_str())];
        for used in [KeyUse::Make, KeyUse::Read] {
            let keys = keys(&own, used).unwrap();
            assert!(keys.customer.is_some() && keys.source.is_none() && !keys.managed);
        }
        assert!(keys(&own, KeyUse::Nothing).unwrap().customer.is_none());
        let completed = keys(&own, KeyUse::Complete).unwrap();
        assert!(completed.customer.is_some() && !completed.managed);
        let source = [(SOURCE_ALGORITHM, AES256), (SOURCE_KEY, ZEROS), (SOURCE_KEY_MD5, &md5)];
        assert!(keys(&source, KeyUse::Make).unwrap().source.is_some());
        let said = requested(&own).unwrap();
        let printed = format!("{said:?} {:?}", said.keys(KeyUse::Read).unwrap());
        assert!(!printed.contains("AAAA") && !printed.contains(&md5), "{printed}");
        let mut reply = HeaderMap::new();
        Encryption::add_headers(Some(&said), Encrypted::Customer, &mut reply);
        assert_eq!(
            (&reply[ALGORITHM], &reply[KEY_MD5]),
            (&AES256.parse().unwrap(), &md5.parse().unwrap())
        );
    }

    #[test]
    fn a_key_that_is_not_whole_is_refused() {
        let md5 = zeros_md5();
        let short = STANDARD.encode([0; 16]);
        for wrong in [
            &[(ALGORITHM, AES256)][..],
            &[(KEY, ZEROS), (KEY_MD5, &md5)],
            &[(ALGORITHM, AES256), (KEY, ZEROS)],
            &[(ALGORITHM, AES256), (KEY_MD5, &md5)],
            &[(ALGORITHM, AES256), (KEY, ZEROS), (KEY_MD5, "AAAAAAAAAAAAAAAAAAAAAA==")],
            &[(ALGORITHM, AES256), (KEY, &short), (KEY_MD5, &md5)],
            &[(ALGORITHM, AES256), (KEY, "?"), (KEY_MD5, &md5)],
        ] {
            for used in [KeyUse::Make, KeyUse::Read, KeyUse::Nothing] {
                assert_eq!(keys(wrong, used).unwrap_err(), "InvalidArgument", "{wrong:?}");
            }
        }
        let other = [(ALGORITHM, "AES192"), (KEY, ZEROS), (KEY_MD5, &md5)];
        assert_eq!(keys(&other, KeyUse::Make).unwrap_err(), "InvalidEncryptionAlgorithmError");
    }

    #[test]
    fn server_side_encryption_needs_aes256() {
        assert!(keys(&[(SERVER, AES256)], KeyUse::Make).unwrap().managed);
        let refusal = |pairs: &[(HeaderName, &str)]| keys(pairs, KeyUse::Make).unwrap_err();
        assert_eq!(refusal(&[(SERVER, "aws:kms")]), "NotImplemented");
        assert_eq!(refusal(&[(SERVER, "aws:kms"), (KMS_KEY, "k")]), "NotImplemented");
        for wrong in [
            &[(SERVER, "aes:kms"), (KMS_KEY, "k")][..],
            &[(SERVER, AES256), (KMS_KEY, "k")],
            &[(KMS_KEY, "k")],
            &[(SERVER, "")],
        ] {
            assert_eq!(refusal(wrong), "InvalidArgument", "{wrong:?}");
        }
        let md5 = zeros_md5();
        for server in [AES256, "aws:kms"] {
            let both = [(SERVER, server), (ALGORITHM, AES256), (KEY, ZEROS), (KEY_MD5, &md5)];
            assert_eq!(refusal(&both), "InvalidArgument");
        }
        assert_eq!(keys(&[(SERVER, AES256)], KeyUse::Read).unwrap_err(), "InvalidArgument");
    }

    #[test]
    fn requests_without_encryption_headers_get_replies_without() {
        assert!(requested(&[("x-amz-copy-source".parse().unwrap(), "/b/k")]).is_none());
        let mut reply = HeaderMap::new();
        Encryption::add_headers(None, Encrypted::Customer, &mut reply);
        assert!(reply.is_empty(), "a completed upload brings no key");
        Encryption::add_headers(None, Encrypted::Managed, &mut reply);
        assert_eq!(reply[SERVER], AES256);
    }
}
