//! First tenant, key and bucket of a new cluster, which its settings name.
//!
//! One proxy of a cluster has these settings. It makes what is missing, once: a mark in its data
//! folder ends the work for good, so that a key or bucket that was deleted stays away.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use clap::Args;
use martlet_protocol::limits::INDEX_SHARDS_DEFAULT;
use martlet_protocol::{ErrorKind, Settings};
use martlet_proxy::{
    Accounts, Error, NewBucket, NewKey, ObjectStore, Result as StoreResult, Tenant,
};
use martlet_serving::Failure;
use martlet_serving::folder::DataFolder;
use martlet_serving::key_file::TENANT_KEY;
use martlet_serving::settings::SecretText;
use serde::{Deserialize, Serialize};

/// Mark in the data folder once the work is done.
const DONE: &str = "first-done";
/// Pause between two attempts, while too few nodes answer.
const AGAIN_AFTER: Duration = Duration::from_secs(2);

/// Flags of a new cluster.
#[derive(Args, Clone, Debug, Default, Serialize)]
#[command(next_help_heading = "First tenant of a new cluster")]
#[expect(clippy::struct_field_names, reason = "the names are the settings")]
pub(crate) struct FirstArgs {
    /// Name of a tenant that the proxy makes
    #[arg(long, value_name = "NAME", hide_short_help = true)]
    #[serde(skip_serializing_if = "Option::is_none")]
    first_tenant: Option<String>,
    /// File with the tenant's key, as two lines of variables of the AWS SDKs
    #[arg(long, value_name = "FILE", hide_short_help = true)]
    #[serde(skip_serializing_if = "Option::is_none")]
    first_key_file: Option<PathBuf>,
    /// Name of the tenant's first bucket
    #[arg(long, value_name = "NAME", hide_short_help = true)]
    #[serde(skip_serializing_if = "Option::is_none")]
    first_bucket: Option<String>,
}

/// Settings of a new cluster.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
#[expect(clippy::struct_field_names, reason = "the names are the settings")]
pub(super) struct FirstSettings {
    /// Name of the first tenant.
    first_tenant: Option<String>,
    /// File with the lines `AWS_ACCESS_KEY_ID=…` and `AWS_SECRET_ACCESS_KEY=…`.
    first_key_file: Option<PathBuf>,
    /// Name of the tenant's first bucket.
    first_bucket: Option<String>,
}

/// Tenant, key and bucket to make.
#[derive(Debug)]
pub(super) struct FirstAccount {
    tenant: String,
    access_key: String,
    secret: SecretText,
    bucket: Option<String>,
}

impl FirstSettings {
    /// Names of these settings.
    pub(super) const NAMES: [&str; 3] = ["first_tenant", "first_key_file", "first_bucket"];

    /// Refuses a tenant without a key, and a bucket or a key without a tenant.
    pub(super) fn check(&self) -> Result<(), Failure> {
        let has_more = self.first_bucket.is_some() || self.first_key_file.is_some();
        match (&self.first_tenant, &self.first_key_file) {
            (None, _) if has_more => {
                Err(Failure::usage("first_key_file and first_bucket need first_tenant"))
            }
            (Some(_), None) => Err(Failure::usage(
                "first_tenant needs first_key_file, a file with the lines AWS_ACCESS_KEY_ID=… and \
                 AWS_SECRET_ACCESS_KEY=…",
            )),
            _ => Ok(()),
        }
    }

    /// Reads the key file, if a tenant is named.
    pub(super) fn open(&self) -> Result<Option<FirstAccount>, Failure> {
        let (Some(tenant), Some(file)) = (&self.first_tenant, &self.first_key_file) else {
            return Ok(None);
        };
        let name = file.display();
        let key = TENANT_KEY.read(file)?.ok_or_else(|| {
            Failure::refused(format!("the key in {name} can't be read: there is no such file"))
        })?;
        if key.is_shared {
            return Err(Failure::refused(format!("other users can read {name}: chmod 600 {name}")));
        }
        Ok(Some(FirstAccount {
            tenant: tenant.clone(),
            access_key: key.access_key,
            secret: key.secret_key,
            bucket: self.first_bucket.clone(),
        }))
    }
}

/// Cluster that gets its first account.
pub(super) struct NewCluster {
    pub(super) accounts: Accounts,
    pub(super) store: ObjectStore,
    pub(super) folder: Arc<DataFolder>,
}

