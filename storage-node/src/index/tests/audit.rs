//! Audits of registers: wrong sums, and corrupt entries (rule H1).

use std::task::Poll;
use std::time::Duration;

use martlet_protocol::backend::AuditResult;
use martlet_protocol::tree::{Bin, BinKey, Span, Sum};

use super::*;
use crate::index::audit::{self, AuditLimits};
use crate::index::audit_page::{AuditFindings, is_within};
use crate::index::audit_sessions::AuditSessions;

/// Opens an index with 300 registers, with or without peers.
async fn filled(folder: &Path, peers: bool) -> IndexFixture {
    let clock = Arc::new(ManualClock::at(NOW_MS));
    let with = IndexContext { peers, clock: clock.clone(), ..surroundings(folder) };
    let bed = bed_with(folder, with, clock);
    for number in 0..300_u64 {
        let at = key(&number.to_string());
        bed.index.write(inline(&at, stamp(1), &number.to_be_bytes())).await.unwrap();
    }
    bed
}

async fn audited(index: &Index) -> AuditResult<BinKey> {
    let mut all = AuditResult::default();
    loop {
        let page = index.audit_registers(all.next).await.unwrap();
        all.items += page.items;
        all.bytes += page.bytes;
        all.corrupt.extend(page.corrupt);
        all.next = page.next;
        if all.next.is_none() {
            return all;
        }
    }
}

/// Returns an audit's findings without repairing them.
async fn looked_at(index: &Index) -> AuditFindings {
    let sessions = AuditSessions::default();
    let begin = |calls| {
        let (database, counting) = (index.reader.database.clone(), index.counting.clone());
        let (secret, slice) = (TreeKey::default(), AuditLimits::default());
        std::thread::spawn(move || audit::run(database, &counting, secret, slice, None, calls));
        Ok(())
    };
    sessions.page(None, begin).await.unwrap()
}

/// Opens an index whose audit calls end after `registers_max` registers.
async fn filled_with_slices(folder: &Path, registers_max: u64) -> IndexFixture {
    let mut bed = filled(folder, true).await;
    bed.index.slice.registers = registers_max;
    bed
}

/// Simulates silent corruption.
fn overwrite(index: &Index, family: Family, at: &[u8], row: &[u8]) {
    let database = &index.reader.database;
    let mut batch = rocksdb::WriteBatch::default();
    batch.put_cf(database.family(family), at, row);
    database.write_synced(batch).unwrap();
}

#[tokio::test]
async fn wrong_sums_are_found_mended_and_cost_the_votes_of_a_device_with_peers() {
    for peers in [true, false] {
        let folder = tempfile::tempdir().unwrap();
        let bed = filled(folder.path(), peers).await;
        let sound = bed.index.bins(Span::ALL, None, 1000).await.unwrap();
        let found = audited(&bed.index).await;
        assert_eq!((found.items, found.corrupt.len()), (300, 0));
        assert!(found.bytes > 300 * 8);

        // A sum that is too large, an empty sum, and a sum of a run that never existed.
        let stale = BinKey { bucket: BucketId([1; 16]), shard: Shard(9), bin: Bin(3) };
        let wrong = [sound[1].0, sound[7].0, stale];
        let mut more = sound[1].1;
        more += Sum { hash: 5, count: 1 };
        for (bin, sum) in wrong.iter().zip([more, Sum::default(), sound[0].1]) {
            overwrite(&bed.index, Family::Tree, &tree::row_key(bin), &tree::encode_sum(sum));
        }
        let mut found = audited(&bed.index).await;
        found.corrupt.sort();
        let mut expected = wrong.to_vec();
        expected.sort();
        assert_eq!(found.corrupt, expected);
        assert_eq!(bed.index.bins(Span::ALL, None, 1000).await.unwrap(), sound);
        assert_eq!(bed.index.voting_snapshot().voting, !peers);
        assert_eq!(audited(&bed.index).await.corrupt, []);
    }
}

#[tokio::test]
async fn sums_are_mended_by_what_they_differ_by() {
    let folder = tempfile::tempdir().unwrap();
    let bed = filled(folder.path(), false).await;
    let sound = bed.index.bins(Span::ALL, None, 1000).await.unwrap();
    let (bin, sum) = sound[3];
    overwrite(&bed.index, Family::Tree, &tree::row_key(&bin), &tree::encode_sum(Sum::default()));
    let found = looked_at(&bed.index).await;
    assert_eq!(found.mends, [(tree::row_key(&bin), sum)]);
    // A write between the audit and the repair.
    let mut names = (300..1_000_000).map(|number| number.to_string());
    let name = names.find(|name| BinKey::of(&key(name)) == bin).unwrap();
    bed.index.write(write(&key(&name), stamp(1), Value::Tombstone)).await.unwrap();
    bed.index.submit(|reply| IndexOp::MendSums(found.mends, reply)).await.unwrap();
    assert_eq!(audited(&bed.index).await.corrupt, []);
    let now = bed.index.sums(&[Span::ALL]).await.unwrap();
    assert_eq!(now[0].count, 301);
}

