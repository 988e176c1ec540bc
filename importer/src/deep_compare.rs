//! Comparison of two objects by the checksums that their stores keep.

use std::sync::Arc;

use crate::client::S3Client;
use crate::client::operations::ObjectRequest;
use crate::error::{ErrorKind, Result};
use crate::etag::{Facts, FullChecksum, Sameness, compare};

/// Both stores of an import.
#[derive(Clone)]
pub(crate) struct Stores {
    pub(crate) source: Arc<S3Client>,
    pub(crate) target: Arc<S3Client>,
    pub(crate) has_opaque_etags: bool,
}

/// Result of a comparison of the present objects of a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Comparison {
    /// The bytes are equal.
    Same,
    /// The bytes differ.
    Different,
    /// The sizes are equal, and the stores have no checksum in common.
    Unknown,
    /// The source has no such object.
    NoSource,
    /// The target has no such object.
    NoTarget,
}

/// Object as HEAD describes it.
struct Described {
    size: u64,
    etag: String,
    checksums: Vec<FullChecksum>,
}

impl Stores {
    /// Compares the present objects of a key by size, ETag and checksum.
    pub(crate) async fn compare(&self, key: &str) -> Result<Comparison> {
        let (source, target) = futures::try_join!(
            describe(&self.source, key, "source"),
            describe(&self.target, key, "target")
        )?;
        let Some(source) = source else { return Ok(Comparison::NoSource) };
        let Some(target) = target else { return Ok(Comparison::NoTarget) };
        Ok(match compare(source.facts(), target.facts(), self.has_opaque_etags) {
            Sameness::Same => Comparison::Same,
            Sameness::Different => Comparison::Different,
            Sameness::Unknown => by_checksum(&source, &target),
        })
    }
}

impl Described {
    fn facts(&self) -> Facts<'_> {
        Facts { size: self.size, etag: &self.etag }
    }
}

/// Compares by the strongest checksum that both objects have.
fn by_checksum(source: &Described, target: &Described) -> Comparison {
    for one in &source.checksums {
        if let Some(other) = target.checksums.iter().find(|it| it.algorithm == one.algorithm) {
            return if one == other { Comparison::Same } else { Comparison::Different };
        }
    }
    Comparison::Unknown
}

async fn describe(client: &S3Client, key: &str, name: &str) -> Result<Option<Described>> {
    let headers = match client.head(ObjectRequest { key, etag: None, range: None }).await {
        Ok(headers) => headers,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error.within(&format!("comparing with the {name}"))),
    };
    let length = headers.get(http::header::CONTENT_LENGTH).and_then(|it| it.to_str().ok());
    Ok(Some(Described {
        size: length.and_then(|it| it.parse().ok()).unwrap_or_default(),
        etag: crate::client::etag_of(&headers),
        checksums: FullChecksum::all_of(&headers),
    }))
}
