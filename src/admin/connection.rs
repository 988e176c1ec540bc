//! Process that a command queries: address, authority and secret, from flags, variables or a file.

use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use clap::Args;
use martlet_admin_api::principals::{SESSION, SessionReply, SessionRequest};
use martlet_membership::ClusterSecret;
use martlet_serving::access::SigningKey;
use martlet_serving::key_file::{ADMIN_KEY, KeyPair};
use martlet_serving::settings::SecretText;
use martlet_serving::{AdminToken, Failure};
use serde::Deserialize;

use super::address::AdminAddress;
use super::client::{AdminCredential, AdminEndpoint};
use crate::server::credentials::{self, Credentials};
use crate::support::directory::Replier;

/// Default port of the admin address.
const PORT: u16 = 9001;
/// Default data folder of a server.
const DATA_DIR: &str = "martlet-data";
/// Variable with the token of a session.
const SESSION_VARIABLE: &str = "MARTLET_ADMIN_SESSION";
/// Length of the session that a command begins for other processes, in seconds.
const SESSION_S: u64 = 300;

/// Flags and variables that name the queried process.
#[derive(Args, Clone, Debug, Default)]
pub(crate) struct AdminConnectionArgs {
    /// Admin address of the process, such as n1:9001. Other machines are reached over HTTPS, unless
    /// the address begins with http:// [default: 127.0.0.1:9001]
    #[arg(long, global = true, value_name = "HOST:PORT", env = "MARTLET_ADMIN_ADDRESS")]
    admin_address: Option<AdminAddress>,
    /// Certificates of the authority that signed the admin address's certificate (PEM) [default:
    /// the authorities that this system trusts]
    #[arg(long, global = true, value_name = "FILE", env = "MARTLET_ADMIN_CA")]
    admin_ca: Option<PathBuf>,
    /// Data folder of the server, to read its credentials [default: martlet-data]
    #[arg(long, global = true, value_name = "DIR", env = "MARTLET_DATA_DIR")]
    data_dir: Option<PathBuf>,
    /// File with the cluster's key, for members of a cluster
    #[arg(long, global = true, value_name = "FILE", env = "MARTLET_CLUSTER_KEY_FILE")]
    cluster_key_file: Option<PathBuf>,
    /// File with an admin key, which signs each request in place of the secrets above
    #[arg(long, global = true, value_name = "FILE", env = "MARTLET_ADMIN_KEY_FILE")]
    admin_key_file: Option<PathBuf>,
    /// TOML file with the values of the flags above, by their names; flags and variables override it
    #[arg(long, global = true, value_name = "FILE", env = "MARTLET_ADMIN_CONFIG")]
    admin_config: Option<PathBuf>,
}

/// Contents of the file of `--admin-config`.
#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct AdminFile {
    admin_address: Option<AdminAddress>,
    admin_ca: Option<PathBuf>,
    data_dir: Option<PathBuf>,
    cluster_key_file: Option<PathBuf>,
    admin_key_file: Option<PathBuf>,
}

/// Process that a command queries.
#[derive(Debug)]
pub(crate) struct AdminConnection {
    /// Admin address.
    pub(crate) address: AdminAddress,
    /// File with the authorities that may have signed the address's certificate.
    pub(crate) authority: Option<PathBuf>,
    /// Data folder of the server, with its credentials.
    pub(crate) data_dir: PathBuf,
    /// File with the cluster's key.
    pub(crate) cluster_key_file: Option<PathBuf>,
    /// File with an admin key.
    pub(crate) admin_key_file: Option<PathBuf>,
    /// Token of a session of the admin key, for processes that know no accounts.
    pub(crate) session: OnceLock<SecretText>,
}

impl AdminConnectionArgs {
    /// Merges flags and variables with the file, if one is named.
    ///
    /// # Errors
    /// The file can't be read, or contains an unknown name or an invalid value.
    pub(crate) fn resolve(&self) -> Result<AdminConnection, Failure> {
        let file = self.admin_config.as_deref().map(read).transpose()?.unwrap_or_default();
        let flags = self.clone();
        let address = flags.admin_address.or(file.admin_address);
        Ok(AdminConnection {
            address: address.unwrap_or_else(|| AdminAddress::local(PORT)),
            authority: flags.admin_ca.or(file.admin_ca),
            data_dir: flags.data_dir.or(file.data_dir).unwrap_or_else(|| DATA_DIR.into()),
            cluster_key_file: flags.cluster_key_file.or(file.cluster_key_file),
            admin_key_file: flags.admin_key_file.or(file.admin_key_file),
            session: OnceLock::new(),
        })
    }
}

/// Reads a file of settings. Relative paths in it begin in its folder.
fn read(path: &Path) -> Result<AdminFile, Failure> {
    let unusable = |why: &dyn std::fmt::Display| {
        Failure::usage(format!("the settings in {} can't be used: {why}", path.display()))
    };
    let text = std::fs::read_to_string(path).map_err(|error| unusable(&error))?;
    let file: AdminFile = toml::from_str(&text).map_err(|error| unusable(&error.message()))?;
    let folder = path.parent().unwrap_or(Path::new(""));
    let within = |path: Option<PathBuf>| path.map(|path| folder.join(path));
    Ok(AdminFile {
        admin_address: file.admin_address,
        admin_ca: within(file.admin_ca),
        data_dir: within(file.data_dir),
        cluster_key_file: within(file.cluster_key_file),
        admin_key_file: within(file.admin_key_file),
    })
}

