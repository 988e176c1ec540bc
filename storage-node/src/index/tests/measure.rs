//! Costs of the index. Run with `--ignored --nocapture`; the figures are for reading, and the
//! bounds are loose enough for a noisy machine.

use std::time::{Duration, Instant};

use martlet_protocol::Term;
use martlet_protocol::backend::Walk;
use martlet_protocol::tree::{Bin, BinKey, Span, Sum};

use super::*;
use crate::index::rows::RegisterRow;
use crate::index::tree;

const WRITERS: u64 = 16;

/// Returns the CPU seconds of this process so far.
#[expect(clippy::cast_precision_loss, reason = "figures to read")]
fn cpu() -> f64 {
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap();
    let fields: Vec<&str> = stat.rsplit(')').next().unwrap().split_whitespace().collect();
    let ticks: u64 = fields[11].parse::<u64>().unwrap() + fields[12].parse::<u64>().unwrap();
    ticks as f64 / 100.0
}

fn resident_mib() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|line| line.starts_with("VmRSS")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse::<u64>().unwrap() / 1024
}

#[expect(clippy::cast_precision_loss, reason = "figures to read")]
fn per(seconds: f64, count: u64) -> f64 {
    seconds * 1000.0 / count as f64
}

#[test]
#[ignore = "measures for half a minute"]
fn sums_of_a_million_registers() {
    const REGISTERS: u64 = 1_000_000;
    const PARTITIONS: u64 = 256;
    let folder = tempfile::tempdir().unwrap();
    drop(bed(folder.path()));
    fill(folder.path(), REGISTERS);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
    let (began, before) = (Instant::now(), cpu());
    let bed = bed(folder.path());
    eprintln!("opened and summed up: {:.2?}, {:.2} CPU s", began.elapsed(), cpu() - before);
    runtime.block_on(async {
        let width = u64::MAX / PARTITIONS + 1;
        let spans: Vec<_> = (0..PARTITIONS)
            .map(|at| Span { first: at * width, last: at * width + (width - 1) })
            .collect();
        for round in ["first", "again"] {
            let (began, before) = (Instant::now(), cpu());
            let sums = bed.index.sums(&spans).await.unwrap();
            assert_eq!(sums.iter().map(|sum| sum.count).sum::<u64>(), REGISTERS);
            let bytes = postcard::to_stdvec(&sums).unwrap().len();
            let (wall, cpu) = (began.elapsed(), cpu() - before);
            eprintln!("sums of {PARTITIONS} partitions ({round}): {wall:.2?}, {cpu:.2} CPU s, {bytes} bytes");
        }
        let largest = spans[usize::try_from(key("0").placement() / width).unwrap()];
        let began = Instant::now();
        let bins = bed.index.bins(largest, None, usize::MAX).await.unwrap();
        let bytes = postcard::to_stdvec(&bins).unwrap().len();
        eprintln!("{} bins of a partition: {:.2?}, {bytes} bytes", bins.len(), began.elapsed());
        let began = Instant::now();
        let bin = Some(BinKey::of(&key("0")));
        let walk = Walk { span: largest, bin, want: Want::Entry };
        let found = bed.index.walk(&walk, None, 1000).await.unwrap();
        eprintln!("a walk of one bin: {} registers in {:.2?}", found.len(), began.elapsed());
        let (began, before) = (Instant::now(), cpu());
        let (mut after, mut pages) = (None, 0);
        loop {
            let page = bed.index.audit_registers(after).await.unwrap();
            assert_eq!(page.corrupt, []);
            (after, pages) = (page.next, pages + 1);
            if after.is_none() {
                break;
            }
        }
        let cpu = cpu() - before;
        eprintln!("an audit in {pages} pages: {:.2?}, {cpu:.2} CPU s", began.elapsed());
    });
}

/// Costs of sums: as merge operands, or read, changed and written.
#[test]
#[ignore = "measures for some seconds"]
fn operands_or_reads() {
    const GROUPS: u64 = 40_000;
    const OPS: u64 = 12;
    for round in 0..3 {
        for way in ["operands", "reads", "writes alone"] {
            let folder = tempfile::tempdir().unwrap();
            let database =
                Database::open(&folder.path().join("index"), &Caches::default()).unwrap();
            let family = database.family(Family::Tree);
            let before = cpu();
            for op in 0..GROUPS {
                let mut batch = rocksdb::WriteBatch::default();
                for bin in (0..OPS).map(|n| (op * OPS + n) * 2_654_435_761 % 4096) {
                    let at = tree::row_key(&BinKey {
                        bucket: BUCKET,
                        shard: Shard(u16::try_from(bin % 4).unwrap()),
                        bin: Bin(u16::try_from(bin / 4).unwrap()),
                    });
                    let mut sum = Sum { hash: u128::from(op) << 64, count: 1 };
                    match way {
                        "operands" => batch.merge_cf(family, at, tree::encode_sum(sum)),
                        "reads" => {
                            if let Some(row) = database.get_pinned(Family::Tree, &at).unwrap() {
                                sum += tree::decode_sum(&row).unwrap();
                            }
                            batch.put_cf(family, at, tree::encode_sum(sum));
                        }
                        _ => batch.put_cf(family, at, tree::encode_sum(sum)),
                    }
                }
                database.write_unlogged(batch).unwrap();
            }
            database.flush().unwrap();
            let micros = per(cpu() - before, GROUPS * OPS) * 1000.0;
            eprintln!("round {round}, {way}: {micros:.2} CPU us a bin");
        }
    }
}

