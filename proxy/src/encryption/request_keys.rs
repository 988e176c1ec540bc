//! Encryption keys of a request: encryption of new objects, and checks of the customer's key
//! against the object's.

use std::sync::OnceLock;

use martlet_protocol::Setting;
use martlet_protocol::entry::{Attributes, Bucket, Mark, Marks};

use super::keys::{CustomerKey, Locked, ObjectAddress, Secret, Wrapper};
use crate::error::{Error, Result};
use crate::keyring::Vault;

/// Encryption keys of a request.
#[derive(Clone, Debug, Default)]
pub struct Keys {
    /// True if written bytes are to be encrypted by a master key.
    pub managed: bool,
    /// Customer key of the object or upload that the request names.
    pub customer: Option<CustomerKey>,
    /// Customer key of a copy's source.
    pub source: Option<CustomerKey>,
}

/// Kind of key that an object is encrypted by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Encrypted {
    /// A master key of the server.
    Managed,
    /// A customer's key.
    Customer,
}

/// Object of a request that a key belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Whose {
    /// The object that the request names.
    Own,
    /// The source of a copy.
    Source,
}

/// Keys of a request, and the encryption to report in its response.
#[derive(Default)]
pub(crate) struct RequestKeys {
    keys: OnceLock<Keys>,
    encrypted: OnceLock<Encrypted>,
}

/// Returns true if the bucket encrypts by default. The document's presence is enough: only one
/// default exists.
fn is_default(bucket: &Bucket) -> bool {
    bucket.settings.get(Setting::Encryption).is_some()
}

impl RequestKeys {
    /// Sets the keys. Later calls have no effect.
    pub(crate) fn set(&self, keys: Keys) {
        let _ = self.keys.set(keys);
    }

    /// Encryption of the object that was read or written; none if it isn't encrypted.
    pub(crate) fn encrypted(&self) -> Option<Encrypted> {
        self.encrypted.get().copied()
    }

    fn customer(&self, whose: Whose) -> Option<&CustomerKey> {
        let keys = self.keys.get()?;
        match whose {
            Whose::Own => keys.customer.as_ref(),
            Whose::Source => keys.source.as_ref(),
        }
    }

    fn note_encrypted(&self, encrypted: Encrypted) {
        let _ = self.encrypted.set(encrypted);
    }

    fn is_managed(&self) -> bool {
        self.keys.get().is_some_and(|keys| keys.managed)
    }

    /// Returns true if the request carries any encryption parameters, also for a copy source.
    pub(crate) fn has_parameters(&self) -> bool {
        let has_any =
            |keys: &Keys| keys.managed || keys.customer.is_some() || keys.source.is_some();
        self.keys.get().is_some_and(has_any)
    }

    /// Creates the data key of a new object or upload and stores its document in the attributes.
    /// Returns none, and removes a source's document, if the object is not to be encrypted.
    ///
    /// # Errors
    /// [`Error::NoMasterKey`].
    pub(crate) fn encrypt_new(
        &self,
        vault: &Vault,
        bucket: &Bucket,
        key: &str,
        attributes: &mut Attributes,
        salted: bool,
    ) -> Result<Option<Secret>> {
        attributes.marks.remove(Mark::Encryption);
        let managed = self.is_managed() || is_default(bucket);
        let (encrypted, by, root) = match self.customer(Whose::Own) {
            Some(customer) => (Encrypted::Customer, Wrapper::Customer, customer.root()),
            None if managed => {
                let (by, root) = vault.wrapping().ok_or(Error::NoMasterKey)?;
                (Encrypted::Managed, by, root)
            }
            None => return Ok(None),
        };
        let secret = Secret::random(salted);
        let object = ObjectAddress { bucket: bucket.id, key };
        attributes.marks.set(Mark::Encryption, secret.lock(by, root, object));
        self.note_encrypted(encrypted);
        Ok(Some(secret))
    }