impl AdminConnection {
    /// Returns the process, for the list of the others that it names.
    pub(super) fn replier(&self) -> Replier<'_> {
        Replier { address: &self.address, is_here: self.address.is_local() }
    }

    /// Makes a client of the process.
    pub(crate) fn endpoint(&self) -> Result<AdminEndpoint, Failure> {
        self.endpoint_at(&self.address)
    }

    /// Makes a client of another process, with this authority. It authenticates by the admin key, if
    /// its file is named; else by the session of `MARTLET_ADMIN_SESSION`, the cluster's key or the
    /// root secret. Processes without accounts can't check an admin key, so that other processes get
    /// a session that it begins at the address of this connection.
    ///
    /// # Errors
    /// No secret is known, a file can't be used, or no session can begin.
    pub(super) fn endpoint_at(&self, address: &AdminAddress) -> Result<AdminEndpoint, Failure> {
        match self.admin_key_file {
            Some(_) if *address != self.address => {
                let session = AdminCredential::Session(self.begin_session()?);
                AdminEndpoint::new(address.clone(), self.authority.as_deref(), session)
            }
            _ => self.account_endpoint_at(address),
        }
    }

    /// Makes a client as [`AdminConnection::endpoint_at`] does, of a process with accounts.
    pub(super) fn account_endpoint_at(
        &self,
        address: &AdminAddress,
    ) -> Result<AdminEndpoint, Failure> {
        let credential = match (&self.admin_key_file, std::env::var(SESSION_VARIABLE)) {
            (Some(file), _) => AdminCredential::Key(admin_key(file)?),
            (None, Ok(token)) => AdminCredential::Session(token),
            (None, Err(_)) => AdminCredential::Token(match &self.cluster_key_file {
                Some(file) => ClusterSecret::load(file)?.token,
                None => root_token(&self.data_dir)?,
            }),
        };
        AdminEndpoint::new(address.clone(), self.authority.as_deref(), credential)
    }

    /// Returns the token of a session of the admin key. The session begins once.
    fn begin_session(&self) -> Result<String, Failure> {
        if let Some(token) = self.session.get() {
            return Ok(token.0.clone());
        }
        let begun: SessionReply =
            self.endpoint()?.post(SESSION, &SessionRequest { seconds: Some(SESSION_S) })?;
        Ok(self.session.get_or_init(|| SecretText(begun.token)).0.clone())
    }
}

/// Reads a file with an admin key.
fn admin_key(path: &Path) -> Result<SigningKey, Failure> {
    let name = path.display();
    let pair = ADMIN_KEY.read(path)?.ok_or_else(|| {
        Failure::refused(format!(
            "there is no file {name}: make a key with martlet admin key create"
        ))
    })?;
    let KeyPair { access_key, secret_key, is_shared } = pair;
    if is_shared {
        return Err(Failure::refused(format!(
            "other users can read the admin key in {name}: chmod 600 {name}, and revoke the key if \
             it may have been read"
        )));
    }
    Ok(SigningKey { id: access_key, secret: secret_key.0 })
}

/// Returns the token of the root secret, from the environment or from a server's data folder.
fn root_token(data_dir: &Path) -> Result<AdminToken, Failure> {
    if let Ok(secret) = std::env::var("MARTLET_ROOT_SECRET_KEY") {
        return Ok(AdminToken::of(secret.as_bytes()));
    }
    let credentials = Credentials::read(&data_dir.join(credentials::FILE))?.ok_or_else(|| {
        Failure::refused(format!(
            "no credentials in {}: name the server's data folder with --data-dir, set \
             MARTLET_ROOT_SECRET_KEY, name the key of a cluster with --cluster-key-file, or an admin \
             key with --admin-key-file",
            data_dir.display()
        ))
    })?;
    Ok(credentials.admin_token())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flags_override_the_file_and_the_file_the_defaults() {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("admin.toml");
        let text = "admin_address = 'https://n1:9001'\nadmin_ca = 'ca.crt'\n\
                    cluster_key_file = '/etc/martlet/cluster.key'\n";
        std::fs::write(&path, text).unwrap();
        let args = AdminConnectionArgs {
            admin_address: Some("n2:9001".parse().unwrap()),
            admin_config: Some(path),
            ..AdminConnectionArgs::default()
        };
        let merged = args.resolve().unwrap();
        assert_eq!(merged.address.to_string(), "n2:9001");
        assert_eq!(merged.authority, Some(place.path().join("ca.crt")));
        assert_eq!(merged.cluster_key_file, Some("/etc/martlet/cluster.key".into()));
        let usual = AdminConnectionArgs::default().resolve().unwrap();
        assert_eq!((usual.address, usual.data_dir), (AdminAddress::local(9001), DATA_DIR.into()));
    }

    #[test]
    fn the_file_of_an_admin_key_is_private() {
        use std::os::unix::fs::PermissionsExt;

        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), ADMIN_KEY.text("MADM1", "the secret")).unwrap();
        let mode = |mode| std::fs::Permissions::from_mode(mode);
        std::fs::set_permissions(file.path(), mode(0o600)).unwrap();
        let key = admin_key(file.path()).unwrap();
        assert_eq!((key.id.as_str(), key.secret.as_str()), ("MADM1", "the secret"));
        assert!(!format!("{key:?}").contains("the secret"));
        std::fs::set_permissions(file.path(), mode(0o644)).unwrap();
        let refusal = admin_key(file.path()).unwrap_err().to_string();
        assert!(refusal.contains("chmod 600") && !refusal.contains("the secret"), "{refusal}");
        assert!(admin_key(Path::new("/nowhere/key")).unwrap_err().to_string().contains("no file"));
    }

    #[test]
    fn unknown_names_in_the_file_are_refused() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let refusal = |text: &str| {
            std::fs::write(file.path(), text).unwrap();
            read(file.path()).unwrap_err().to_string()
        };
        assert!(refusal("admin_adress = 'n1:1'").contains("admin_adress"));
        assert!(refusal("admin_address = 'n1'").contains("write HOST:PORT"));
    }
}
