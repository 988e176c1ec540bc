//! Bodies of requests and replies: one type for each direction.
//!
//! * [`RequestBody`]: checked object bytes of a request, charged to their sender.
//! * [`ResponseBody`]: a document or an object's bytes, with everything that ends with the reply:
//!   the request's turn, its share of the rate, and its log line.

mod request;
mod response;

pub(crate) use self::request::RequestBody;
pub(crate) use self::response::ByteCounter;
pub use self::response::ResponseBody;