/// Puts registers into a closed index without sums.
fn fill(folder: &Path, registers: u64) {
    let database = Database::open(&folder.join("index"), &Caches::default()).unwrap();
    let mut batch = rocksdb::WriteBatch::default();
    batch.delete_cf(database.family(Family::Meta), b"h");
    for number in 0..registers {
        let at = key(&number.to_string());
        let entry = write(&at, stamp(1 + number), object(1, Body::Empty)).entry;
        let row = RegisterRow::of(&entry);
        batch.put_cf(database.family(Family::Entries), at.encode(), row.bytes());
        if batch.size_in_bytes() > 4 << 20 || number + 1 == registers {
            database.write_synced(std::mem::take(&mut batch)).unwrap();
        }
    }
    database.flush().unwrap();
}

#[test]
#[ignore = "measures for ten seconds"]
fn puts_gets_and_lists() {
    let folder = tempfile::tempdir().unwrap();
    let runtime =
        tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    runtime.block_on(async {
        let bed = bed(folder.path());
        eprintln!("idle: {} MiB", resident_mib());
        let index = Arc::new(bed.index);
        let puts = puts(&index, Duration::from_secs(6)).await;
        let figures = bed.counters.snapshot();
        #[expect(clippy::cast_precision_loss, reason = "figures to read")]
        let syncs = figures.syncs as f64 / figures.writes as f64;
        eprintln!("syncs a put: {syncs:.3}, largest group {}", figures.group_ops_max);
        gets(&index, puts).await;
        lists(&index, &bed.counters).await;
        eprintln!("after load: {} MiB", resident_mib());
    });
}

async fn puts(index: &Arc<Index>, time: Duration) -> u64 {
    let (began, before) = (Instant::now(), cpu());
    let writers = (0..WRITERS).map(|writer| {
        let index = index.clone();
        tokio::spawn(async move {
            let mut bytes: Vec<u8> =
                (0..4096u64).map(|at| (at * 2_654_435_761).to_le_bytes()[2]).collect();
            let mut count = 0;
            while began.elapsed() < time {
                bytes[..8].copy_from_slice(&(count * WRITERS + writer).to_le_bytes());
                let name = format!("{:08}", count * WRITERS + writer);
                let reply = index.write(inline(&key(&name), stamp(1), &bytes)).await.unwrap();
                assert_eq!(reply, WriteReply::Stored);
                count += 1;
            }
            count
        })
    });
    let counts = futures::future::join_all(writers).await;
    let puts = counts.into_iter().map(Result::unwrap).sum::<u64>();
    let rate = 1000.0 / per(began.elapsed().as_secs_f64(), puts);
    eprintln!("put 4 KiB: {rate:.0}/s, {:.4} CPU ms", per(cpu() - before, puts));
    assert!(rate > 1000.0);
    puts
}

async fn gets(index: &Index, puts: u64) {
    for (what, span) in [("recent", 1000), ("any", puts)] {
        let (began, before) = (Instant::now(), cpu());
        let count = 100_000;
        for number in 0..count {
            let name = format!("{:08}", puts / 2 / WRITERS * WRITERS + number * 7919 % span / 2);
            index.read(&key(&name), Want::EntryAndInline, Term::ANY).await.unwrap();
        }
        let (wall, cpu) = (per(began.elapsed().as_secs_f64(), count), per(cpu() - before, count));
        eprintln!("get 4 KiB ({what}): {wall:.4} ms, {cpu:.4} CPU ms");
    }
}

async fn lists(index: &Index, counters: &IndexCounters) {
    let before = cpu();
    let count = 200;
    let mut entries = 0;
    let began = Instant::now();
    for number in 0..count {
        let start = ListStart::After(format!("{:08}", number * 100).into());
        let request = ListRequest { start, ..everything() };
        entries += index.list(&request).await.unwrap().entries.len();
    }
    let (wall, cpu) = (per(began.elapsed().as_secs_f64(), count), per(cpu() - before, count));
    eprintln!("list 1000 of 4 shards: {wall:.3} ms, {cpu:.3} CPU ms, {entries} entries");
    eprintln!("{:?}", counters.snapshot());
}
