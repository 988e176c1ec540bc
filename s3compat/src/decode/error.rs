//! What ends a body that isn't what was promised.

use std::error::Error;

use crate::auth::{Code, Refusal};
use crate::sentences::{self, Sentence};

/// Why a body can't be taken.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BodyError {
    /// Fewer or more bytes than were announced.
    #[error("the body has not the length that was announced")]
    Incomplete,
    /// No final chunk, or no end of the trailer.
    #[error("the chunks of the body were not sent to their end")]
    Truncated,
    /// The signature of a chunk is wrong.
    #[error("the signature of a chunk does not match")]
    ChunkSignature,
    /// The signature of the trailer is wrong.
    #[error("the signature of the trailer does not match")]
    TrailerSignature,
    /// The body has another SHA-256 than `x-amz-content-sha256` says.
    #[error("the body has another SHA-256 than 'x-amz-content-sha256' says")]
    ContentSha256 {
        /// The one that the header says.
        given: [u8; 32],
        /// The one that the body has.
        computed: [u8; 32],
    },
    /// The framing of a chunk makes no sense.
    #[error("the aws-chunked framing is malformed: {0}")]
    MalformedChunk(&'static str),
    /// A chunk that isn't the last one is too short.
    #[error("only the last chunk is allowed to have a size less than {least} bytes")]
    ShortChunk {
        /// Bytes that it needs.
        least: u64,
    },
    /// The trailer makes no sense, or isn't the one that was announced.
    #[error("the trailer is malformed: {0}")]
    MalformedTrailer(&'static str),
    /// The body is longer than its operation takes.
    #[error("the body is longer than the {limit} bytes allowed")]
    TooLong {
        /// Bytes allowed.
        limit: u64,
    },
    /// A form has more before its file or behind it than it may.
    #[error("the fields of the form are too long")]
    FormFields,
    /// A form is none.
    #[error("the body is not well-formed multipart/form-data: {0}")]
    MalformedForm(&'static str),
    /// The file of a form is larger than its policy allows.
    #[error("your proposed upload exceeds the maximum allowed size of {maximum} bytes")]
    TooLarge {
        /// Bytes allowed.
        maximum: u64,
    },
    /// The file of a form is smaller than its policy allows.
    #[error("your proposed upload of {size} bytes is below the minimum of {minimum} bytes")]
    TooSmall {
        /// Bytes there were.
        size: u64,
        /// Bytes needed.
        minimum: u64,
    },
    /// There is no memory left for a document.
    #[error("Please reduce your request rate.")]
    NoMemory,
    /// The client fell silent, or sent too little for too long.
    #[error("nothing more of the body arrived in time")]
    Stalled,
    /// The connection broke.
    #[error("the body could not be read: {0}")]
    Transport(String),
}

impl BodyError {
    /// The S3 error code that says so.
    pub fn code(&self) -> Code {
        match self {
            Self::FormFields => Code::MaxPostPreDataLengthExceeded,
            Self::MalformedForm(_) => Code::MalformedPostRequest,
            Self::TooLarge { .. } => Code::EntityTooLarge,
            Self::TooSmall { .. } => Code::EntityTooSmall,
            Self::TooLong { .. } => Code::MaxMessageLengthExceeded,
            Self::NoMemory => Code::SlowDown,
            Self::Stalled => Code::RequestTimeout,
            other => other.sentence().map_or(Code::IncompleteBody, |sentence| sentence.code),
        }
    }

    /// S3's words for it, where S3 has such an error.
    fn sentence(&self) -> Option<&'static Sentence> {
        Some(match self {
            Self::Incomplete | Self::Transport(_) => &sentences::CONTENT_LENGTH,
            Self::Truncated | Self::MalformedChunk(_) => &sentences::INCOMPLETE_BODY,
            Self::ChunkSignature | Self::TrailerSignature => &sentences::SIGNATURE,
            Self::ContentSha256 { .. } => &sentences::CONTENT_SHA256,
            Self::ShortChunk { .. } => &sentences::CHUNK_SIZE,
            Self::MalformedTrailer(_) => &sentences::MALFORMED_TRAILER,
            _ => return None,
        })
    }

    /// The body error that `error` is, or was caused by.
    pub fn find<'a>(error: &'a (dyn Error + 'static)) -> Option<&'a Self> {
        let mut next = Some(error);
        while let Some(error) = next {
            if let Some(found) = error.downcast_ref::<Self>() {
                return Some(found);
            }
            next = error.source();
        }
        None
    }
}

impl From<BodyError> for Refusal {
    fn from(error: BodyError) -> Self {
        let Some(sentence) = error.sentence() else {
            let refusal = Self::new(error.code(), error.to_string());
            let is_overload = error == BodyError::NoMemory;
            return if is_overload { refusal.with_header("retry-after", "1") } else { refusal };
        };
        match error {
            BodyError::ContentSha256 { given, computed } => sentence
                .refusal()
                .with_detail("ClientComputedContentSHA256", hex::encode(given))
                .with_detail("S3ComputedContentSHA256", hex::encode(computed)),
            BodyError::ShortChunk { least } => sentence.about(least),
            _ => sentence.refusal(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_found_under_other_errors() {
        let cause = martlet_protocol::Error::invalid("the body").with_source(BodyError::Incomplete);
        let outer = std::io::Error::other(cause);
        assert_eq!(BodyError::find(&outer), Some(&BodyError::Incomplete));
        assert_eq!(BodyError::find(&std::io::Error::other("x")), None);
    }
}
