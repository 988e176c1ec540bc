//! Checks of sums, bins and walks over the registers in a span of the ring (rule H1).

use std::collections::BTreeSet;

use bytes::Bytes;

use super::{object, plain, register, stamp, tombstone};
use crate::backend::{Backend, BackendExt, BucketFence, RegisterView, Walk, Want};
use crate::entry::Body;
use crate::id::{BucketId, DeviceId, Shard};
use crate::key::{RegisterKey, RegisterKind, index_placement};
use crate::term::Term;
use crate::tree::{BinKey, Span, Sum};

pub(super) async fn all(backend: &dyn Backend, device: DeviceId) {
    sums_follow_what_is_held(backend, device).await;
    bins_come_in_pages_and_add_up(backend, device).await;
    walks_find_what_stands_in_a_span(backend, device).await;
    a_purge_leaves_nothing_in_the_sums(backend, device).await;
    an_audit_finds_nothing_amiss(backend, device).await;
}

/// The span of one run.
pub(super) fn span(bucket: BucketId, shard: Shard) -> Span {
    let at = index_placement(bucket, shard);
    Span { first: at, last: at }
}

/// Returns the sum of a register's run.
pub(super) async fn sum(backend: &dyn Backend, device: DeviceId, key: &RegisterKey) -> Sum {
    let spans = [span(key.bucket, key.shard)];
    backend.sums(device, &spans).await.unwrap()[0]
}

/// Returns the registers of a walk, read in pages.
pub(super) async fn walked(
    backend: &dyn Backend,
    device: DeviceId,
    walk: Walk,
    limit: usize,
) -> Vec<(RegisterKey, RegisterView)> {
    let (mut after, mut found) = (None, Vec::new());
    loop {
        let page = backend.walk(device, &walk, after.as_ref(), limit).await.unwrap();
        assert!(page.len() <= limit && page.is_sorted_by(|a, b| a.0 < b.0));
        let Some((last, _)) = page.last() else { return found };
        assert!(after.is_none_or(|after| *last > after));
        after = Some(last.clone());
        found.extend(page);
    }
}

async fn sums_follow_what_is_held(backend: &dyn Backend, device: DeviceId) {
    let key = register(BucketId::random(), "summed");
    assert_eq!(sum(backend, device, &key).await, Sum::default());
    backend.promise(device, &key, stamp(1), Term::ANY).await.unwrap();
    assert_eq!(sum(backend, device, &key).await, Sum::default(), "a promise alone is no leaf");
    let first = plain(&key, stamp(2));
    backend.write(device, first.clone()).await.unwrap();
    let one = sum(backend, device, &key).await;
    assert!(one.count == 1 && one.hash != 0);
    backend.promise(device, &key, stamp(3), Term::ANY).await.unwrap();
    backend.write(device, first).await.unwrap();
    backend.write(device, plain(&key, stamp(1))).await.unwrap();
    assert_eq!(sum(backend, device, &key).await, one, "nothing was stored");
    backend.write(device, tombstone(&key, stamp(4))).await.unwrap();
    let other = sum(backend, device, &key).await;
    assert!(other.count == 1 && other.hash != one.hash, "a tombstone counts");
    let beside = RegisterKey { name: Bytes::from_static(b"beside"), ..key.clone() };
    backend.write(device, plain(&beside, stamp(1))).await.unwrap();
    let mut rest = sum(backend, device, &key).await;
    assert_eq!(rest.count, 2);
    rest -= other;
    assert!(rest.count == 1 && rest.hash != 0);
    let at = key.placement();
    let around = |first, last| Span { first, last };
    let spans = [around(0, at - 1), around(at, at), around(at + 1, u64::MAX), Span::ALL];
    let parts = backend.sums(device, &spans).await.unwrap();
    let mut all = parts[0];
    all += parts[1];
    all += parts[2];
    assert_eq!((parts[1].count, all), (2, parts[3]), "sums of parts add up to that of the whole");
}

async fn bins_come_in_pages_and_add_up(backend: &dyn Backend, device: DeviceId) {
    let bucket = BucketId::random();
    let mut keys = Vec::new();
    for n in 0..40 {
        let key = register(bucket, &format!("binned {n}"));
        backend.write(device, plain(&key, stamp(1))).await.unwrap();
        keys.push(key);
    }
    for shard in (0..4).map(Shard) {
        let run = span(bucket, shard);
        let (mut after, mut found, mut total) = (None, Vec::new(), Sum::default());
        loop {
            let page = backend.bins(device, run, after, 3).await.unwrap();
            assert!(page.len() <= 3);
            let Some((last, _)) = page.last() else { break };
            after = Some(*last);
            found.extend(page);
        }
        for (_, sum) in &found {
            total += *sum;
        }
        assert_eq!(backend.sums(device, &[run]).await.unwrap(), [total]);
        assert!(found.is_sorted_by(|a, b| a.0 < b.0), "by placement, then by key");
        let of_shard = keys.iter().filter(|key| key.shard == shard);
        let expected: BTreeSet<_> = of_shard.map(BinKey::of).collect();
        assert_eq!(found.into_iter().map(|(bin, _)| bin).collect::<BTreeSet<_>>(), expected);
    }
    let all = backend.bins(device, Span::ALL, None, 1000).await.unwrap();
    let order = |(bin, _): &(BinKey, Sum)| (bin.placement(), *bin);
    assert!(all.is_sorted_by_key(order) && all.iter().all(|(_, sum)| *sum != Sum::default()));
}

