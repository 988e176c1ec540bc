//! Flipped bits in RocksDB's files: never served, and recorded as damage (rule G1).

use std::fs;

use super::*;

const REGISTERS: u64 = 400;

fn bytes_of(number: u64) -> Vec<u8> {
    // Half of them long enough for blob files.
    let length = if number.is_multiple_of(2) { 200 } else { 2000 };
    (0..length).map(|at| u8::try_from((at * 31 + number * 7) % 251).unwrap()).collect()
}

/// Makes a closed index, all of it in tables and blob files.
async fn closed(folder: &Path) {
    let bed = bed(folder);
    for number in 0..REGISTERS {
        bed.index
            .write(inline(&key(&number.to_string()), stamp(1), &bytes_of(number)))
            .await
            .unwrap();
    }
    bed.index.close().unwrap();
}

/// Returns the tables or blob files of an index, the longest first.
fn files(folder: &Path, extension: &str) -> Vec<PathBuf> {
    let all = fs::read_dir(folder.join("index")).unwrap().map(|entry| entry.unwrap().path());
    let mut files: Vec<_> =
        all.filter(|path| path.extension().is_some_and(|e| e == extension)).collect();
    files.sort_by_key(|path| std::cmp::Reverse(path.metadata().unwrap().len()));
    files
}

fn flip(path: &Path, at: usize) {
    let mut bytes = fs::read(path).unwrap();
    bytes[at] ^= 0x10;
    fs::write(path, bytes).unwrap();
}

/// Reads all registers; returns the number of errors. Panics on wrong bytes.
async fn read_all(index: &Index) -> u64 {
    let mut errors = 0;
    for number in 0..REGISTERS {
        let name = key(&number.to_string());
        match index.read(&name, Want::EntryAndInline, Term::ANY).await {
            Ok(view) => assert_eq!(view.inline.unwrap(), bytes_of(number), "{number} is wrong"),
            Err(error) => {
                assert_eq!(error.kind(), ErrorKind::Corrupt, "{error}");
                errors += 1;
            }
        }
    }
    errors
}

#[tokio::test]
async fn a_flipped_bit_is_never_served_and_is_remembered() {
    let mut noticed = 0;
    for extension in ["sst", "blob"] {
        for place in 0..6_usize {
            let folder = tempfile::tempdir().unwrap();
            closed(folder.path()).await;
            let file = files(folder.path(), extension)[0].clone();
            let length = usize::try_from(file.metadata().unwrap().len()).unwrap();
            flip(&file, length * place / 6 + 20);
            let opened = Index::open(&folder.path().join("index"), surroundings(folder.path()));
            let index = match opened {
                Ok(index) => index,
                Err(error) => {
                    assert_eq!(error.kind(), ErrorKind::Corrupt, "{error}");
                    noticed += 1;
                    continue;
                }
            };
            let errors = read_all(&index).await;
            assert_eq!(errors > 0, index.damage().is_some(), "{extension} {place}");
            noticed += u64::from(errors > 0);
        }
    }
    eprintln!("{noticed} of 12 flips were met by a reader");
    assert!(noticed >= 6, "{noticed} of 12");
}

#[tokio::test]
async fn an_audit_finds_damage_that_no_reader_met() {
    let folder = tempfile::tempdir().unwrap();
    closed(folder.path()).await;
    let file = files(folder.path(), "blob")[0].clone();
    flip(&file, usize::try_from(file.metadata().unwrap().len()).unwrap() / 2);
    let bed = bed(folder.path());
    let mut after = None;
    let error = loop {
        match bed.index.audit_registers(after).await {
            Ok(page) => after = Some(page.next.expect("it is found before the end")),
            Err(error) => break error,
        }
    };
    assert_eq!(error.kind(), ErrorKind::Corrupt, "{error}");
    assert!(bed.index.damage().is_some());
}

#[tokio::test]
async fn damage_met_by_a_compaction_is_found_without_a_write() {
    let folder = tempfile::tempdir().unwrap();
    closed(folder.path()).await;
    {
        // A second table, so that a compaction has work.
        let bed = bed(folder.path());
        for number in 0..REGISTERS {
            let at = key(&number.to_string());
            bed.index.write(inline(&at, stamp(2), &bytes_of(number))).await.unwrap();
        }
        bed.index.close().unwrap();
    }
    for table in files(folder.path(), "sst") {
        flip(&table, 40);
    }
    let index = match Index::open(&folder.path().join("index"), surroundings(folder.path())) {
        Ok(index) => index,
        Err(error) => {
            assert_eq!(error.kind(), ErrorKind::Corrupt, "{error}");
            return;
        }
    };
    index.reader.database.compact(Family::Entries);
    assert_eq!(index.damage(), None, "nobody was told yet");
    index.probe();
    assert!(index.damage().is_some());
    assert!(index.fault().is_some());
}

#[tokio::test]
async fn a_lost_file_is_damage() {
    for extension in ["sst", "blob"] {
        let folder = tempfile::tempdir().unwrap();
        closed(folder.path()).await;
        fs::remove_file(&files(folder.path(), extension)[0]).unwrap();
        match Index::open(&folder.path().join("index"), surroundings(folder.path())) {
            Ok(index) => {
                assert!(read_all(&index).await > 0 && index.damage().is_some(), "{extension}");
            }
            Err(error) => assert_eq!(error.kind(), ErrorKind::Corrupt, "{extension}: {error}"),
        }
    }
}
