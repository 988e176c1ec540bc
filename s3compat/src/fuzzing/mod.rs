//! Fuzz targets of this crate: bytes that clients send.
//!
//! * [`AWS_CHUNKED`]: bodies in the aws-chunked encoding.
//! * [`SIGNATURES`]: heads of requests, and signatures of AWS's own signer.
//! * [`POLICIES`]: policies of buckets and users, and trust documents.
//! * [`DOCUMENTS`]: XML and other documents of requests.

mod aws_chunked;
mod policies;
mod signatures;

pub use self::aws_chunked::AWS_CHUNKED;
pub use self::policies::POLICIES;
pub use self::signatures::SIGNATURES;
pub use crate::ops::DOCUMENTS;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kept_inputs_of_chunked_bodies() {
        let replayed = AWS_CHUNKED.replay();
        assert!(replayed.accepted >= replayed.seeds / 2, "{replayed:?}");
    }

    #[test]
    fn kept_inputs_of_signatures() {
        let replayed = SIGNATURES.replay();
        assert!(replayed.accepted >= replayed.seeds / 2, "{replayed:?}");
    }

    #[test]
    fn kept_inputs_of_policies() {
        let replayed = POLICIES.replay();
        assert!(replayed.accepted >= replayed.seeds / 2, "{replayed:?}");
    }

    #[test]
    fn kept_inputs_of_documents() {
        let replayed = DOCUMENTS.replay();
        assert!(replayed.accepted >= replayed.seeds / 2, "{replayed:?}");
    }
}
