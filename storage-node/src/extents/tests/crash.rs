//! Power cuts at every disk call of every kind of change, and of the recovery after the change.

use martlet_protocol::backend::Presence;

use super::*;

/// Bytes of a packed extent, and of a file extent.
const LENGTHS: [usize; 2] = [70_000, 1_200_000];

#[derive(Clone, Copy, Debug)]
enum CrashStep {
    /// A new extent.
    Put(usize),
    /// A new extent, then the old one is deleted.
    Overwrite(usize),
    /// The old extent is deleted.
    Delete(usize),
}

impl CrashStep {
    fn length(self) -> usize {
        let (Self::Put(length) | Self::Overwrite(length) | Self::Delete(length)) = self;
        length
    }
}

/// Extents that a change uses.
const OLD: ExtentId = ExtentId([1; 16]);
const NEW: ExtentId = ExtentId([2; 16]);
const BYSTANDERS: [ExtentId; 2] = [ExtentId([3; 16]), ExtentId([4; 16])];

/// Acknowledgements before the power cut.
#[derive(Clone, Copy, Debug, Default)]
struct AcknowledgedState {
    put: bool,
    deleted: bool,
}

async fn set_up(store: &ExtentStore, change: CrashStep) {
    for (id, length) in BYSTANDERS.into_iter().zip(LENGTHS) {
        put(store, id, length).await.unwrap();
    }
    put(store, OLD, change.length()).await.unwrap();
}

async fn run(store: &ExtentStore, change: CrashStep) -> AcknowledgedState {
    let mut acknowledged = AcknowledgedState::default();
    if matches!(change, CrashStep::Put(_) | CrashStep::Overwrite(_)) {
        acknowledged.put = put(store, NEW, change.length()).await.is_ok();
        if !acknowledged.put {
            return acknowledged;
        }
    }
    if matches!(change, CrashStep::Delete(_) | CrashStep::Overwrite(_)) {
        acknowledged.deleted = store.delete(&[OLD]).await.is_ok();
    }
    acknowledged
}

/// Checks the invariants after a power cut.
async fn check(
    store: &ExtentStore,
    disk: &FaultyDisk,
    change: CrashStep,
    known: AcknowledgedState,
) {
    for (id, length) in BYSTANDERS.into_iter().zip(LENGTHS) {
        assert!(is_there(store, id, length).await, "a bystander is gone");
    }
    let deletes = matches!(change, CrashStep::Delete(_) | CrashStep::Overwrite(_));
    let old = is_there(store, OLD, change.length()).await;
    assert!(old || deletes, "it was never deleted");
    assert!(!old || !known.deleted, "a deleted extent is back");
    let new = is_there(store, NEW, change.length()).await;
    assert!(new || !known.put, "an acknowledged extent is gone");
    no_leaks(store, disk).await;
    let another = ExtentId([9; 16]);
    put(store, another, change.length()).await.unwrap();
    assert!(is_there(store, another, change.length()).await);
}

/// Cuts the power after `calls` calls of a change; false if the change had ended. The recovery then
/// loses power after `again` calls, until one recovery completes.
async fn cut(change: CrashStep, seed: u64, calls: u64, again: u64, keep_rows: bool) -> bool {
    let (disk, table) = fresh(seed);
    let (store, _) = open(&disk, &table).unwrap();
    set_up(&store, change).await;
    // Half of the changes follow an opening that believed the saved free space.
    let store = if seed.is_multiple_of(2) { reopen(store, &disk, &table) } else { store };
    disk.fail_after(calls, DiskFault::PowerCut);
    let known = run(&store, change).await;
    store.close();
    let cut = disk.is_dead();
    let (mut disk, mut table) = reboot(&disk, &table, keep_rows);
    for _ in 0..3 {
        disk.fail_after(again, DiskFault::PowerCut);
        drop(open(&disk, &table));
        (disk, table) = reboot(&disk, &table, keep_rows);
    }
    let (store, report) = open(&disk, &table).unwrap();
    assert!(report.missing.is_empty() && report.quarantined == 0, "{report:?}");
    check(&store, &disk, change, known).await;
    store.close();
    cut
}

