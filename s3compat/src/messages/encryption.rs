//! Errors about encryption, with the server's keys and with the customer's.

use super::message::{ErrorMessage, known};
use crate::refusal::Code;

pub(crate) const CUSTOMER_ALGORITHM: ErrorMessage = known(
    Code::InvalidArgument,
    "Requests specifying Server Side Encryption with Customer provided keys must provide a \
     valid encryption algorithm.",
);
pub(crate) const CUSTOMER_AND_SERVER: ErrorMessage = known(
    Code::InvalidArgument,
    "Server Side Encryption with Customer provided key is incompatible with the encryption \
     method specified",
);
pub(crate) const CUSTOMER_KEY: ErrorMessage = known(
    Code::InvalidArgument,
    "Requests specifying Server Side Encryption with Customer provided keys must provide an \
     appropriate secret key.",
);
pub(crate) const CUSTOMER_KEY_MD5: ErrorMessage = known(
    Code::InvalidArgument,
    "Requests specifying Server Side Encryption with Customer provided keys must provide the \
     client calculated MD5 of the secret key.",
);
pub(crate) const CUSTOMER_KEY_MISMATCH: ErrorMessage = known(
    Code::InvalidArgument,
    "The calculated MD5 hash of the key did not match the hash that was provided.",
);
pub(crate) const CUSTOMER_KEY_SIZE: ErrorMessage =
    known(Code::InvalidArgument, "The secret key was invalid for the specified algorithm.");
pub(crate) const ENCRYPTION_METHOD: ErrorMessage =
    known(Code::InvalidArgument, "The encryption method specified is not supported");
pub(crate) const ENCRYPTION_OF_READ: ErrorMessage = known(
    Code::InvalidArgument,
    "x-amz-server-side-encryption header is not supported for this operation.",
);
pub(crate) const KMS_KEY_ALONE: ErrorMessage = known(
    Code::InvalidArgument,
    "A key of a key management service was given, and no encryption by one asked for.",
);
pub(crate) const KMS_KEY_OF_BUCKET: ErrorMessage = known(
    Code::InvalidArgument,
    "a KMSMasterKeyID is not applicable if the default sse algorithm is not aws:kms",
);
pub(crate) const KMS_KEY_WITH_AES256: ErrorMessage =
    known(Code::InvalidArgument, "AES256 takes no key of a key management service.");
