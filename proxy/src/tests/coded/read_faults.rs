//! Fragments that are corrupt, late or unreachable, before a read and in the middle.

use std::sync::atomic::Ordering;
use std::time::Duration;

use futures::StreamExt;
use martlet_erasure::FragmentIndex;
use martlet_protocol::{DeviceId, ErrorKind};
use tokio::time::Instant;

use super::fixture::CodedFixture;
use super::read_fixture::{fragments, kind};
use crate::StoreOptions;
use crate::tests::extents::wayward::Conduct;
use crate::tests::harness::{pattern, settle};

const MIB: usize = 1024 * 1024;

fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

fn at(number: u8) -> FragmentIndex {
    FragmentIndex(number)
}

#[tokio::test(start_paused = true)]
async fn a_corrupt_fragment_counts_as_lost() {
    let fixture = CodedFixture::new("4+2", 8).await;
    let bytes = pattern(2_000_000, 1);
    for corrupt in [&[0][..], &[3], &[5], &[0, 1], &[2, 4]] {
        let extent = fixture.keep(&bytes).await;
        for fragment in fragments(corrupt) {
            let home = fixture.home(extent.id, fragment);
            fixture.node.memory.corrupt(home, extent.id.fragment(fragment.0));
        }
        assert!(fixture.read_whole(&extent).await.unwrap() == bytes, "{corrupt:?}");
    }
    let extent = fixture.keep(&bytes).await;
    for fragment in fragments(&[0, 1, 2]) {
        let home = fixture.home(extent.id, fragment);
        fixture.node.memory.corrupt(home, extent.id.fragment(fragment.0));
    }
    assert_eq!(
        kind(fixture.read_whole(&extent).await),
        Some(ErrorKind::Internal),
        "never wrong bytes"
    );
}

