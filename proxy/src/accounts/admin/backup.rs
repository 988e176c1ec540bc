//! Backup and restore of account documents.
//!
//! A record has the whole document, ids included: buckets, policies and keys refer to tenants and
//! users by id. Secrets stay sealed by their master key. A restore writes nothing that this process
//! could not use, and stores no secret in clear.

use async_trait::async_trait;
use serde_json::Value;

use super::client::{Accounts, check_networks};
use super::keys::belonging;
use crate::accounts::admin_keys::AdminKey;
use crate::accounts::documents::Dated;
use crate::accounts::page::Page;
use crate::accounts::records::{Kept, Key, Tenant, TenantOf, User, check_name, is_access_key};
use crate::accounts::roles::{SessionRole, check_session};
use crate::backup_record::{BackupRecord, RecordKind, RecordState};
use crate::error::{Error, Result};

/// Document that a backup has.
#[async_trait]
trait BackedUp: Kept {
    const RECORD: RecordKind;

    /// Refuses values that no operator could have set.
    fn check(&self) -> Result<()>;

    /// Name and canonical id of the tenant that the document refers to.
    fn tenant(&self) -> Option<(&str, &str)>;

    /// Returns true if both documents mean one thing.
    fn is_same(&self, other: &Self, _: &Accounts) -> bool {
        self == other
    }

    /// Refuses a document that this process couldn't use, and returns the form to store.
    fn usable(self, _: &Accounts) -> Result<Self> {
        Ok(self)
    }

    /// Checks, or makes, what must exist before the document.
    async fn prepare(&self, _: &Accounts) -> Result<()> {
        Ok(())
    }
}

#[async_trait]
impl BackedUp for Tenant {
    const RECORD: RecordKind = RecordKind::Tenant;

    fn check(&self) -> Result<()> {
        check_networks(&self.networks)?;
        check_name("tenant", &self.name)
    }

    fn tenant(&self) -> Option<(&str, &str)> {
        Some((&self.name, &self.canonical_id))
    }

    async fn prepare(&self, accounts: &Accounts) -> Result<()> {
        let of = TenantOf {
            canonical_id: self.canonical_id.clone(),
            tenant: self.name.clone(),
            display_name: self.display_name.clone(),
        };
        let decide = |there: Option<Dated<TenantOf>>| match there.and_then(|it| it.document) {
            Some(there) if there.tenant != of.tenant => Err(Error::AccountConflict(format!(
                "the canonical id of the tenant {} belongs to the tenant {} here",
                of.tenant, there.tenant
            ))),
            Some(_) => Ok(None),
            None => Ok(Some(of.clone())),
        };
        accounts.documents().decide_dated(&of.path(), decide).await
    }
}

#[async_trait]
impl BackedUp for User {
    const RECORD: RecordKind = RecordKind::User;

    fn check(&self) -> Result<()> {
        check_name("user", &self.name)
    }

    fn tenant(&self) -> Option<(&str, &str)> {
        Some((&self.tenant, &self.tenant_id))
    }
}

#[async_trait]
impl BackedUp for SessionRole {
    const RECORD: RecordKind = RecordKind::Role;

    fn check(&self) -> Result<()> {
        check_session(self.session_s_max)?;
        check_name("role", &self.name)
    }

    fn tenant(&self) -> Option<(&str, &str)> {
        Some((&self.tenant, &self.tenant_id))
    }
}

#[async_trait]
impl BackedUp for Key {
    const RECORD: RecordKind = RecordKind::Key;

    fn check(&self) -> Result<()> {
        check_networks(&self.networks)?;
        check_access_key(&self.access_key)
    }

    fn tenant(&self) -> Option<(&str, &str)> {
        Some((&self.tenant, &self.tenant_id))
    }