#[tokio::test]
async fn inline_bytes_that_are_not_what_was_written_are_damage() {
    let row = |id| rows::inline_row(id, b"other");
    for wrong in [true, false] {
        let folder = tempfile::tempdir().unwrap();
        let bed = filled(folder.path(), true).await;
        let at = key("7");
        let view = bed.index.read(&at, Want::Entry, Term::ANY).await.unwrap();
        if wrong {
            let id = view.entry.unwrap().write_id;
            overwrite(&bed.index, Family::Inline, &at.encode(), &row(id));
        } else {
            let database = &bed.index.reader.database;
            let mut batch = rocksdb::WriteBatch::default();
            batch.delete_cf(database.family(Family::Inline), at.encode());
            database.write_synced(batch).unwrap();
        }
        assert_eq!(bed.index.damage(), None);
        let mut after = None;
        let error = loop {
            match bed.index.audit_registers(after).await {
                Ok(page) => after = Some(page.next.expect("it is found before the end")),
                Err(error) => break error,
            }
        };
        assert_eq!(error.kind(), ErrorKind::Corrupt);
        assert!(bed.index.damage().is_some() && bed.index.fault().is_some());
        let late = bed.index.write(write(&key("new"), stamp(1), Value::Tombstone)).await;
        assert_eq!(late.unwrap_err().kind(), ErrorKind::Unavailable, "it takes no more");
    }
}

#[tokio::test]
async fn an_audit_goes_on_in_the_middle_of_a_run() {
    let folder = tempfile::tempdir().unwrap();
    let bed = filled_with_slices(folder.path(), 50).await;
    let sound = bed.index.bins(Span::ALL, None, 1000).await.unwrap();
    let (mut calls, mut items, mut after) = (0, 0, None);
    loop {
        let page = bed.index.audit_registers(after).await.unwrap();
        assert!(page.items <= 50 && page.corrupt.is_empty());
        (calls, items, after) = (calls + 1, items + page.items, page.next);
        // Writes after and before the audit's position cause no difference.
        for number in [calls, 300 - calls] {
            let at = key(&number.to_string());
            bed.index.write(inline(&at, stamp(100 + calls), b"newer")).await.unwrap();
        }
        if after.is_none() {
            break;
        }
    }
    assert_eq!(items, 300, "each is read once");
    assert!(calls >= 6 && bed.index.voting_snapshot().voting);

    // A wrong sum is found at the end of its run, despite concurrent writes.
    let (bin, _) = sound[3];
    overwrite(&bed.index, Family::Tree, &tree::row_key(&bin), &tree::encode_sum(Sum::default()));
    assert_eq!(audited(&bed.index).await.corrupt, [bin]);
    assert_eq!(audited(&bed.index).await.corrupt, []);
}

/// Requests a page and gives up: at once, or once the page is ready. Returns a page that was ready.
async fn give_up(
    index: &Index,
    after: Option<BinKey>,
    pause: Duration,
) -> Option<AuditResult<BinKey>> {
    let mut call = Box::pin(index.audit_registers(after));
    match futures::poll!(&mut call) {
        Poll::Ready(page) => Some(page.unwrap()),
        Poll::Pending => {
            tokio::time::sleep(pause).await;
            None
        }
    }
}

#[tokio::test]
async fn a_page_of_a_cancelled_caller_is_returned_to_the_next() {
    for pause in [Duration::ZERO, Duration::from_millis(100)] {
        let folder = tempfile::tempdir().unwrap();
        let bed = filled_with_slices(folder.path(), 50).await;
        let mut page = bed.index.audit_registers(None).await.unwrap();
        let mut items = page.items;
        while page.next.is_some() {
            let mut ready = None;
            if is_within(page.next) {
                ready = give_up(&bed.index, page.next, pause).await;
            }
            page = match ready {
                Some(page) => page,
                None => bed.index.audit_registers(page.next).await.unwrap(),
            };
            items += page.items;
        }
        assert_eq!(items, 300, "each was read once, and no page was lost");
    }
}

#[tokio::test]
async fn a_run_whose_thread_is_gone_is_begun_anew() {
    let folder = tempfile::tempdir().unwrap();
    let bed = filled_with_slices(folder.path(), 50).await;
    let first = bed.index.audit_registers(None).await.unwrap();
    assert!(is_within(first.next));
    let folder = tempfile::tempdir().unwrap();
    let again = filled_with_slices(folder.path(), 1000).await;
    let found = again.index.audit_registers(first.next).await.unwrap();
    assert!(found.items > 300 - first.items && found.items <= 300);
}

#[tokio::test]
async fn audits_that_begin_together_see_every_register_each() {
    let folder = tempfile::tempdir().unwrap();
    let bed = filled_with_slices(folder.path(), 50).await;
    let (one, other) = tokio::join!(audited(&bed.index), audited(&bed.index));
    assert_eq!((one.items, other.items), (300, 300));
}

#[tokio::test]
async fn two_audits_of_one_run_mend_it_once() {
    let folder = tempfile::tempdir().unwrap();
    let mut bed = filled_with_slices(folder.path(), 50).await;
    let sound = bed.index.bins(Span::ALL, None, 1000).await.unwrap();
    let (bin, _) = sound[3];
    overwrite(&bed.index, Family::Tree, &tree::row_key(&bin), &tree::encode_sum(Sum::default()));
    let slow = bed.index.audit_registers(None).await.unwrap().next;
    bed.index.slice.registers = 1000;
    assert_eq!(audited(&bed.index).await.corrupt, [bin]);
    let mut after = slow;
    while after.is_some() {
        let page = bed.index.audit_registers(after).await.unwrap();
        assert_eq!(page.corrupt, []);
        after = page.next;
    }
    assert_eq!(bed.index.bins(Span::ALL, None, 1000).await.unwrap(), sound);
}
