//! A small S3 in memory, by Amazon's documentation: it takes operations and returns the replies
//! that S3 would give. It has no network, no clock and no limits of its own.
//!
//! * [`input`]: faults of a request by itself.
//! * [`state`]: buckets, versions, uploads, and the rules about single values.
//! * [`objects`]: PutObject, GetObject, HeadObject, DeleteObject, DeleteObjects.
//! * [`copies`], [`uploads`], [`listings`], [`settings`], [`locks`]: the other operations.
//!
//! Where `docs/S3.md` states a difference from S3, the model states it too, beside a comment.

mod copies;
mod input;
mod listings;
mod locks;
mod objects;
mod settings;
pub(crate) mod state;
mod uploads;

pub(crate) use settings::{DOCUMENTS, LOCK_CONFIGURATIONS};
pub(crate) use uploads::WRONG;

use self::state::State;
use crate::expected::{Expected, Outcome};
use crate::operation::{Operation, Step};

/// A planted difference, which the comparison must find.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Flaw {
    None,
    /// A write ignores `If-None-Match`.
    IgnoresNoneMatch,
    /// A removed version leaves the next older one hidden.
    HidesOlderVersions,
    /// A listing folds no prefixes.
    IgnoresDelimiters,
    /// The ETag of a multipart object is the MD5 of its bytes.
    HashesWholeUploads,
}

/// The model.
#[derive(Clone, Debug)]
pub(crate) struct Model {
    pub(crate) state: State,
    flaw: Flaw,
}

impl Model {
    pub(crate) fn new(flaw: Flaw) -> Self {
        Self { state: State::default(), flaw }
    }

    /// Carries out an operation, and returns the reply. Of several faults of a request the reply
    /// names any one: S3 documents no order.
    pub(crate) fn apply(&mut self, step: Step, operation: &Operation) -> Expected {
        let mut faults = input::faults(operation);
        let mut tried = self.clone();
        let reply = tried.answer(step, operation);
        if faults.is_empty() {
            *self = tried;
            return reply;
        }
        if !reply.is_success() {
            faults.extend(reply.outcomes);
        }
        Expected::failure(faults)
    }

    fn answer(&mut self, step: Step, operation: &Operation) -> Expected {
        let reply = match operation {
            Operation::Put(put) => self.put(step, put),
            Operation::Read(read) => self.read(read),
            Operation::Delete(delete) => self.delete(step, delete),
            Operation::DeleteMany(delete) => self.delete_many(step, delete),
            Operation::Copy(copy) => Ok(self.copy(step, copy)),
            Operation::List(list) => self.list(list),
            Operation::CreateUpload { .. }
            | Operation::UploadPart { .. }
            | Operation::CopyPart(_)
            | Operation::Complete { .. }
            | Operation::Abort { .. }
            | Operation::ListParts { .. } => self.upload(step, operation),
            Operation::PutTags { .. }
            | Operation::GetTags { .. }
            | Operation::DeleteTags { .. }
            | Operation::PutRetention { .. }
            | Operation::GetRetention { .. }
            | Operation::PutHold { .. }
            | Operation::GetHold { .. } => self.annotate(operation),
            _ => self.settings(operation),
        };
        reply.unwrap_or_else(|outcome| Expected::failure(vec![outcome]))
    }
}

/// A reply, or the one error of a request.
type Answer = Result<Expected, Outcome>;
