//! Lifecycle rules of a bucket. Rules are validated when they are set.
//!
//! * [`rules`]: the rules, and the format of their document.
//! * [`due`]: the rule that applies to a version or upload, and its time; a pure function of rules
//!   and facts.
//! * [`work`]: execution of rules on objects, and its cursor.

mod due;
mod rules;
mod work;

pub use self::due::{Day, DueAction, LifecycleAction, Subject, VersionPosition};
pub use self::rules::{And, Expiration, Filter, Lifecycle, Noncurrent, RULES_MAX, Rule, Scope};
pub use self::work::{
    ExpiryCursor, ExpiryOutcome, ListedHead, ObjectExpiry, Stretch, VersionCursor,
};
