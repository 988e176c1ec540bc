//! Multipart uploads: a register with compare-and-set (rule M1), and registers of parts.
//!
//! Each write of a part has its own register, so a repeated upload of a part overwrites nothing.
//! The newest write of a number counts. The chosen parts stay until the upload ends; only then
//! parts are freed. An abort frees all parts; a completion frees the others, and removes the
//! registers of the chosen ones without their bytes.
//!
//! * [`requests`]: requests of clients; [`uploads`]: registers of uploads; [`upload_target`]: the
//!   register of one upload.
//! * [`part`]: reads, listings, and deletion of parts.
//! * [`complete`]: choice of the parts, and the decision.
//! * [`drive`]: finishes a decision, on any proxy.
//! * [`list`]: open uploads.

mod complete;
mod drive;
mod list;
mod part;
mod requests;
mod upload_target;
mod uploads;

pub use self::drive::UNDRIVEN_MS_MAX;
pub(crate) use self::requests::Multipart;
pub use self::requests::Uploads;
pub(crate) use self::upload_target::UploadName;
