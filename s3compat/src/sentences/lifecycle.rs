//! Errors about the lifecycle rules of a bucket.

use super::{Sentence, known};
use crate::auth::Code;

pub(crate) const LIFECYCLE_ACTION: Sentence =
    known(Code::InvalidRequest, "At least one action needs to be specified in a rule");
pub(crate) const LIFECYCLE_DATE: Sentence =
    known(Code::InvalidArgument, "'Date' must be at midnight GMT");
pub(crate) const LIFECYCLE_ID: Sentence =
    known(Code::InvalidArgument, "ID length should not exceed allowed limit of {}");
pub(crate) const LIFECYCLE_IDS: Sentence =
    known(Code::InvalidArgument, "Rule ID must be unique. Found same ID for rules");
pub(crate) const LIFECYCLE_MINIMUM: Sentence = known(
    Code::InvalidRequest,
    "Invalid TransitionDefaultMinimumObjectSize value. Please specify one of {}",
);
pub(crate) const LIFECYCLE_NEWER: Sentence =
    known(Code::InvalidArgument, "'NewerNoncurrentVersions' is {} at most");
pub(crate) const LIFECYCLE_NUMBER: Sentence =
    known(Code::InvalidArgument, "{} must be a positive integer");
pub(crate) const LIFECYCLE_PREFIX: Sentence =
    known(Code::InvalidRequest, "The maximum size of a prefix is {}");
pub(crate) const LIFECYCLE_SIZE: Sentence =
    known(Code::InvalidRequest, "Object sizes are not negative");
pub(crate) const LIFECYCLE_SIZES: Sentence = known(
    Code::InvalidRequest,
    "'ObjectSizeLessThan' has to be a value greater than 'ObjectSizeGreaterThan'",
);
pub(crate) const LIFECYCLE_SIZE_MIN: Sentence =
    known(Code::InvalidRequest, "ObjectSizeLessThan starts at 1");
pub(crate) const LIFECYCLE_TRANSITION: Sentence = known(
    Code::NotImplemented,
    "Rules that change the storage class of objects are not implemented",
);
pub(crate) const LIFECYCLE_WITH: Sentence =
    known(Code::InvalidRequest, "{} cannot be specified with {}");