impl NewCluster {
    /// Makes what is missing, and tries again until a quorum of nodes has taken it. Any other
    /// failure ends the work: the next start of the process begins it again.
    pub(super) async fn fill(self, first: FirstAccount) {
        if self.folder.join(DONE).exists() {
            return;
        }
        while let Err(error) = self.make(&first).await {
            if !is_temporary(&error) {
                tracing::error!(%error, tenant = first.tenant, "could not make the first tenant");
                return;
            }
            tracing::info!(%error, tenant = first.tenant, "could not make the first tenant yet");
            tokio::time::sleep(AGAIN_AFTER).await;
        }
        if let Err(error) = self.folder.replace(DONE, b"") {
            tracing::warn!(%error, "could not note that the first tenant is made");
        }
        tracing::info!(tenant = first.tenant, "the first tenant has its key and bucket");
    }

    async fn make(&self, first: &FirstAccount) -> StoreResult<()> {
        let tenant = self.tenant(&first.tenant).await?;
        self.key(first, &tenant).await?;
        let Some(bucket) = &first.bucket else { return Ok(()) };
        let new = NewBucket {
            owner: tenant.canonical_id.clone(),
            index_shards: INDEX_SHARDS_DEFAULT,
            policy: None,
            settings: Settings::default(),
        };
        match self.store.buckets().create(bucket, new).await {
            Err(Error::BucketExists { owner }) if owner != tenant.canonical_id => {
                let why = format!("the bucket {bucket} belongs to another owner: name another");
                Err(Error::AccountConflict(why))
            }
            Ok(_) | Err(Error::BucketExists { .. }) => Ok(()),
            Err(error) => Err(error),
        }
    }

    async fn tenant(&self, name: &str) -> StoreResult<Tenant> {
        let tenants = self.accounts.tenants();
        match tenants.get(name).await {
            Err(Error::NoSuchAccount(_)) => {}
            found => return found,
        }
        match tenants.create(name, None, Vec::new()).await {
            // An attempt without a quorum may show up late.
            Err(Error::AccountConflict(why)) => tenants.get(name).await.map_err(or_conflict(why)),
            made => made,
        }
    }

    async fn key(&self, first: &FirstAccount, tenant: &Tenant) -> StoreResult<()> {
        let keys = self.accounts.keys();
        let key = match keys.get(&first.access_key).await {
            Err(Error::NoSuchAccount(_)) => {
                let given = Some((first.access_key.clone(), first.secret.0.clone()));
                let tenant = first.tenant.clone();
                let new = NewKey { tenant, user: None, given, networks: Vec::new() };
                match keys.create(new).await {
                    Err(Error::AccountConflict(why)) => {
                        keys.get(&first.access_key).await.map_err(or_conflict(why))?
                    }
                    made => made?.0,
                }
            }
            found => found?,
        };
        if key.tenant_id == tenant.canonical_id && key.user.is_none() {
            return Ok(());
        }
        let access_key = &first.access_key;
        let why = format!("the access key {access_key} belongs to another tenant or to a user");
        Err(Error::AccountConflict(why))
    }
}

/// Replaces the absence of an account by the conflict that its creation had.
fn or_conflict(why: String) -> impl FnOnce(Error) -> Error {
    move |error| match error {
        Error::NoSuchAccount(_) => Error::AccountConflict(why),
        error => error,
    }
}

