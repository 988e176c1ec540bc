//! Fences of more deleted buckets than one reply holds.

use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use martlet_protocol::backend::{BucketFence, Call, DeviceStatus, NewExtent, Reply};
use martlet_protocol::extent::ExtentRef;
use martlet_protocol::limits::FENCES_MAX;
use martlet_protocol::{
    Backend, BackendExt, BucketId, ByteStream, DeviceId, Error, ExtentId, Result,
};

use crate::world::{DEVICE, TestNode, client, patience};

/// 27 bytes each: more than 64 MiB.
const FENCES: u32 = 2_500_000;

fn bucket(number: u32) -> BucketId {
    let mut id = [0; 16];
    id[..4].copy_from_slice(&number.to_be_bytes());
    BucketId(id)
}

/// A device with the fences of deleted buckets, which are computed.
struct ManyFences;

impl ManyFences {
    fn page(after: Option<BucketId>, limit: usize) -> Vec<BucketFence> {
        let first = after.map_or(0, |BucketId(id)| {
            let number: [u8; 4] = id[..4].try_into().unwrap();
            u32::from_be_bytes(number) + 1
        });
        (first..FENCES).take(limit).map(|number| BucketFence::of_deleted(bucket(number))).collect()
    }
}

#[async_trait]
impl Backend for ManyFences {
    async fn call(&self, _: DeviceId, call: Call<'_>) -> Result<Reply> {
        match call {
            Call::Fences => Ok(Self::page(None, usize::MAX).into()),
            Call::FencesAfter { after, limit } => Ok(Self::page(after, limit).into()),
            Call::FencesOf(buckets) => {
                Ok(buckets.iter().copied().map(BucketFence::of_deleted).collect::<Vec<_>>().into())
            }
            _ => Err(Error::internal("a device of fences alone")),
        }
    }

    async fn write_extent(&self, _: DeviceId, _: NewExtent, _: ByteStream) -> Result<ExtentRef> {
        Err(Error::internal("a device of fences alone"))
    }

    async fn read_extent(&self, _: DeviceId, _: ExtentId, _: Range<u64>) -> Result<ByteStream> {
        Err(Error::internal("a device of fences alone"))
    }

    async fn devices(&self) -> Result<Vec<DeviceStatus>> {
        Ok(Vec::new())
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn more_fences_than_one_reply_holds_are_read_in_pages() {
    let node = TestNode::start(Arc::new(ManyFences)).await;
    let client = client(node.address, patience(Duration::from_mins(1)));
    assert!(client.fences(DEVICE).await.is_err(), "one reply holds 64 MiB");
    let (mut count, mut after, mut pages) = (0, None, 0);
    loop {
        // A longer page than is allowed is cut.
        let page = client.fences_after(DEVICE, after, usize::MAX).await.unwrap();
        assert!(page.len() <= FENCES_MAX);
        let is_last = page.len() < FENCES_MAX;
        assert!(page.first().is_none_or(|first| Some(first.bucket) > after));
        (count, pages) = (count + page.len(), pages + 1);
        after = page.last().map(|fence| fence.bucket).or(after);
        if is_last {
            break;
        }
    }
    assert_eq!((count, pages), (FENCES as usize, (FENCES as usize).div_ceil(FENCES_MAX)));
    // Named buckets take several requests, and the replies are in their order.
    let named: Vec<BucketId> = (0..10_000).rev().map(bucket).collect();
    let found = client.fences_of(DEVICE, &named).await.unwrap();
    assert!(found.iter().map(|fence| fence.bucket).eq(named.iter().copied()));
    node.stop().await;
}
