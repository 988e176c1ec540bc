//! Errors about the lifecycle rules of a bucket.

use super::message::{ErrorMessage, known};
use crate::refusal::Code;

pub(crate) const LIFECYCLE_ACTION: ErrorMessage =
    known(Code::InvalidRequest, "At least one action needs to be specified in a rule");
pub(crate) const LIFECYCLE_DATE: ErrorMessage =
    known(Code::InvalidArgument, "'Date' must be at midnight GMT");
pub(crate) const LIFECYCLE_ID: ErrorMessage =
    known(Code::InvalidArgument, "ID length should not exceed allowed limit of {}");
pub(crate) const LIFECYCLE_IDS: ErrorMessage =
    known(Code::InvalidArgument, "Rule ID must be unique. Found same ID for rules");
pub(crate) const LIFECYCLE_MINIMUM: ErrorMessage = known(
    Code::InvalidRequest,
    "Invalid TransitionDefaultMinimumObjectSize value. Please specify one of {}",
);
pub(crate) const LIFECYCLE_NEWER: ErrorMessage =
    known(Code::InvalidArgument, "'NewerNoncurrentVersions' is {} at most");
pub(crate) const LIFECYCLE_NUMBER: ErrorMessage =
    known(Code::InvalidArgument, "{} must be a positive integer");
pub(crate) const LIFECYCLE_PREFIX: ErrorMessage =
    known(Code::InvalidRequest, "The maximum size of a prefix is {}");
pub(crate) const LIFECYCLE_SIZE: ErrorMessage =
    known(Code::InvalidRequest, "Object sizes are not negative");
pub(crate) const LIFECYCLE_SIZES: ErrorMessage = known(
    Code::InvalidRequest,
    "'ObjectSizeLessThan' has to be a value greater than 'ObjectSizeGreaterThan'",
);
pub(crate) const LIFECYCLE_SIZE_MIN: ErrorMessage =
    known(Code::InvalidRequest, "ObjectSizeLessThan starts at 1");
pub(crate) const LIFECYCLE_TRANSITION: ErrorMessage = known(
    Code::NotImplemented,
    "Rules that change the storage class of objects are not implemented",
);
pub(crate) const LIFECYCLE_WITH: ErrorMessage =
    known(Code::InvalidRequest, "{} cannot be specified with {}");
