//! Audit log: outcomes, restarts, torn lines, full disks, rotation and pages.

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;

use martlet_admin_api::audit::PAGE_MAX;
use martlet_admin_api::principals::PrincipalLine;
use martlet_protocol::SystemClock;
use tempfile::TempDir;

use super::files::{AuditFiles, numbers, path_of};
use super::*;

fn record(operation: &str, key: &str) -> AuditRecord {
    AuditRecord {
        who: PrincipalLine { key: Some(key.into()), ..PrincipalLine::default() },
        operation: operation.into(),
        ..AuditRecord::default()
    }
}

async fn log_in(folder: &Path) -> AuditLog {
    AuditLog::open(folder.to_owned(), "proxy p1", Arc::new(SystemClock)).await
}

async fn changed(log: &AuditLog, operation: &str, status: u16) {
    let begun = log.begin(record(operation, "K1")).await.unwrap();
    log.end(begun, status).await.unwrap();
}

async fn outcomes(log: &AuditLog) -> Vec<String> {
    let page = log.page(AuditQuery::default()).await.unwrap();
    let outcome = |record: AuditRecord| format!("{} {}", record.operation, record.outcome.unwrap());
    page.items.into_iter().map(outcome).collect()
}

#[tokio::test]
async fn each_change_has_one_record_with_its_outcome() {
    let folder = tempfile::tempdir().unwrap();
    let log = log_in(&folder.path().join("audit")).await;
    for (operation, status) in [("a", 200), ("b", 403), ("c", 503)] {
        changed(&log, operation, status).await;
    }
    assert_eq!(outcomes(&log).await, ["a done", "b refused", "c failed"]);
    assert_eq!((log.records.load(Ordering::Relaxed), log.problem()), (3, None));
    let path = path_of(&folder.path().join("audit"), 1);
    assert_eq!(fs::metadata(path).unwrap().permissions().mode() & 0o777, 0o600);
}

#[tokio::test]
async fn values_of_targets_are_cut_at_their_bound() {
    let folder = tempfile::tempdir().unwrap();
    let log = log_in(folder.path()).await;
    // One byte, and characters of two: the bound is within a character.
    let long = format!("k{}", "é".repeat(40_000));
    let target = [("access_key".to_owned(), long), ("tenant".to_owned(), "lab".to_owned())].into();
    let begun = log.begin(AuditRecord { target, ..record("a", "K1") }).await.unwrap();
    log.end(begun, 200).await.unwrap();
    let page = log.page(AuditQuery::default()).await.unwrap();
    let target = &page.items[0].target;
    assert_eq!(target["access_key"], format!("k{}", "é".repeat((TARGET_BYTES_MAX - 1) / 2)));
    assert_eq!(target["tenant"], "lab");
    // Both lines have the cut value.
    let file = fs::read(path_of(folder.path(), 1)).unwrap();
    assert!(file.len() < 4 * TARGET_BYTES_MAX, "{}", file.len());
}

#[tokio::test]
async fn a_crash_within_a_change_leaves_one_record_of_unknown_outcome() {
    let folder = tempfile::tempdir().unwrap();
    let log = log_in(folder.path()).await;
    changed(&log, "before", 200).await;
    let lost = log.begin(record("lost", "K1")).await.unwrap();
    drop((lost, log));
    for _ in 0..2 {
        let log = log_in(folder.path()).await;
        assert_eq!(outcomes(&log).await, ["before done", "lost unknown"]);
    }
}

#[tokio::test]
async fn a_torn_line_is_passed_over_and_spoils_no_other() {
    let folder = tempfile::tempdir().unwrap();
    changed(&log_in(folder.path()).await, "a", 200).await;
    let path = path_of(folder.path(), 1);
    let mut bytes = fs::read(&path).unwrap();
    bytes.extend_from_slice(b"{\"v\": 1, \"id\": \"cut");
    fs::write(&path, bytes).unwrap();
    let log = log_in(folder.path()).await;
    changed(&log, "b", 200).await;
    assert_eq!(outcomes(&log).await, ["a done", "b done"]);
}

/// Folder whose first audit file is on a full disk.
fn full() -> TempDir {
    let folder = tempfile::tempdir().unwrap();
    symlink("/dev/full", path_of(folder.path(), 1)).unwrap();
    folder
}

#[tokio::test]
async fn a_full_disk_refuses_changes_until_there_is_room() {
    let folder = full();
    let log = log_in(folder.path()).await;
    let refusal = log.begin(record("a", "K1")).await.unwrap_err();
    assert!(refusal.starts_with("nothing was changed"), "{refusal}");
    assert!(log.problem().unwrap().contains("No space left"), "{:?}", log.problem());
    assert!(log.failures.load(Ordering::Relaxed) >= 1);
    fs::remove_file(path_of(folder.path(), 1)).unwrap();
    changed(&log, "b", 200).await;
    assert_eq!((outcomes(&log).await, log.problem()), (vec!["b done".to_owned()], None));
}

