//! The operations of S3, and the closed table that decides them.
//!
//! * [`names`]: the operations; [`table`]: their methods, paths, query keys and bodies.

mod names;
mod table;

pub use names::Operation;
pub use table::{BodyKind, OperationRow, PathKind, TABLE};
pub(crate) use table::{OPERATION_NAME, find, is_override};
