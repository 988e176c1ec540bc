//! Effects of a power cut, or a flipped bit, on the log of an index.

use super::*;

fn log_of(folder: &Path) -> PathBuf {
    let files = std::fs::read_dir(folder.join("index")).unwrap();
    let logs = files
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.extension().is_some_and(|extension| extension == "log"));
    logs.max_by_key(|path| path.metadata().unwrap().len()).unwrap()
}

/// Returns the log of an index that was not closed, and the ends of its 20 records.
async fn written_log(folder: &Path) -> (PathBuf, Vec<usize>) {
    let objects = (0..20_u8).map(|number| vec![number + 1; 5000]).collect();
    written_log_of(folder, objects).await
}

/// Returns the log of an index that was not closed, and the end of each object's record.
async fn written_log_of(folder: &Path, objects: Vec<Vec<u8>>) -> (PathBuf, Vec<usize>) {
    let bed = bed(folder);
    let log = || log_of(folder);
    let mut ends = Vec::new();
    for (number, bytes) in objects.into_iter().enumerate() {
        bed.index.write(inline(&key(&number.to_string()), stamp(1), &bytes)).await.unwrap();
        ends.push(usize::try_from(log().metadata().unwrap().len()).unwrap());
    }
    (log(), ends)
}

/// Opens a copy of the index after `change` to its log.
fn open_changed(folder: &Path, log: &Path, change: impl FnOnce(&mut Vec<u8>)) -> Result<Vec<bool>> {
    let copy = tempfile::tempdir().unwrap();
    for entry in std::fs::read_dir(folder.join("index")).unwrap() {
        let entry = entry.unwrap();
        std::fs::copy(entry.path(), copy.path().join(entry.file_name())).unwrap();
    }
    let log = copy.path().join(log.file_name().unwrap());
    let mut bytes = std::fs::read(&log).unwrap();
    change(&mut bytes);
    std::fs::write(&log, bytes).unwrap();
    let database = Database::open(copy.path(), &Caches::default())?;
    let there = |number: u8| {
        database.get(Family::Entries, &key(&number.to_string()).encode()).map(|row| row.is_some())
    };
    (0..20).map(there).collect()
}

#[tokio::test]
async fn a_flipped_bit_anywhere_in_the_log_is_noticed() {
    let folder = tempfile::tempdir().unwrap();
    let (log, ends) = written_log(folder.path()).await;
    let length = ends[19];
    // Every part of a header, the middle, and the last record.
    let places = (0..7).chain([
        length / 3,
        length / 2,
        ends[18] + 3,
        ends[18] + 4,
        ends[18] + 5,
        ends[18] + 900,
        length - 1,
    ]);
    for at in places {
        let opened = open_changed(folder.path(), &log, |bytes| bytes[at] ^= 1);
        match opened {
            Err(error) => assert_eq!(error.kind(), ErrorKind::Corrupt, "byte {at}: {error}"),
            Ok(there) => panic!("byte {at} of {length} was skipped over: {there:?}"),
        }
    }
}

#[tokio::test]
async fn an_end_that_was_not_written_is_cut_off_and_nothing_else() {
    let folder = tempfile::tempdir().unwrap();
    let (log, ends) = written_log(folder.path()).await;
    for from in [ends[18], ends[18] + 100, ends[18] + 2000, ends[18] + 4400] {
        let there = open_changed(folder.path(), &log, |bytes| {
            let sector = from.next_multiple_of(512).min(bytes.len());
            let from = if from == ends[18] { from } else { sector };
            let to = (from / 512 * 512 + 512).min(bytes.len());
            bytes[from..to].fill(0);
        })
        .unwrap();
        assert!(there[..19].iter().all(|there| *there), "from {from}: {there:?}");
        assert!(!there[19]);
    }
    let there = open_changed(folder.path(), &log, |bytes| bytes.truncate(ends[18] + 700)).unwrap();
    assert!(there[..19].iter().all(|there| *there) && !there[19]);
    let whole = open_changed(folder.path(), &log, |_| {}).unwrap();
    assert!(whole.iter().all(|there| *there));
    let opened = open_changed(folder.path(), &log, |bytes| bytes[ends[9] + 512..][..512].fill(0));
    assert_eq!(opened.unwrap_err().kind(), ErrorKind::Corrupt, "records follow it");
    let none = open_changed(folder.path(), &log, |bytes| {
        bytes.truncate(ends[0]);
        bytes[..512].fill(0);
    });
    assert!(none.unwrap().iter().all(|there| !there));
}

#[tokio::test]
async fn an_object_that_is_a_log_itself_does_not_keep_an_index_from_opening() {
    let folder = tempfile::tempdir().unwrap();
    let mut objects = vec![vec![1; 5000]; 19];
    objects.push(log_tail::tests::leveldb_log(150));
    let (log, ends) = written_log_of(folder.path(), objects).await;
    let sectors = ends[18] / 512..ends[19].div_ceil(512);
    for sector in sectors {
        let there = open_changed(folder.path(), &log, |bytes| {
            let to = (sector * 512 + 512).min(bytes.len());
            bytes[(sector * 512).max(ends[18])..to].fill(0);
        })
        .unwrap_or_else(|error| panic!("without sector {sector}: {error}"));
        assert!(there[..19].iter().all(|there| *there) && !there[19], "{there:?}");
    }
}

#[tokio::test]
async fn a_last_record_that_ends_in_zeros_is_not_cut_off_for_a_flipped_bit() {
    // The record ends at each position within a sector.
    for more in 0..24 {
        let folder = tempfile::tempdir().unwrap();
        let length = |more: usize| vec![3; 100 + more];
        let (_, ends) = written_log_of(folder.path(), vec![vec![1; 50], length(0)]).await;
        let fill = (512 - ends[1] % 512) + more;
        let folder = tempfile::tempdir().unwrap();
        let (log, ends) = written_log_of(folder.path(), vec![vec![1; 50], length(fill)]).await;
        let opened = open_changed(folder.path(), &log, |bytes| bytes[ends[0] + 60] ^= 1);
        let error = opened.expect_err("the record was acknowledged");
        assert_eq!(error.kind(), ErrorKind::Corrupt, "{error}");
    }
}