#[tokio::test]
async fn an_outcome_that_can_not_be_stored_is_an_error_and_unknown_after_a_restart() {
    let folder = tempfile::tempdir().unwrap();
    let log = log_in(folder.path()).await;
    let begun = log.begin(record("a", "K1")).await.unwrap();
    let (path, aside) = (path_of(folder.path(), 1), folder.path().join("aside"));
    fs::rename(&path, &aside).unwrap();
    symlink("/dev/full", &path).unwrap();
    log.files.lock().close();
    let refusal = log.end(begun, 200).await.unwrap_err();
    assert!(refusal.contains("could not be recorded"), "{refusal}");
    fs::rename(&aside, &path).unwrap();
    assert_eq!(outcomes(&log_in(folder.path()).await).await, ["a unknown"]);
}

#[tokio::test]
async fn a_folder_that_can_not_be_made_is_a_problem_and_no_end() {
    let folder = tempfile::tempdir().unwrap();
    let place = folder.path().join("place");
    fs::write(&place, "a file").unwrap();
    let log = log_in(&place.join("audit")).await;
    assert!(log.problem().unwrap().contains("changes are refused"));
    fs::remove_file(&place).unwrap();
    changed(&log, "a", 200).await;
    assert_eq!(log.problem(), None);
}

#[test]
fn files_are_rotated_and_the_oldest_are_deleted() {
    let folder = tempfile::tempdir().unwrap();
    let mut files = AuditFiles::new(folder.path().to_owned()).with_file_bytes(100);
    for number in 0..40 {
        let done = Some("done".to_owned());
        let line = AuditRecord { outcome: done, ..record(&number.to_string(), "K1") };
        files.append(&line).unwrap();
    }
    let kept = numbers(folder.path()).unwrap();
    assert_eq!(kept.len(), 10, "{kept:?}");
    let page = AuditQuery::default().read(folder.path()).unwrap();
    assert_eq!(page.items.last().unwrap().operation, "39");
    let first: u64 = page.items[0].operation.parse().unwrap();
    assert_eq!(u64::try_from(page.items.len()).unwrap(), 40 - first);
    // A reader that pauses for long goes on with the oldest file that is left.
    let query = AuditQuery { after: AuditCursor::parse("1.90").unwrap(), ..AuditQuery::default() };
    assert_eq!(query.read(folder.path()).unwrap().items, page.items);
}

#[tokio::test]
async fn pages_follow_each_other_and_later_records_the_last_page() {
    let folder = tempfile::tempdir().unwrap();
    let mut files = AuditFiles::new(folder.path().to_owned()).with_file_bytes(20_000);
    let total = PAGE_MAX + 7;
    for number in 0..total {
        let done = Some("done".to_owned());
        files.append(&AuditRecord { outcome: done, ..record(&number.to_string(), "K1") }).unwrap();
    }
    let (mut seen, mut query) = (Vec::new(), AuditQuery::default());
    loop {
        let page = query.read(folder.path()).unwrap();
        seen.extend(page.items.into_iter().map(|record| record.operation));
        query.after = AuditCursor::parse(&page.next).unwrap();
        if !page.more {
            break;
        }
    }
    let expected: Vec<String> = (0..total).map(|number| number.to_string()).collect();
    assert_eq!(seen, expected);
    assert!(query.read(folder.path()).unwrap().items.is_empty());
    files.append(&AuditRecord { outcome: Some("done".into()), ..record("later", "K2") }).unwrap();
    assert_eq!(query.read(folder.path()).unwrap().items[0].operation, "later");
}

#[test]
fn records_are_filtered_by_time_requester_target_and_tenant() {
    let folder = tempfile::tempdir().unwrap();
    let mut files = AuditFiles::new(folder.path().to_owned());
    let of = |operation: &str, key: &str, tenant: Option<&str>, time_ms| {
        let mut record =
            AuditRecord { time_ms, outcome: Some("done".into()), ..record(operation, key) };
        record.who.tenant = tenant.map(str::to_owned);
        record
    };
    let mut named = of("PUT /named", "K1", None, 30);
    named.target = [("tenant".to_owned(), "t1".to_owned())].into();
    for record in [of("PUT /a", "K1", None, 10), of("PUT /b", "K2", Some("t1"), 20), named] {
        files.append(&record).unwrap();
    }
    let found = |query: AuditQuery| -> Vec<String> {
        let page = query.read(folder.path()).unwrap();
        page.items.into_iter().map(|record| record.operation).collect()
    };
    let any = AuditQuery::default;
    let text = |text: &str| Some(text.to_owned());
    assert_eq!(found(AuditQuery { since_ms: 20, ..any() }), ["PUT /b", "PUT /named"]);
    assert_eq!(found(AuditQuery { who: text("K2"), ..any() }), ["PUT /b"]);
    assert_eq!(found(AuditQuery { what: text("/a"), ..any() }), ["PUT /a"]);
    assert_eq!(found(AuditQuery { what: text("t1"), ..any() }), ["PUT /named"]);
    assert_eq!(found(AuditQuery { tenant: text("t1"), ..any() }), ["PUT /b", "PUT /named"]);
    assert!(found(AuditQuery { tenant: text("t"), ..any() }).is_empty());
}