async fn walks_find_what_stands_in_a_span(backend: &dyn Backend, device: DeviceId) {
    let bucket = BucketId::random();
    let mut expected = Vec::new();
    for n in 0..30 {
        let key = register(bucket, &format!("walked {n}"));
        let mut write = if n % 7 == 0 { tombstone(&key, stamp(n)) } else { plain(&key, stamp(n)) };
        if n % 5 == 1 {
            write.entry.value = object(Body::Inline { crc32c: 0x364b_3fb7 });
            write.inline = Some(Bytes::from_static(b"abc"));
        }
        backend.write(device, write.clone()).await.unwrap();
        expected.push((key, write.entry, write.inline));
    }
    let promised = register(bucket, "promised and no more");
    backend.promise(device, &promised, stamp(1), Term::ANY).await.unwrap();
    let (marked, order) = (register(bucket, "collectable"), stamp(1));
    backend.write(device, tombstone(&marked, order)).await.unwrap();
    backend.mark_collectable(device, &[(marked, order)]).await.unwrap();
    expected.sort_by(|a, b| a.0.cmp(&b.0));

    for shard in (0..4).map(Shard) {
        let of_shard: Vec<_> = expected.iter().filter(|(key, ..)| key.shard == shard).collect();
        for (want, limit) in [(Want::Entry, 4), (Want::EntryAndInline, 1000)] {
            let walk = Walk { span: span(bucket, shard), bin: None, want };
            let found = walked(backend, device, walk, limit).await;
            assert_eq!(found.len(), of_shard.len());
            for ((key, view), (at, entry, inline)) in found.iter().zip(&of_shard) {
                let inline = inline.as_ref().filter(|_| want == Want::EntryAndInline);
                assert_eq!((key, view.entry.as_ref()), (at, Some(entry)));
                assert_eq!(view.inline.as_ref(), inline);
            }
        }
        let elsewhere = Span { first: index_placement(bucket, shard) + 1, last: u64::MAX };
        for bin in of_shard.iter().map(|(key, ..)| BinKey::of(key)) {
            let walk = Walk { span: span(bucket, shard), bin: Some(bin), want: Want::Entry };
            let found = walked(backend, device, walk, 1).await;
            assert!(!found.is_empty() && found.iter().all(|(key, _)| BinKey::of(key) == bin));
            let nothing = Walk { span: elsewhere, ..walk };
            assert!(walked(backend, device, nothing, 9).await.is_empty());
        }
    }
    let first =
        RegisterKey { bucket, shard: Shard(0), kind: RegisterKind::Object, name: Bytes::new() };
    let whole = Walk { span: Span::ALL, bin: None, want: Want::Entry };
    let page = backend.walk(device, &whole, Some(&first), 30).await.unwrap();
    let keys = page.iter().filter(|(key, _)| key.bucket == bucket).map(|(key, _)| key);
    assert!(keys.eq(expected.iter().map(|(key, ..)| key)), "a wide span is walked in order, too");
}

async fn a_purge_leaves_nothing_in_the_sums(backend: &dyn Backend, device: DeviceId) {
    let bucket = BucketId::random();
    let before = backend.sums(device, &[Span::ALL]).await.unwrap();
    for n in 0..20 {
        let key = register(bucket, &format!("purged {n}"));
        backend.write(device, plain(&key, stamp(n))).await.unwrap();
    }
    assert_ne!(backend.sums(device, &[Span::ALL]).await.unwrap(), before);
    backend.fence(device, BucketFence { bucket, generation: 2, open: false }).await.unwrap();
    backend.purge_bucket(device, bucket).await.unwrap();
    assert_eq!(backend.sums(device, &[Span::ALL]).await.unwrap(), before);
}

async fn an_audit_finds_nothing_amiss(backend: &dyn Backend, device: DeviceId) {
    let held = backend.sums(device, &[Span::ALL]).await.unwrap()[0].count;
    let (mut items, mut after) = (0, None);
    loop {
        let audited = backend.audit_registers(device, after).await.unwrap();
        assert!(audited.corrupt.is_empty(), "{:?}", audited.corrupt);
        items += audited.items;
        after = audited.next;
        if after.is_none() {
            break;
        }
    }
    assert!(items >= held, "{items} of {held} registers were looked at");
}