    /// Unwraps the data key of an object; none if it isn't encrypted.
    ///
    /// # Errors
    /// [`Error::InvalidRequest`] for a missing or inapplicable customer key,
    /// [`Error::InvalidArgument`] for a wrong one.
    pub(crate) fn unlock(
        &self,
        vault: &Vault,
        locked: Option<&Locked>,
        whose: Whose,
    ) -> Result<Option<Secret>> {
        let customer = self.customer(whose);
        let Some(locked) = locked else { return not_applicable(customer).map(|()| None) };
        let (secret, encrypted) = match (locked.by(), customer) {
            (Wrapper::Customer, Some(customer)) => {
                let secret = locked.open(customer.root()).ok_or_else(|| {
                    let message = "The key is not the one that the object was encrypted with.";
                    Error::InvalidArgument(message.into())
                })?;
                (secret, Encrypted::Customer)
            }
            (Wrapper::Customer, None) => {
                let message = "The object was stored using a form of Server Side Encryption. The \
                               correct parameters must be provided to retrieve the object.";
                return Err(Error::InvalidRequest(message.into()));
            }
            (Wrapper::Master(name), customer) => {
                not_applicable(customer)?;
                (vault.unwrap(name, locked)?, Encrypted::Managed)
            }
        };
        if whose == Whose::Own {
            self.note_encrypted(encrypted);
        }
        Ok(Some(secret))
    }

    /// Checks the request's key for a metadata request. A master key need not be present.
    pub(crate) fn check_key(&self, vault: &Vault, locked: Option<&Locked>) -> Result<()> {
        match locked.map(Locked::by) {
            Some(Wrapper::Master(_)) => {
                not_applicable(self.customer(Whose::Own))?;
                self.note_encrypted(Encrypted::Managed);
                Ok(())
            }
            _ => self.unlock(vault, locked, Whose::Own).map(drop),
        }
    }

    /// Unwraps the data key of a part's upload; none if it isn't encrypted.
    pub(crate) fn unlock_upload(
        &self,
        vault: &Vault,
        marks: &Marks,
        object: ObjectAddress<'_>,
    ) -> Result<Option<Secret>> {
        let locked = Locked::of(marks, object)?;
        let customer = self.customer(Whose::Own);
        let refusal = match (locked.as_ref().map(Locked::by), customer) {
            (Some(Wrapper::Customer), None) => {
                "The multipart upload initiate requested encryption. Subsequent part requests must \
                 include the appropriate encryption parameters."
            }
            (Some(Wrapper::Customer), Some(customer))
                if locked.as_ref().and_then(|it| it.open(customer.root())).is_none() =>
            {
                "The provided encryption parameters did not match the ones used originally."
            }
            (Some(Wrapper::Master(_)) | None, Some(_)) => {
                "The multipart upload initiate did not request encryption by a key of the customer's. \
                 Please resend the request without encryption parameters."
            }
            (Some(Wrapper::Customer) | None, _) if self.is_managed() => {
                "The multipart upload initiate did not request encryption by a key of the server's."
            }
            _ => return self.unlock(vault, locked.as_ref(), Whose::Own),
        };
        Err(Error::InvalidRequest(refusal.into()))
    }

    /// Checks a customer key that comes with CompleteMultipartUpload.
    pub(crate) fn check_upload_key(
        &self,
        vault: &Vault,
        marks: &Marks,
        object: ObjectAddress<'_>,
    ) -> Result<()> {
        match self.customer(Whose::Own) {
            None => Ok(()),
            Some(_) => self.unlock_upload(vault, marks, object).map(drop),
        }
    }

    /// Refuses CompleteMultipartUpload without the upload's customer key.
    pub(crate) fn require_upload_key(
        &self,
        marks: &Marks,
        object: ObjectAddress<'_>,
    ) -> Result<()> {
        let locked = Locked::of(marks, object)?;
        match (locked.as_ref().map(Locked::by), self.customer(Whose::Own)) {
            (Some(Wrapper::Customer), None) => Err(Error::InvalidRequest(
                "The multipart upload was made with checksums under a key of the customer's. The \
                 complete request must include the appropriate encryption parameters."
                    .into(),
            )),
            _ => Ok(()),
        }
    }

    /// Records the encryption of a completed object for the response. Needs no key.
    pub(crate) fn report(&self, marks: &Marks, object: ObjectAddress<'_>) -> Result<()> {
        match Locked::of(marks, object)?.as_ref().map(Locked::by) {
            None => {}
            Some(Wrapper::Customer) => self.note_encrypted(Encrypted::Customer),
            Some(Wrapper::Master(_)) => self.note_encrypted(Encrypted::Managed),
        }
        Ok(())
    }
}

/// Refuses a customer key for objects that are not encrypted by one.
fn not_applicable(customer: Option<&CustomerKey>) -> Result<()> {
    match customer {
        None => Ok(()),
        Some(_) => Err(Error::InvalidRequest(
            "The encryption parameters are not applicable to this object.".into(),
        )),
    }
}
