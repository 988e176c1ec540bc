//! Target of a request, as its URI names it: path and query, each decoded once.
//!
//! * [`path`]: the bucket and the key; [`query`]: pairs of names and values.

mod path;
mod query;

pub use path::RequestTarget;
pub(crate) use path::decode as percent_decode;
pub(crate) use query::with_pair;
pub use query::{Pair, Query};