    fn is_same(&self, other: &Self, accounts: &Accounts) -> bool {
        let secret = |key: &Self| {
            let belonging = belonging(&key.access_key, &key.tenant_id);
            accounts.vault.open(&key.secret, &belonging)
        };
        let is_same_but_sealed = || {
            let sealed_alike = Self { secret: other.secret.clone(), ..self.clone() };
            sealed_alike == *other && secret(self).is_ok_and(|it| secret(other) == Ok(it))
        };
        self == other || is_same_but_sealed()
    }

    fn usable(mut self, accounts: &Accounts) -> Result<Self> {
        let belonging = belonging(&self.access_key, &self.tenant_id);
        let refused = |reason: &str| {
            Error::AccountConflict(format!(
                "the secret of the access key {} can't be used here: {reason}; add the master key of \
                 the backup's time to master_key_file, as another line",
                self.access_key
            ))
        };
        let secret =
            accounts.vault.open(&self.secret, &belonging).map_err(|reason| refused(&reason))?;
        if !self.secret.is_sealed() {
            if !accounts.vault.seals() {
                return Err(refused("this process has no master key to encrypt the secret"));
            }
            self.secret = accounts.vault.seal(&secret, &belonging);
        }
        Ok(self)
    }

    async fn prepare(&self, accounts: &Accounts) -> Result<()> {
        let Some(of) = &self.user else { return Ok(()) };
        let user = accounts.users().get(&self.tenant, &of.name).await?;
        if user.id == of.id {
            return Ok(());
        }
        Err(Error::AccountConflict(format!(
            "the access key {} belongs to an earlier user {}/{}: the user was made anew since",
            self.access_key, self.tenant, of.name
        )))
    }
}

#[async_trait]
impl BackedUp for AdminKey {
    const RECORD: RecordKind = RecordKind::AdminKey;

    fn check(&self) -> Result<()> {
        check_access_key(&self.id)
    }

    fn tenant(&self) -> Option<(&str, &str)> {
        self.tenant.as_ref().map(|of| (of.name.as_str(), of.canonical_id.as_str()))
    }
}

fn check_access_key(text: &str) -> Result<()> {
    if is_access_key(text) {
        return Ok(());
    }
    Err(Error::InvalidArgument("the record's access key is malformed".into()))
}

fn read<T: BackedUp>(record: &BackupRecord) -> Result<T> {
    let document: T = serde_json::from_value(record.content.clone()).map_err(|_| {
        Error::InvalidArgument(format!(
            "the record of the {} {} is malformed",
            T::KIND,
            record.name
        ))
    })?;
    if document.path() != record.name {
        let sentence =
            format!("the record of {} has the content of another {}", record.name, T::KIND);
        return Err(Error::InvalidArgument(sentence));
    }
    document.check()?;
    Ok(document)
}

fn state_of<T: BackedUp>(
    document: &T,
    record: &BackupRecord,
    there: Option<&Dated<T>>,
    accounts: &Accounts,
) -> RecordState {
    let Some(there) = there else { return RecordState::Missing };
    let is_same = there.document.as_ref().map(|it| document.is_same(it, accounts));
    RecordState::of(record.written_ms, there.written_ms, is_same)
}

impl Accounts {
    /// Records of a kind other than buckets, in order of name, above `after`.
    pub(crate) async fn account_records(
        &self,
        kind: RecordKind,
        after: Option<&str>,
        limit: usize,
    ) -> Result<Page<BackupRecord>> {
        match kind {
            RecordKind::Tenant => self.records::<Tenant>(after, limit).await,
            RecordKind::User => self.records::<User>(after, limit).await,
            RecordKind::Role => self.records::<SessionRole>(after, limit).await,
            RecordKind::Key => self.records::<Key>(after, limit).await,
            RecordKind::AdminKey => self.records::<AdminKey>(after, limit).await,
            RecordKind::Bucket => Err(no_account()),
        }
    }

