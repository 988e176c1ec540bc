//! Multipart uploads: a register with compare-and-set (rule M1), and registers of parts.
//!
//! Each write of a part has its own register, so a repeated upload of a part overwrites nothing.
//! The newest write of a number counts; most of those that it replaced are freed soon. Other parts are
//! freed only once the upload has ended. An abort frees all parts; a completion frees the others, and
//! removes the registers of the chosen ones without their bytes.
//!
//! The manifest of a long part lies in extents of its own, as that of a long object does.
//!
//! * [`requests`]: requests of clients; [`uploads`]: registers of uploads; [`upload_target`]: the
//!   register of one upload.
//! * [`part`]: reads, listings, and deletion of parts.
//! * [`replaced`]: release of replaced parts.
//! * [`complete`]: choice of the parts, and the decision; [`assemble`]: the object of the choice.
//! * [`decision`]: what a key shows about a decision; [`drive`]: finishes a decision, on any proxy.
//! * [`list`]: open uploads.

mod assemble;
mod complete;
mod decision;
mod drive;
mod list;
mod part;
mod replaced;
mod requests;
mod upload_target;
mod uploads;

pub use self::decision::UNDRIVEN_MS_MAX;
#[cfg(test)]
pub(crate) use self::replaced::REPLACED_KEPT_MAX;
pub(crate) use self::requests::Multipart;
pub use self::requests::Uploads;
pub(crate) use self::upload_target::UploadName;
