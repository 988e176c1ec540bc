//! Copies that workers send: hashed on their way, and compared with the copies of other devices.
//!
//! A sent copy arrives whole and right, or not at all: its hashes follow the bytes (ADR 106). So if a
//! device has other bytes under the same id, no worker of this release sent them. Only the manifest
//! knows which of the two are right, and both stay.

use futures::StreamExt;
use martlet_protocol::backend::{ExtentHasher, SentHashes, Sought};
use martlet_protocol::extent::{ExtentRecord, ExtentRef};
use martlet_protocol::{BackendExt, ByteStream, DeviceId, Error, Result};

use crate::cluster::{StepTopology, in_time};

/// Hashes the bytes of a copy on their way, and sets the hashes once the bytes are those of
/// `extent`. Otherwise the stream ends with an error before its last bytes.
pub(crate) fn hashed_copy(
    body: ByteStream,
    extent: ExtentRef,
    from: DeviceId,
) -> (ByteStream, SentHashes) {
    let verified = SentHashes::default();
    let (mut hasher, set) = (ExtentHasher::new(u64::from(extent.length)), verified.clone());
    let other_bytes = move || {
        let id = extent.id;
        Error::corrupt(format!("device {from} sent other bytes of extent {id} than announced"))
    };
    let body = body.map(move |chunk| {
        let chunk = chunk?;
        if chunk.len() as u64 > hasher.bytes_left() {
            return Err(other_bytes());
        }
        hasher.update(&chunk);
        if hasher.bytes_left() == 0 {
            let hashes = hasher.sent().get()?;
            if hashes.blake3 != extent.blake3 {
                return Err(other_bytes());
            }
            set.set(hashes.clone());
        }
        Ok(chunk)
    });
    (body.boxed(), verified)
}

/// Compares a device's copy with `sent`, after the device refused the sent copy with `refusal`.
///
/// # Errors
/// The refusal, if the device has no copy: the extent was deleted there.
/// [`ErrorKind::Corrupt`](martlet_protocol::ErrorKind::Corrupt) if the device has other bytes.
pub(crate) async fn compare_held(
    cluster: &StepTopology,
    device: DeviceId,
    sent: ExtentRef,
    refusal: Error,
) -> Result<()> {
    let sought = in_time(cluster.node(device)?.seek_extents(device, &[sent.id])).await?;
    match sought.into_iter().next() {
        Some(Sought::Here(held)) if is_same(device, &held, sent) => Ok(()),
        Some(Sought::Here(_)) => Err(Error::corrupt(format!(
            "device {device} has other bytes of extent {} than were sent",
            sent.id
        ))),
        _ => Err(refusal),
    }
}

/// Returns true if a device's copy has the bytes of `other`. Reports a difference.
pub(crate) fn is_same(device: DeviceId, held: &ExtentRecord, other: ExtentRef) -> bool {
    let is_same = held.extent == other;
    if !is_same {
        tracing::error!(%device, held = ?held.extent, ?other, "two copies of an extent differ, and \
                                                               both stay");
    }
    is_same
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use futures::TryStreamExt;
    use martlet_protocol::{ErrorKind, ExtentId};

    use super::*;

    async fn sent(bytes: &[u8], announced: &[u8]) -> (Result<Vec<Bytes>>, SentHashes) {
        let extent = ExtentRef {
            id: ExtentId([1; 16]),
            length: u32::try_from(announced.len()).unwrap(),
            blake3: *blake3::hash(announced).as_bytes(),
        };
        let chunks: Vec<_> =
            bytes.chunks(70_000).map(|it| Ok(Bytes::copy_from_slice(it))).collect();
        let body = futures::stream::iter(chunks).boxed();
        let (body, hashes) = hashed_copy(body, extent, DeviceId(3));
        (body.try_collect().await, hashes)
    }

    #[tokio::test]
    async fn hashes_are_set_only_for_the_announced_bytes() {
        let right: Vec<u8> = (0..200_000).map(|at| u8::try_from(at % 251).unwrap()).collect();
        let (body, hashes) = sent(&right, &right).await;
        assert_eq!(body.unwrap().concat(), right);
        assert_eq!(hashes.get().unwrap().blake3, *blake3::hash(&right).as_bytes());
        for at in [0, 69_999, 70_000, 199_999] {
            let mut wrong = right.clone();
            wrong[at] ^= 1;
            let (body, hashes) = sent(&wrong, &right).await;
            assert_eq!(body.unwrap_err().kind(), ErrorKind::Corrupt, "byte {at}");
            assert!(hashes.get().is_err());
        }
        let (_, hashes) = sent(&right[..199_999], &right).await;
        assert!(hashes.get().is_err(), "a byte is missing");
    }
}