/// Closes a store in good order and opens it again.
fn reopen(store: ExtentStore, disk: &FaultyDisk, table: &MemoryTable) -> ExtentStore {
    assert!(store.close());
    let saved_space = store.save_space().unwrap();
    drop(store);
    open_with(disk, table, &clean(Some(saved_space))).unwrap().0
}

fn reboot(disk: &FaultyDisk, table: &MemoryTable, keep_rows: bool) -> (FaultyDisk, MemoryTable) {
    let disk = disk.reboot();
    let table = table.powered_by(&disk, keep_rows);
    (disk, table)
}

async fn at_every_call(change: impl Fn(usize) -> CrashStep) {
    let first = seed();
    let mut cuts = 0;
    for length in LENGTHS {
        for keep_rows in [false, true] {
            for round in 0..6 {
                let mut calls = 0;
                loop {
                    let seed = first + round * 1000 + calls;
                    let again = 3 + (seed * 7 + round) % 40;
                    let change = change(length);
                    eprintln!(
                        "{change:?} seed {seed} cut after {calls}, then {again}, {keep_rows}"
                    );
                    if !cut(change, seed, calls, again, keep_rows).await {
                        break;
                    }
                    (calls, cuts) = (calls + 1, cuts + 1);
                }
                assert!(calls >= 2, "only {calls} calls");
            }
        }
    }
    eprintln!("{cuts} cuts");
}

/// Returns the seed from `MARTLET_SEED`, or one from the clock.
fn seed() -> u64 {
    let given = std::env::var("MARTLET_SEED").ok().and_then(|seed| seed.parse().ok());
    let seed = given.unwrap_or_else(|| SystemClock.now_ms() % 1_000_000);
    eprintln!("MARTLET_SEED={seed}");
    seed
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_put_is_whole_or_absent_wherever_the_power_is_cut() {
    at_every_call(CrashStep::Put).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_overwrite_leaves_the_old_or_the_new_wherever_the_power_is_cut() {
    at_every_call(CrashStep::Overwrite).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_delete_happened_or_not_wherever_the_power_is_cut() {
    at_every_call(CrashStep::Delete).await;
}

/// A row proves that the file was durable which went to quarantine, not the one that replaces it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_repair_of_a_quarantined_file_is_whole_or_absent_wherever_the_power_is_cut() {
    let length = LENGTHS[1];
    let (mut whole, mut absent) = (0, 0);
    for seed in 0..8 {
        for calls in 0.. {
            let (disk, table) = fresh(seed * 100 + calls);
            let (store, _) = open(&disk, &table).unwrap();
            put(&store, OLD, length).await.unwrap();
            put(&store, BYSTANDERS[0], LENGTHS[0]).await.unwrap();
            // All rows are durable.
            store.close_idle_volumes(Duration::ZERO).unwrap();
            disk.flip(&footer::path(Path::new(ROOT), OLD), 5000);
            assert_eq!(get(&store, OLD).await.unwrap_err().kind(), ErrorKind::Corrupt);
            disk.fail_after(calls, DiskFault::PowerCut);
            let is_repaired = put(&store, OLD, length).await.is_ok();
            store.close();
            let was_cut = disk.is_dead();
            let (disk, table) = reboot(&disk, &table, false);
            let (store, _) = open(&disk, &table).unwrap();
            if store.presence(&[OLD]).await.unwrap() == [Presence::Here] {
                assert!(is_there(&store, OLD, length).await, "cut after {calls}, seed {seed}");
                whole += 1;
            } else {
                assert!(!is_repaired, "cut after {calls}, seed {seed}");
                put(&store, OLD, length).await.unwrap();
                absent += 1;
            }
            sums_are_right(&store).await;
            if !was_cut {
                break;
            }
        }
    }
    assert!(whole > 0 && absent > 0, "{whole} whole, {absent} absent");
}