#[tokio::test(start_paused = true)]
async fn a_failed_fragment_read_is_reconstructed_from_its_offset() {
    let bytes = pattern(9_000_000, 2);
    for broken_at in [1, 65_536, 1_000_000, 2_000_000] {
        for kind in [ErrorKind::Unavailable, ErrorKind::Corrupt] {
            let fixture = CodedFixture::new("4+2", 6).await;
            let extent = fixture.keep(&bytes).await;
            let home = fixture.home(extent.id, at(1));
            fixture.let_be([home], Conduct::ReadBreaks(broken_at, kind));
            let start = fixture.geometry(&extent).fragment_bytes();
            fixture.check_range(&extent, &bytes, start..2 * start).await;
            let reads = fixture.node.reads();
            assert_eq!(reads[0], (home, 0..start), "{kind:?} after {broken_at}");
            let others = reads[1..].iter().filter(|(device, _)| *device != home);
            let least = others.map(|(_, columns)| columns.start).min().unwrap();
            assert_eq!(least, broken_at as u64, "nothing is read that was served before");
            fixture.let_be([home], Conduct::ReadBreaks(broken_at, kind));
            assert!(fixture.read_whole(&extent).await.unwrap() == bytes);
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_device_that_dies_under_a_read_ends_nothing() {
    let bytes = pattern(16_000_000, 3);
    for dead in 0..4 {
        let fixture = CodedFixture::new("4+2", 6).await;
        let extent = fixture.keep(&bytes).await;
        let mut stream = fixture.open(&[extent], 0..16_000_000).await.unwrap();
        let mut read = stream.next().await.unwrap().unwrap().to_vec();
        let gone = [fixture.home(extent.id, at(dead)), fixture.home(extent.id, at(5))];
        fixture.let_be(gone, Conduct::Refuses(ErrorKind::Unavailable));
        for device in gone {
            fixture.node.memory.set_offline(device, true);
        }
        while let Some(piece) = stream.next().await {
            read.extend_from_slice(&piece.unwrap());
        }
        assert!(read == bytes, "fragment {dead}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_stalled_fragment_is_reconstructed() {
    let fixture = CodedFixture::new("4+2", 6).await;
    let bytes = pattern(9_000_000, 4);
    let extent = fixture.keep(&bytes).await;
    fixture.let_be([fixture.home(extent.id, at(2))], Conduct::ReadStalls(300_000));
    let begun = Instant::now();
    assert!(fixture.read_whole(&extent).await.unwrap() == bytes);
    let took = begun.elapsed();
    assert!(took >= Duration::from_secs(5) && took < Duration::from_secs(6), "{took:?}");
    let begun = Instant::now();
    assert!(fixture.read_whole(&extent).await.unwrap() == bytes);
    assert!(begun.elapsed() < ms(40), "it is not asked first again: {:?}", begun.elapsed());
}

#[tokio::test(start_paused = true)]
async fn a_fragment_that_is_late_is_made_of_others() {
    for conduct in [Conduct::Late(ms(900)), Conduct::ReadStalls(0), Conduct::Hangs] {
        let fixture = CodedFixture::new("4+2", 6).await;
        let bytes = pattern(900_000, 5);
        let extent = fixture.keep(&bytes).await;
        fixture.let_be([fixture.home(extent.id, at(0))], conduct);
        let begun = Instant::now();
        fixture.check_range(&extent, &bytes, 0..200_000).await;
        let took = begun.elapsed();
        assert!(took >= ms(30) && took < ms(32), "{conduct:?}: {took:?}");
        settle().await;
        assert_eq!(fixture.node.open.load(Ordering::SeqCst), 0, "who lost was told to stop");
    }
}

#[tokio::test(start_paused = true)]
async fn a_source_that_is_late_is_made_up_for_by_another() {
    for conduct in [Conduct::Late(ms(900)), Conduct::ReadStalls(1000), Conduct::Hangs] {
        let fixture = CodedFixture::new("4+2", 6).await;
        let bytes = pattern(900_000, 6);
        for late in 1..6 {
            let extent = fixture.keep(&bytes).await;
            fixture.lose(&extent, &fragments(&[0])).await;
            let device = fixture.home(extent.id, at(late));
            fixture.let_be([device], conduct);
            let begun = Instant::now();
            fixture.check_range(&extent, &bytes, 0..200_000).await;
            assert!(begun.elapsed() < ms(32), "{conduct:?}: {:?}", begun.elapsed());
            fixture.let_be([device], Conduct::Well);
        }
    }
}

#[tokio::test(start_paused = true)]
async fn late_fragments_are_awaited_if_no_others_are_left() {
    let fixture = CodedFixture::new("4+2", 6).await;
    let bytes = pattern(900_000, 7);
    let extent = fixture.keep(&bytes).await;
    fixture.lose(&extent, &fragments(&[0, 4])).await;
    fixture.let_be([fixture.home(extent.id, at(2))], Conduct::Late(ms(3000)));
    fixture.check_range(&extent, &bytes, 0..200_000).await;
    fixture.let_be([fixture.home(extent.id, at(2))], Conduct::Hangs);
    let begun = Instant::now();
    let read = fixture.read(&[extent], 0..200_000).await;
    assert_eq!(kind(read), Some(ErrorKind::Unavailable));
    assert!(begun.elapsed() < Duration::from_secs(20), "{:?}", begun.elapsed());
}

#[tokio::test(start_paused = true)]
async fn a_stopped_node_costs_a_few_waits_and_not_one_for_each_read() {
    let fixture = CodedFixture::new("4+2", 6).await;
    let bytes = pattern(300_000, 8);
    let mut kept = Vec::new();
    for _ in 0..30 {
        kept.push(fixture.keep(&bytes).await);
    }
    fixture.let_be([DeviceId(2)], Conduct::Hangs);
    let begun = Instant::now();
    for _ in 0..10 {
        let reads = kept.iter().map(|extent| fixture.read_whole(extent));
        for read in futures::future::join_all(reads).await {
            assert!(read.unwrap() == bytes);
        }
        tokio::time::sleep(ms(500)).await;
    }
    let took = begun.elapsed();
    assert!(took < ms(5000 + 4000), "{took:?}, of which 5 s were spent between the reads");
}

#[tokio::test(start_paused = true)]
async fn a_cluster_at_its_limit_gets_few_extra_reads() {
    let fixture = CodedFixture::new("4+2", 6).await;
    let bytes = pattern(100_000, 9);
    let extents = [fixture.keep(&bytes).await];
    fixture.let_be(fixture.devices(), Conduct::Late(ms(200)));
    let reads = 1000;
    for _ in 0..reads / 50 {
        let reads = (0..50).map(|_| fixture.read(&extents, 0..10_000));
        futures::future::join_all(reads).await;
    }
    let reads = fixture.node.reads().len();
    assert!(reads <= reads + reads / 10 + 40, "{reads} calls for {reads} reads");
}

#[tokio::test(start_paused = true)]
async fn an_incomplete_extent_fails_before_its_first_byte() {
    let bytes = pattern(12_000_000, 13);
    for conduct in [Conduct::Refuses(ErrorKind::Unavailable), Conduct::Hangs] {
        let fixture = CodedFixture::new("4+2", 6).await;
        let extent = fixture.keep(&bytes).await;
        let home = |number: &u8| fixture.home(extent.id, at(*number));
        drop(fixture.open(&[extent], 0..12_000_000).await.unwrap());
        assert_eq!(fixture.node.reads().len(), 1, "nothing more is read to find out");
        for out in [&[1][..], &[1, 3], &[2, 5], &[4, 5]] {
            fixture.let_be(out.iter().map(home), conduct);
            drop(fixture.open(&[extent], 0..12_000_000).await.unwrap());
            fixture.let_be(fixture.devices(), Conduct::Well);
        }
        fixture.let_be([1, 2, 3].iter().map(home), conduct);
        let opened = fixture.open(&[extent], 0..12_000_000).await;
        assert_eq!(kind(opened), Some(ErrorKind::Unavailable), "{conduct:?}");
        fixture.check_range(&extent, &bytes, 0..3_000_000).await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_reader_that_goes_away_leaves_nothing_running() {
    let fixture = CodedFixture::new("4+2", 6).await;
    let bytes = pattern(12_000_000, 10);
    let extent = fixture.keep(&bytes).await;
    fixture.lose(&extent, &fragments(&[0, 2])).await;
    for pieces in 0..20 {
        let mut stream = fixture.open(&[extent], 0..12_000_000).await.unwrap();
        for _ in 0..pieces {
            stream.next().await.unwrap().unwrap();
        }
        drop(stream);
        settle().await;
        assert_eq!(fixture.node.open.load(Ordering::SeqCst), 0, "after {pieces}");
        fixture.node.reads();
        tokio::time::sleep(Duration::from_secs(30)).await;
        assert!(fixture.node.reads().is_empty(), "nothing more is asked after {pieces}");
        let recoveries = &fixture.store.services.extents.recoveries;
        assert_eq!(recoveries.available_permits(), 32 * MIB, "after {pieces}");
    }
}

#[tokio::test(start_paused = true)]
async fn recoveries_wait_for_each_other_and_not_for_readers_that_stand_still() {
    // A quarter of this budget is less than one recovery step needs.
    let options = StoreOptions { buffer_bytes_max: 4 * MIB, ..StoreOptions::default() };
    let fixture = CodedFixture::with("4+2", 6, 1, options).await;
    let bytes = pattern(8_000_000, 11);
    let extent = fixture.keep(&bytes).await;
    fixture.lose(&extent, &fragments(&[1])).await;
    let start = fixture.geometry(&extent).fragment_bytes();
    let mut open_reads = Vec::new();
    for _ in 0..20 {
        open_reads.push(fixture.open(&[extent], start..2 * start).await.unwrap());
    }
    settle().await;
    assert_eq!(fixture.node.open.load(Ordering::SeqCst), 0, "what was begun has ended");
    let reads = (0..20).map(|_| fixture.read_whole(&extent));
    for read in futures::future::join_all(reads).await {
        assert!(read.unwrap() == bytes);
    }
    for mut stream in open_reads {
        let mut read = 0;
        while let Some(piece) = stream.next().await {
            read += piece.unwrap().len();
        }
        assert_eq!(read as u64, start);
    }
}

#[tokio::test(start_paused = true)]
async fn a_slow_reader_survives_nodes_that_close_on_it() {
    let fixture = CodedFixture::new("4+2", 6).await;
    let bytes = pattern(12_000_000, 12);
    let extent = fixture.keep(&bytes).await;
    fixture.let_be(fixture.devices(), Conduct::ReadMinds(Duration::from_secs(10)));
    let mut stream = fixture.open(&[extent], 0..12_000_000).await.unwrap();
    let mut read = Vec::new();
    while let Some(piece) = stream.next().await {
        read.extend_from_slice(&piece.unwrap());
        tokio::time::sleep(Duration::from_secs(11)).await;
    }
    assert!(read == bytes);
    fixture.node.reads();
    fixture.read_whole(&extent).await.unwrap();
    assert_eq!(fixture.node.reads().len(), 4, "and blames none of them");
}
