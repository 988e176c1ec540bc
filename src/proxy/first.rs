//! First tenant, key and bucket of a new cluster, which its settings name.
//!
//! Each proxy makes what is missing, once: a mark in its data folder ends the work for good, so
//! that a bucket that a client has deleted stays away.

use std::fs;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use martlet_protocol::Settings;
use martlet_protocol::limits::INDEX_SHARDS_DEFAULT;
use martlet_proxy::{Accounts, Error, NewBucket, NewKey, ObjectStore, Result as StoreResult};
use martlet_serving::Failure;
use martlet_serving::folder::{DataFolder, is_shared};
use martlet_serving::settings::SecretText;
use serde::Deserialize;

/// Mark in the data folder once the work is done.
const DONE: &str = "first-done";
/// Pause between two attempts, while too few nodes answer.
const AGAIN_AFTER: Duration = Duration::from_secs(2);
const ACCESS_KEY: &str = "AWS_ACCESS_KEY_ID";
const SECRET_KEY: &str = "AWS_SECRET_ACCESS_KEY";

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
        let text = fs::read_to_string(file).map_err(|error| {
            Failure::refused(format!("the key in {name} can't be read: {error}"))
        })?;
        if fs::metadata(file).is_ok_and(|it| is_shared(&it)) {
            return Err(Failure::refused(format!("other users can read {name}: chmod 600 {name}")));
        }
        let value = |key: &str| {
            text.lines().find_map(|line| line.trim().strip_prefix(key)?.strip_prefix('='))
        };
        let (Some(access_key), Some(secret)) = (value(ACCESS_KEY), value(SECRET_KEY)) else {
            return Err(Failure::refused(format!(
                "{name} must have the two lines {ACCESS_KEY}=… and {SECRET_KEY}=…"
            )));
        };
        Ok(Some(FirstAccount {
            tenant: tenant.clone(),
            access_key: access_key.to_owned(),
            secret: SecretText(secret.to_owned()),
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
    /// Makes what is missing, and tries again until a quorum of nodes has taken it.
    pub(super) async fn fill(self, first: FirstAccount) {
        if self.folder.join(DONE).exists() {
            return;
        }
        while let Err(error) = self.make(&first).await {
            tracing::info!(%error, tenant = first.tenant, "could not make the first tenant yet");
            tokio::time::sleep(AGAIN_AFTER).await;
        }
        if let Err(error) = self.folder.replace(DONE, b"") {
            tracing::warn!(%error, "could not note that the first tenant is made");
        }
        tracing::info!(tenant = first.tenant, "the first tenant has its key and bucket");
    }

    async fn make(&self, first: &FirstAccount) -> StoreResult<()> {
        let tenants = self.accounts.tenants();
        let tenant = match tenants.get(&first.tenant).await {
            Err(Error::NoSuchAccount(_)) => {
                self.accounts.tenants().create(&first.tenant, None, Vec::new()).await?
            }
            found => found?,
        };
        match self.accounts.keys().get(&first.access_key).await {
            Err(Error::NoSuchAccount(_)) => {
                let given = Some((first.access_key.clone(), first.secret.0.clone()));
                let tenant = first.tenant.clone();
                let new = NewKey { tenant, user: None, given, networks: Vec::new() };
                self.accounts.keys().create(new).await?;
            }
            found => drop(found?),
        }
        let Some(bucket) = &first.bucket else { return Ok(()) };
        let new = NewBucket {
            owner: tenant.canonical_id,
            index_shards: INDEX_SHARDS_DEFAULT,
            policy: None,
            settings: Settings::default(),
        };
        match self.store.buckets().create(bucket, new).await {
            Ok(_) | Err(Error::BucketExists { .. }) => Ok(()),
            Err(error) => Err(error),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

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
}
