//! Access to the admin API of a process: secrets, accounts and audit log.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use futures::FutureExt;
use futures::future::BoxFuture;
use martlet_admin_api::audit::AuditRecord;
use martlet_admin_api::principals::PrincipalLine;
use martlet_admin_server::principals::{self, AccountDirectory};
use martlet_admin_server::{accounts, backup};
use martlet_protocol::Clock;
use martlet_proxy::{Accounts, ObjectStore};
use martlet_s3compat::{ChangeLog, ChangeTarget, RecordEnd, RecordedChange, S3Service};
use martlet_serving::access::{AdminAccess, AdminSecret};
use martlet_serving::api::ApiRoutes;
use martlet_serving::audit::AuditLog;
use martlet_serving::settings::CommonSettings;

/// Folder of the records of all but operators, in the folder of the audit log.
const TENANTS_FOLDER: &str = "tenants";

/// Parameters of a process with accounts.
pub(crate) struct AccountProcess<'a> {
    pub(crate) common: &'a CommonSettings,
    /// Data folder of the role.
    pub(crate) data_dir: &'a Path,
    /// Role and name of the process.
    pub(crate) name: &'a str,
    /// Random bytes that all processes of the cluster share.
    pub(crate) random: &'a [u8; 32],
    pub(crate) clock: Arc<dyn Clock>,
    /// Access key of the root identity.
    pub(crate) root_key: &'a str,
}

impl AccountProcess<'_> {
    /// Opens the audit log. Returns the routes of accounts, admin keys and backups, and the means to admit
    /// requests.
    pub(crate) async fn open(
        self,
        accounts: Accounts,
        store: ObjectStore,
    ) -> (ApiRoutes, Arc<AdminAccess>) {
        let (secret, clock) = (AdminSecret::derive(self.random), self.clock.clone());
        let folder = self.common.audit_folder(self.data_dir);
        let log = async |folder: PathBuf| {
            Arc::new(AuditLog::open(folder, self.name, clock.clone()).await)
        };
        let (audit, tenant_audit) = match folder {
            Some(folder) => {
                (Some(log(folder.clone()).await), Some(log(folder.join(TENANTS_FOLDER)).await))
            }
            None => (None, None),
        };
        let directory = AccountDirectory::new(accounts.clone(), store.clone());
        let access = AdminAccess {
            secret: Some(secret.clone()),
            directory: Some(Arc::new(directory)),
            clock: clock.clone(),
            audit,
            tenant_audit,
            roles: vec![self.name.to_owned()],
        };
        let own = principals::routes(accounts.clone(), secret, clock);
        let backups = backup::routes(accounts.clone(), store.clone(), self.root_key);
        let accounts = accounts::routes(accounts, store, self.root_key);
        (accounts.merge(own).merge(backups), Arc::new(access))
    }
}

/// Returns the means of a member without accounts to admit requests: sessions of operators, and the
/// token of the cluster's key. `role` is the role and name of the member.
pub(crate) fn of_member(role: &str, random: &[u8; 32], clock: Arc<dyn Clock>) -> Arc<AdminAccess> {
    let (secret, roles) = (Some(AdminSecret::derive(random)), vec![role.to_owned()]);
    Arc::new(AdminAccess { secret, clock, roles, ..AdminAccess::default() })
}

/// Lets a service record the S3 requests that make, delete or configure buckets or own keys.
pub(crate) fn recording(service: S3Service, access: &AdminAccess) -> S3Service {
    match &access.tenant_audit {
        Some(log) => service.recording_changes(Arc::new(S3ChangeLog(log.clone()))),
        None => service,
    }
}

/// Audit log of changes by S3 requests.
#[derive(Debug)]
struct S3ChangeLog(Arc<AuditLog>);

impl ChangeLog for S3ChangeLog {
    fn begin(&self, change: RecordedChange) -> BoxFuture<'_, Result<RecordEnd, String>> {
        let RecordedChange { operation, target, account, user, key, peer } = change;
        let (name, value) = match target {
            ChangeTarget::Bucket(bucket) => ("bucket", bucket),
            ChangeTarget::AccessKey(key) => ("access_key", key),
        };
        let who = PrincipalLine {
            kind: "s3".to_owned(),
            key,
            name: Some(user),
            tenant: Some(account),
            ..PrincipalLine::default()
        };
        let record = AuditRecord {
            peer: peer.map(|peer| peer.to_canonical().to_string()),
            who,
            operation: operation.to_owned(),
            target: [(name.to_owned(), value)].into(),
            ..AuditRecord::default()
        };
        let log = self.0.clone();
        async move {
            let begun = log.begin(record).await?;
            let end: RecordEnd =
                Box::new(move |status| async move { log.end(begun, status).await }.boxed());
            Ok(end)
        }
        .boxed()
    }
}
