//! Backup and restore of accounts and of buckets' settings.
//!
//! Records are read page by page, and restored one by one, by ballots on the registers of their
//! items. A restore undoes no later change unless it is told to, and can be repeated: an item that
//! equals its record is left alone.
//!
//! Invariant: a restored item refers only to items that exist here with the ids of the backup.

use martlet_protocol::BucketId;

use crate::accounts::{Accounts, Page};
use crate::backup_record::{BackupRecord, RecordKind, RecordState};
use crate::bucket::{BucketRecords, WantedBucket};
use crate::error::{Error, Result};

/// Page of records.
#[derive(Debug)]
pub struct RecordPage {
    /// Records in order of name. A page of buckets may be short or empty while more follow.
    pub items: Vec<BackupRecord>,
    /// Start of the next page; none after the last one.
    pub next: Option<String>,
}

/// Records of the accounts and buckets of a store.
#[derive(Clone, Copy, Debug)]
pub struct Backups<'a> {
    accounts: &'a Accounts,
}

impl Accounts {
    /// Backup and restore of accounts and of buckets' settings.
    pub fn backups(&self) -> Backups<'_> {
        Backups { accounts: self }
    }
}

impl<'a> Backups<'a> {
    fn buckets(self) -> BucketRecords<'a> {
        BucketRecords(self.accounts.store.buckets())
    }

    /// Returns the store's time, in milliseconds since 1970.
    pub fn now_ms(self) -> u64 {
        self.accounts.store.services.registers.stamps.now_ms()
    }

    /// Returns the number of buckets with a count of their usage: an estimate of the number of
    /// records of buckets.
    ///
    /// # Errors
    /// Fails if no quorum replies.
    pub async fn expected_buckets(self) -> Result<u64> {
        Ok(self.accounts.store.directory().usages(None).await?.len() as u64)
    }

    /// Returns a page of records of a kind, above `after`. It examines at most `limit` items.
    ///
    /// # Errors
    /// Fails if no quorum replies.
    pub async fn list(
        self,
        kind: RecordKind,
        after: Option<&str>,
        limit: usize,
    ) -> Result<RecordPage> {
        let (page, last) = if kind == RecordKind::Bucket {
            self.buckets().list(after, limit).await?
        } else {
            let page = self.accounts.account_records(kind, after, limit).await?;
            let last = page.items.last().map(|record| record.name.clone());
            (page, last)
        };
        let Page { items, is_truncated } = page;
        Ok(RecordPage { items, next: last.filter(|_| is_truncated) })
    }

    /// Compares a record with this cluster. Changes nothing.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`], [`Error::AccountConflict`] or [`Error::InvalidBucketState`] if
    /// the record can't be restored here.
    pub async fn compare(self, record: &BackupRecord) -> Result<RecordState> {
        if record.kind != RecordKind::Bucket {
            return self.accounts.compare_account(record).await;
        }
        let buckets = self.buckets();
        let wanted = buckets.wanted(record)?;
        Ok(buckets.compare(record, &wanted).await?.0)
    }

    /// Restores a record, unless its item is the same. Later changes and deletions stay unless
    /// `replace` is set. Returns the state of the item before.
    ///
    /// # Errors
    /// Those of [`Backups::compare`]; the owner of an item doesn't exist; no quorum replies. A
    /// repetition finishes what was begun.
    pub async fn restore(self, record: &BackupRecord, replace: bool) -> Result<RecordState> {
        if record.kind != RecordKind::Bucket {
            return self.accounts.restore_account(record, replace).await;
        }
        let buckets = self.buckets();
        let wanted = buckets.wanted(record)?;
        let (state, there) = buckets.compare(record, &wanted).await?;
        if !state.is_written(replace) {
            return Ok(state);
        }
        self.check_owner(&record.name, wanted.owner()).await?;
        match there {
            None => {
                self.prepare_rules(&record.name, &wanted, wanted.id()).await?;
                buckets.create(&record.name, &wanted).await?;
                // The worker may have deleted the companion while its bucket didn't exist.
                self.prepare_rules(&record.name, &wanted, wanted.id()).await?;
            }
            Some(before) => {
                self.prepare_rules(&record.name, &wanted, before.id).await?;
                buckets.replace(&record.name, &before, &wanted).await?;
            }
        }
        Ok(state)
    }

    async fn check_owner(self, bucket: &str, owner: &str) -> Result<()> {
        let account = self.accounts.store.directory().account_called(owner).await?;
        if account.is_some_and(|account| account.canonical_id == owner) {
            return Ok(());
        }
        Err(Error::AccountConflict(format!(
            "the tenant that owned the bucket {bucket} doesn't exist here: restore accounts first"
        )))
    }

    async fn prepare_rules(self, name: &str, wanted: &WantedBucket, id: BucketId) -> Result<()> {
        if !wanted.has_rules() {
            return Ok(());
        }
        let parent = wanted.as_bucket(id);
        self.accounts.store.checkpoints().create_companion(&parent, name).await
    }
}
