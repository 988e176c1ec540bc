//! Response bodies: extents or their fragments in order, with the next one opened ahead.

mod located;
mod object;
mod ranges;
mod reader;

pub(crate) use self::object::{Found, parts_of};
pub(crate) use self::reader::BodyReader;
