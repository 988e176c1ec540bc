//! Extents stored fragment by fragment, and read back.

use std::ops::Range;

use bytes::{Bytes, BytesMut};
use futures::StreamExt;
use martlet_erasure::{FragmentIndex, Geometry};
use martlet_protocol::backend::NewExtent;
use martlet_protocol::extent::{ExtentRef, ExtentRole, Layout, Owner, Stripe};
use martlet_protocol::{
    Backend, BackendExt, BucketId, ByteStream, DeviceId, ErrorKind, ExtentId, Result, WriteId,
};

use super::fixture::{CodedFixture, POLICY};

/// Numbers that follow from a seed.
pub(super) struct Lots(u64);

impl Lots {
    pub(super) fn new(seed: u64) -> Self {
        println!("seed {seed}");
        Self(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    pub(super) fn below(&mut self, end: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % end
    }

    /// Returns a non-empty range within `length`.
    pub(super) fn range(&mut self, length: u64) -> Range<u64> {
        let start = self.below(length);
        start..start + 1 + self.below(length - start)
    }
}

/// Fragments by their numbers.
pub(super) fn fragments(numbers: &[u8]) -> Vec<FragmentIndex> {
    numbers.iter().map(|number| FragmentIndex(*number)).collect()
}

/// Fragments whose bits are set in a pattern.
pub(super) fn pattern_of(bits: u32) -> Vec<FragmentIndex> {
    (0..32).filter(|number| bits & (1 << number) != 0).map(FragmentIndex).collect()
}

pub(super) fn slice(bytes: &Bytes, range: &Range<u64>) -> Bytes {
    let at = |offset| usize::try_from(offset).unwrap();
    bytes.slice(at(range.start)..at(range.end))
}

pub(super) fn kind<T>(result: Result<T>) -> Option<ErrorKind> {
    result.err().map(|error| error.kind())
}

impl CodedFixture {
    pub(super) fn geometry(&self, extent: &ExtentRef) -> Geometry {
        Geometry::new(self.code(), u64::from(extent.length)).unwrap()
    }

    /// Stores an extent with each fragment on its primary.
    pub(super) async fn keep(&self, bytes: &Bytes) -> ExtentRef {
        let id = ExtentId::random().whole();
        let blake3 = *blake3::hash(bytes).as_bytes();
        let extent = ExtentRef { id, length: u32::try_from(bytes.len()).unwrap(), blake3 };
        for fragment in self.geometry(&extent).stored().iter() {
            self.keep_fragment(&extent, bytes, fragment, self.home(id, fragment)).await;
        }
        extent
    }

    /// Stores a fragment on a device.
    pub(super) async fn keep_fragment(
        &self,
        extent: &ExtentRef,
        bytes: &Bytes,
        fragment: FragmentIndex,
        device: DeviceId,
    ) {
        let owner = Owner {
            bucket: BucketId::random(),
            key: "k".into(),
            write_id: WriteId::random(),
            upload: None,
            role: ExtentRole::Data,
            offset: 0,
        };
        let code = self.code();
        let stripe = Some(Stripe { k: code.k(), m: code.m(), length: extent.length });
        let layout = Layout { policy: POLICY, stripe };
        let id = extent.id.fragment(fragment.0);
        let new = NewExtent { id, owner, length: None, birth_ms: None, layout, hashes: None };
        let stored = Bytes::from(self.encoded(bytes).swap_remove(usize::from(fragment.0)));
        let body = futures::stream::iter([Ok(stored)]).boxed();
        self.node.memory.write_extent(device, new, body).await.unwrap();
    }

    /// Deletes fragments from all devices.
    pub(super) async fn lose(&self, extent: &ExtentRef, lost: &[FragmentIndex]) {
        let ids: Vec<_> = lost.iter().map(|fragment| extent.id.fragment(fragment.0)).collect();
        for device in self.devices() {
            self.node.memory.release_extents(device, &ids).await.unwrap();
        }
    }

    /// Opens a stream of a byte range of extents.
    pub(super) async fn open(
        &self,
        extents: &[ExtentRef],
        range: Range<u64>,
    ) -> Result<ByteStream> {
        self.store.services.bodies.read_extents(POLICY, extents, range).await
    }

    /// Reads a byte range of extents.
    pub(super) async fn read(&self, extents: &[ExtentRef], range: Range<u64>) -> Result<Bytes> {
        let mut stream = self.open(extents, range).await?;
        let mut bytes = BytesMut::new();
        while let Some(chunk) = stream.next().await {
            bytes.extend_from_slice(&chunk?);
        }
        Ok(bytes.freeze())
    }

    /// Reads a whole extent.
    pub(super) async fn read_whole(&self, extent: &ExtentRef) -> Result<Bytes> {
        self.read(&[*extent], 0..u64::from(extent.length)).await
    }

    /// Checks that a range of an extent reads as it was written.
    pub(super) async fn check_range(&self, extent: &ExtentRef, bytes: &Bytes, range: Range<u64>) {
        let read = self.read(&[*extent], range.clone()).await;
        let read = read.unwrap_or_else(|error| panic!("{range:?} of {extent:?}: {error}"));
        assert!(read == slice(bytes, &range), "{range:?} of {extent:?}");
    }
}
