//! Errors about the notifications of a bucket.

use super::message::{ErrorMessage, known};
use crate::refusal::Code;

pub(crate) const NOTIFICATION_AMBIGUOUS: ErrorMessage = known(
    Code::InvalidArgument,
    "Configuration is ambiguously defined. Cannot have overlapping suffixes in two rules if the \
     prefixes are overlapping for the same event type.",
);
pub(crate) const NOTIFICATION_ARN: ErrorMessage =
    known(Code::InvalidArgument, "The ARN could not be parsed");
pub(crate) const NOTIFICATION_BRIDGE: ErrorMessage =
    known(Code::NotImplemented, "There is no event bridge to deliver to");
pub(crate) const NOTIFICATION_COUNT: ErrorMessage =
    known(Code::InvalidArgument, "A bucket has at most {} notification configurations");
pub(crate) const NOTIFICATION_EVENT: ErrorMessage =
    known(Code::InvalidArgument, "The event is not supported for notifications");
pub(crate) const NOTIFICATION_FILTER: ErrorMessage =
    known(Code::InvalidArgument, "filter rule name must be either prefix or suffix");
pub(crate) const NOTIFICATION_FILTERS: ErrorMessage =
    known(Code::InvalidArgument, "Cannot specify more than one {} rule in a filter.");
pub(crate) const NOTIFICATION_FILTER_VALUE: ErrorMessage = known(
    Code::InvalidArgument,
    "Size of filter rule value cannot exceed {} bytes in UTF-8 representation",
);
pub(crate) const NOTIFICATION_ID: ErrorMessage =
    known(Code::InvalidArgument, "IDs have at most {} characters");
pub(crate) const NOTIFICATION_IDS: ErrorMessage =
    known(Code::InvalidArgument, "Same ID used for multiple configurations. IDs must be unique");
pub(crate) const NOTIFICATION_OVERLAP: ErrorMessage = known(
    Code::InvalidArgument,
    "Configurations overlap. Configurations on the same bucket cannot share a common event type.",
);
pub(crate) const NOTIFICATION_REGION: ErrorMessage = known(
    Code::InvalidArgument,
    "The notification destination service region is not valid for the bucket location constraint",
);
pub(crate) const NOTIFICATION_TARGET: ErrorMessage =
    known(Code::InvalidArgument, "Unable to validate the following destination configurations");