    /// Compares a record with the document of its name.
    pub(crate) async fn compare_account(&self, record: &BackupRecord) -> Result<RecordState> {
        match record.kind {
            RecordKind::Tenant => self.compared::<Tenant>(record).await,
            RecordKind::User => self.compared::<User>(record).await,
            RecordKind::Role => self.compared::<SessionRole>(record).await,
            RecordKind::Key => self.compared::<Key>(record).await,
            RecordKind::AdminKey => self.compared::<AdminKey>(record).await,
            RecordKind::Bucket => Err(no_account()),
        }
    }

    /// Writes the document of a record, unless its state forbids that. Returns the state before.
    pub(crate) async fn restore_account(
        &self,
        record: &BackupRecord,
        replace: bool,
    ) -> Result<RecordState> {
        match record.kind {
            RecordKind::Tenant => self.restored::<Tenant>(record, replace).await,
            RecordKind::User => self.restored::<User>(record, replace).await,
            RecordKind::Role => self.restored::<SessionRole>(record, replace).await,
            RecordKind::Key => self.restored::<Key>(record, replace).await,
            RecordKind::AdminKey => self.restored::<AdminKey>(record, replace).await,
            RecordKind::Bucket => Err(no_account()),
        }
    }

    async fn records<T: BackedUp>(
        &self,
        after: Option<&str>,
        limit: usize,
    ) -> Result<Page<BackupRecord>> {
        let page = self.documents().list_dated::<T>("", after, limit, |_| true).await?;
        let record = |(written_ms, document): (u64, T)| {
            let content = serde_json::to_value(&document).unwrap_or(Value::Null);
            BackupRecord { kind: T::RECORD, name: document.path(), written_ms, content }
        };
        let items = page.items.into_iter().map(record).collect();
        Ok(Page { items, is_truncated: page.is_truncated })
    }

    async fn compared<T: BackedUp>(&self, record: &BackupRecord) -> Result<RecordState> {
        let document = read::<T>(record)?;
        let there = self.documents().read_dated::<T>(&record.name).await?;
        let state = state_of(&document, record, there.as_ref(), self);
        if state != RecordState::Same {
            self.check_tenant(&document, false).await?;
            document.usable(self)?;
        }
        Ok(state)
    }

    async fn restored<T: BackedUp>(
        &self,
        record: &BackupRecord,
        replace: bool,
    ) -> Result<RecordState> {
        let document = read::<T>(record)?;
        let mut state = RecordState::Same;
        let there = self.documents().read_dated::<T>(&record.name).await?;
        if !state_of(&document, record, there.as_ref(), self).is_written(replace) {
            return Ok(state_of(&document, record, there.as_ref(), self));
        }
        self.check_tenant(&document, T::RECORD != RecordKind::Tenant).await?;
        let document = document.usable(self)?;
        document.prepare(self).await?;
        // Decided again by the ballot: the document may have changed since it was read.
        let decide = |there: Option<Dated<T>>| {
            state = state_of(&document, record, there.as_ref(), self);
            Ok(state.is_written(replace).then(|| document.clone()))
        };
        self.documents().decide_dated(&record.name, decide).await?;
        Ok(state)
    }

    /// Refuses a document of a tenant that was deleted and made anew, because it would grant
    /// nothing.
    async fn check_tenant<T: BackedUp>(&self, document: &T, must_exist: bool) -> Result<()> {
        let Some((name, id)) = document.tenant() else { return Ok(()) };
        match self.tenants().get(name).await {
            Ok(tenant) if tenant.canonical_id == id => Ok(()),
            Ok(_) => Err(Error::AccountConflict(format!(
                "the {} {} belongs to an earlier tenant {name}: the tenant was made anew since",
                T::KIND,
                document.path()
            ))),
            Err(Error::NoSuchAccount(_)) if !must_exist => Ok(()),
            Err(error) => Err(error),
        }
    }
}

fn no_account() -> Error {
    Error::InvalidArgument("buckets have no account documents".into())
}
