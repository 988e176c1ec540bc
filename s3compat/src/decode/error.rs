//! Errors of bodies that differ from their announcement.

use std::error::Error;

use crate::messages::{self, ErrorMessage};
use crate::refusal::{Code, Refusal};

/// Reason for which a body is refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BodyError {
    /// The body has fewer or more bytes than announced.
    #[error("the body's length differs from the announced length")]
    Incomplete,
    /// The final chunk or the end of the trailer is missing.
    #[error("the body's last chunk is missing")]
    Truncated,
    /// The signature of a chunk is wrong.
    #[error("the signature of a chunk does not match")]
    ChunkSignature,
    /// The signature of the trailer is wrong.
    #[error("the signature of the trailer does not match")]
    TrailerSignature,
    /// The SHA-256 of the body differs from `x-amz-content-sha256`.
    #[error("the body's SHA-256 differs from 'x-amz-content-sha256'")]
    ContentSha256 {
        /// SHA-256 in the header.
        given: [u8; 32],
        /// SHA-256 of the body.
        computed: [u8; 32],
    },
    /// The framing of a chunk is malformed.
    #[error("the aws-chunked framing is malformed: {0}")]
    MalformedChunk(&'static str),
    /// A chunk before the last one is too short.
    #[error("only the last chunk is allowed to have a size less than {least} bytes")]
    ShortChunk {
        /// Minimum length, in bytes.
        least: u64,
    },
    /// The trailer is malformed, or is not the announced one.
    #[error("the trailer is malformed: {0}")]
    MalformedTrailer(&'static str),
    /// The body is longer than its operation accepts.
    #[error("the body is longer than the {limit} bytes allowed")]
    TooLong {
        /// Maximum length, in bytes.
        limit: u64,
    },
    /// A form has too many bytes before or after its file.
    #[error("the fields of the form are too long")]
    FormFields,
    /// The form is malformed.
    #[error("the body is not well-formed multipart/form-data: {0}")]
    MalformedForm(&'static str),
    /// The file of a form is larger than its policy allows.
    #[error("your proposed upload exceeds the maximum allowed size of {maximum} bytes")]
    TooLarge {
        /// Maximum length, in bytes.
        maximum: u64,
    },
    /// The file of a form is smaller than its policy allows.
    #[error("your proposed upload of {size} bytes is below the minimum of {minimum} bytes")]
    TooSmall {
        /// Length of the file, in bytes.
        size: u64,
        /// Minimum length, in bytes.
        minimum: u64,
    },
    /// No memory is left for a document.
    #[error("Please reduce your request rate.")]
    NoMemory,
    /// The client was silent, or sent too little, for too long.
    #[error("nothing more of the body arrived in time")]
    Stalled,
    /// The connection broke.
    #[error("the body could not be read: {0}")]
    Transport(String),
}

impl BodyError {
    /// S3 error code of this error.
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

    /// S3's sentence for this error, if S3 has such an error.
    fn sentence(&self) -> Option<&'static ErrorMessage> {
        Some(match self {
            Self::Incomplete | Self::Transport(_) => &messages::CONTENT_LENGTH,
            Self::Truncated | Self::MalformedChunk(_) => &messages::INCOMPLETE_BODY,
            Self::ChunkSignature | Self::TrailerSignature => &messages::SIGNATURE,
            Self::ContentSha256 { .. } => &messages::CONTENT_SHA256,
            Self::ShortChunk { .. } => &messages::CHUNK_SIZE,
            Self::MalformedTrailer(_) => &messages::MALFORMED_TRAILER,
            _ => return None,
        })
    }

    /// Finds a body error in `error` and its causes.
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
            BodyError::ShortChunk { least } => sentence.with_subject(least),
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
