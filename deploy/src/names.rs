//! Names of files in the output folder.

/// Folder for keys and builders in the output folder, which no node may have.
pub(crate) const CLUSTER_DIR: &str = "cluster";
/// File of the cluster key.
pub(crate) const CLUSTER_KEY: &str = "cluster.key";
/// File of the key that seals tenants' secrets.
pub(crate) const MASTER_KEY: &str = "master.key";
/// File of the key that wraps the keys of encrypted objects.
pub(crate) const SSE_MASTER_KEY: &str = "sse-master.key";
/// File of the root credentials.
pub(crate) const ROOT: &str = "credentials";
/// File of the first tenant's key.
pub(crate) const FIRST: &str = "first-key";
/// Certificate of the authority, for members and S3 clients.
pub(crate) const AUTHORITY: &str = "ca.crt";
/// File of the authority with its key.
pub(crate) const AUTHORITY_FILE: &str = "authority.toml";
/// Certificate of the operator, without its extension.
pub(crate) const OPERATOR: &str = "operator";
/// Settings file of a machine.
pub(crate) const SETTINGS: &str = "node.toml";