/// True if the same call may succeed later, such as when too few nodes answer.
fn is_temporary(error: &Error) -> bool {
    match error {
        Error::ConditionalConflict | Error::BucketReplaced => true,
        Error::Backend(error) => {
            matches!(error.kind(), ErrorKind::Unavailable | ErrorKind::Conflict | ErrorKind::Full)
        }
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;
    use std::fs;
    use std::os::unix::fs::PermissionsExt;
    use std::path::Path;

    use martlet_protocol::testing::{Call, Fault, FaultyBackend, MemoryBackend};
    use martlet_protocol::{Backend, Clock, DeviceId, PolicyId, SystemClock};
    use martlet_proxy::{Cluster, MasterKey, StoreOptions, Vault};
    use martlet_ring::Ring;
    use martlet_ring::fixtures::device;

    use super::*;

    fn settings(tenant: Option<&str>, file: Option<PathBuf>) -> FirstSettings {
        let first_tenant = tenant.map(str::to_owned);
        FirstSettings { first_tenant, first_key_file: file, first_bucket: Some("b".into()) }
    }

    #[test]
    fn a_tenant_has_a_key_and_a_bucket_a_tenant() {
        assert!(FirstSettings::default().check().is_ok());
        assert!(settings(None, None).check().unwrap_err().to_string().contains("first_tenant"));
        let refusal = settings(Some("t"), None).check().unwrap_err().to_string();
        assert!(refusal.contains("first_key_file"), "{refusal}");
    }

    #[test]
    fn the_key_comes_from_a_file_of_its_owner_alone() {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("first-key");
        let first = settings(Some("t"), Some(path.clone()));
        assert!(first.open().unwrap_err().to_string().contains("can't be read"));
        fs::write(&path, "AWS_ACCESS_KEY_ID=abc\n").unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
        assert!(first.open().unwrap_err().to_string().contains("two lines"));
        fs::write(&path, "AWS_ACCESS_KEY_ID=abc\nAWS_SECRET_ACCESS_KEY=a=b\n").unwrap();
        let opened = first.open().unwrap().unwrap();
        assert_eq!((opened.access_key.as_str(), opened.secret.0.as_str()), ("abc", "a=b"));
        fs::set_permissions(&path, fs::Permissions::from_mode(0o644)).unwrap();
        assert!(first.open().unwrap_err().to_string().contains("chmod 600"));
    }

    /// A cluster of one device in memory, or one whose device does not answer.
    fn cluster(place: &Path, answers: bool) -> NewCluster {
        let clock: Arc<dyn Clock> = Arc::new(SystemClock);
        let memory = Arc::new(MemoryBackend::new(clock.clone(), [DeviceId(1)]));
        let silent = Fault::Refuse(ErrorKind::Unavailable);
        let choose = move |_: &Call<'_>| if answers { Fault::None } else { silent };
        let node: Arc<dyn Backend> = Arc::new(FaultyBackend::new(memory, choose));
        let devices = [device(1, "n1".to_owned(), "disk")];
        let ring = Arc::new(Ring::of_devices(PolicyId(0), 1, &devices).unwrap());
        let nodes = HashMap::from([(DeviceId(1), node)]);
        let cluster = Cluster::new(ring.clone(), vec![ring], nodes).unwrap();
        let store = ObjectStore::new(cluster, clock, StoreOptions::default());
        let accounts = Accounts::new(store.clone(), Vault::new(vec![MasterKey::new(&[7; 32])]));
        NewCluster { accounts, store, folder: Arc::new(DataFolder::open(place).unwrap()) }
    }

    fn account(tenant: &str) -> FirstAccount {
        FirstAccount {
            tenant: tenant.to_owned(),
            access_key: "ABCDEFGHIJKLMNOPQRST".to_owned(),
            secret: SecretText("0123456789012345678901234567890123456789".to_owned()),
            bucket: Some("datasets".to_owned()),
        }
    }

    #[tokio::test]
    async fn the_first_account_is_made_once_and_what_is_deleted_stays_away() {
        let place = tempfile::tempdir().unwrap();
        let new = cluster(place.path(), true);
        let (accounts, store, folder) =
            (new.accounts.clone(), new.store.clone(), new.folder.clone());
        new.make(&account("research")).await.unwrap();
        new.fill(account("research")).await;
        assert!(folder.join(DONE).exists(), "what is there is taken as it is");
        store.buckets().delete("datasets").await.unwrap();
        accounts.keys().delete(&account("research").access_key).await.unwrap();
        NewCluster { accounts: accounts.clone(), store: store.clone(), folder }
            .fill(account("research"))
            .await;
        assert!(accounts.keys().get(&account("research").access_key).await.is_err());
        let (buckets, _) = store.buckets().list("", None, 10).await.unwrap();
        assert!(buckets.is_empty(), "the bucket stays away");
    }

    #[tokio::test]
    async fn keys_and_buckets_of_others_end_the_work() {
        let place = tempfile::tempdir().unwrap();
        let new = cluster(place.path(), true);
        let folder = new.folder.clone();
        new.make(&account("research")).await.unwrap();
        let key = new.make(&account("other")).await.unwrap_err();
        assert!(key.to_string().contains("belongs to another tenant") && !is_temporary(&key));
        let own_key =
            FirstAccount { access_key: "OTHERKEYOTHERKEYOTHE".into(), ..account("other") };
        let bucket = new.make(&own_key).await.unwrap_err();
        assert!(bucket.to_string().contains("belongs to another owner"), "{bucket}");
        new.fill(account("other")).await;
        assert!(!folder.join(DONE).exists(), "the work has ended, and isn't done");
    }

    #[tokio::test]
    async fn too_few_nodes_are_awaited_and_mistakes_are_not() {
        let place = tempfile::tempdir().unwrap();
        let silent = cluster(place.path(), false).make(&account("research")).await.unwrap_err();
        assert!(is_temporary(&silent), "{silent}");
        let place = tempfile::tempdir().unwrap();
        let new = cluster(place.path(), true);
        let short = FirstAccount { secret: SecretText("short".into()), ..account("research") };
        let mistake = new.make(&short).await.unwrap_err();
        assert!(!is_temporary(&mistake), "{mistake}");
    }
}
