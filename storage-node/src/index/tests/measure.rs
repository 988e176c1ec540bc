//! What the index costs. Run with `--ignored --nocapture`; the figures are for reading, and the
//! bounds are loose enough for a noisy machine.

use std::time::{Duration, Instant};

use super::*;

const WRITERS: u64 = 16;

/// CPU seconds of this process so far.
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
            index.read(&key(&name), Want::EntryAndInline).await.unwrap();
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
