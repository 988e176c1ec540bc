//! Errors about signatures, access keys and tokens.

use super::{Sentence, known};
use crate::auth::Code;

pub(crate) const SIGNATURE: Sentence = known(
    Code::SignatureDoesNotMatch,
    "The request signature we calculated does not match the signature you provided. Check your key and \
     signing method.",
);
