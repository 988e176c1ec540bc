//! Settings of every member of a cluster.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;

use clap::Args;
use martlet_protocol::http::{Tls, TlsFiles};
use martlet_protocol::{Clock, SystemClock};
use martlet_serving::Failure;
use martlet_serving::settings::list;
use serde::{Deserialize, Serialize};

use super::key::{ClusterSecret, refuse_if_shared};

/// Environment variable for tests only: offset in milliseconds that is added to the machine's
/// clock.
const TEST_CLOCK_OFFSET_MS: &str = "MARTLET_TEST_CLOCK_OFFSET_MS";

/// Flags of every member.
#[derive(Args, Clone, Debug, Default, Serialize)]
pub struct MemberArgs {
    /// Name of this member; a storage node's name in the rings
    #[arg(long, value_name = "NAME")]
    #[serde(skip_serializing_if = "Option::is_none")]
    name: Option<String>,
    /// Folder for persistent state, such as the rings
    #[arg(long, value_name = "DIR")]
    #[serde(skip_serializing_if = "Option::is_none")]
    data_dir: Option<PathBuf>,
    /// Address of the admin API, /healthz, /readyz and /metrics
    #[arg(long, value_name = "HOST:PORT")]
    #[serde(skip_serializing_if = "Option::is_none")]
    admin_address: Option<SocketAddr>,
    /// File with the cluster's shared key: 64 hexadecimal digits, mode 0600
    #[arg(long, value_name = "FILE")]
    #[serde(skip_serializing_if = "Option::is_none")]
    cluster_key_file: Option<PathBuf>,
    /// Ring file, named index.ring or data-0.ring, used if newer than the stored one; repeatable
    #[arg(long = "ring", value_name = "FILE")]
    #[serde(skip_serializing_if = "Vec::is_empty")]
    rings: Vec<PathBuf>,
    #[command(flatten)]
    #[serde(flatten)]
    tls: TlsArgs,
}

/// Flags for mutual TLS between members.
#[derive(Args, Clone, Debug, Default, Serialize)]
#[expect(clippy::struct_field_names, reason = "the names are the flags")]
pub struct TlsArgs {
    /// Certificate of this process, for TLS between members (PEM)
    #[arg(long, value_name = "FILE")]
    #[serde(skip_serializing_if = "Option::is_none")]
    tls_certificate: Option<PathBuf>,
    /// Private key of the certificate (PEM)
    #[arg(long, value_name = "FILE")]
    #[serde(skip_serializing_if = "Option::is_none")]
    tls_key: Option<PathBuf>,
    /// Certificates of the authority that signed all members' certificates (PEM)
    #[arg(long, value_name = "FILE")]
    #[serde(skip_serializing_if = "Option::is_none")]
    tls_ca: Option<PathBuf>,
}

impl TlsArgs {
    /// Loads the TLS settings for connections between members, if they are set.
    pub fn load(&self) -> Result<Option<Tls>, Failure> {
        let Self { tls_certificate, tls_key, tls_ca } = self.clone();
        let files = match (tls_certificate, tls_key, tls_ca) {
            (None, None, None) => return Ok(None),
            (Some(certificate), Some(key), Some(authority)) => {
                TlsFiles { certificate, key, authority }
            }
            _ => {
                return Err(Failure::usage(
                    "TLS between members needs all three of tls_certificate, tls_key and tls_ca",
                ));
            }
        };
        refuse_if_shared(&files.key, "the TLS key")?;
        let tls = Tls::load(&files).map_err(|error| {
            Failure::refused(format!(
                "TLS between members can't be set up: {error}; correct the PEM file"
            ))
        })?;
        Ok(Some(tls))
    }
}

/// Settings of every member.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct MemberSettings {
    name: Option<String>,
    data_dir: Option<PathBuf>,
    admin_address: Option<SocketAddr>,
    cluster_key_file: Option<PathBuf>,
    /// Ring files. A file is used if it is newer than the stored ring of its name.
    #[serde(deserialize_with = "list")]
    pub rings: Vec<PathBuf>,
    tls_certificate: Option<PathBuf>,
    tls_key: Option<PathBuf>,
    tls_ca: Option<PathBuf>,
}

impl MemberSettings {
    /// Names of the settings of every member.
    pub const NAMES: [&str; 8] = [
        "name",
        "data_dir",
        "admin_address",
        "cluster_key_file",
        "rings",
        "tls_certificate",
        "tls_key",
        "tls_ca",
    ];

    /// Returns the member's name. A missing or malformed name is a usage error.
    pub fn name(&self) -> Result<&str, Failure> {
        let name = self.name.as_deref().unwrap_or_default();
        let is_plain = |c: char| c.is_ascii_alphanumeric() || "-_.:".contains(c);
        if name.is_empty() || !name.chars().all(is_plain) {
            return Err(Failure::usage(format!(
                "invalid name \"{name}\": set --name to letters, digits, -, _ and .; a storage \
                 node needs its name in the rings"
            )));
        }
        Ok(name)
    }

    /// Returns the data folder, or the default `usual`.
    pub fn data_dir(&self, usual: &str) -> PathBuf {
        self.data_dir.clone().unwrap_or_else(|| usual.into())
    }

    /// Returns the admin address. Default: 127.0.0.1 with `usual_port`.
    pub fn admin_address(&self, usual_port: u16) -> SocketAddr {
        self.admin_address.unwrap_or_else(|| SocketAddr::from(([127, 0, 0, 1], usual_port)))
    }

    /// Reads the cluster key.
    pub fn secret(&self) -> Result<ClusterSecret, Failure> {
        let path = self.cluster_key_file.as_deref().ok_or_else(|| {
            Failure::usage(
                "no cluster key is given: name its file with --cluster-key-file; create one with: \
                 (umask 077; openssl rand -hex 32 > cluster.key)",
            )
        })?;
        ClusterSecret::load(path)
    }

    /// Loads the TLS settings for connections between members, if they are set.
    pub fn tls(&self) -> Result<Option<Tls>, Failure> {
        let tls = TlsArgs {
            tls_certificate: self.tls_certificate.clone(),
            tls_key: self.tls_key.clone(),
            tls_ca: self.tls_ca.clone(),
        };
        tls.load()
    }

    /// Returns the machine's clock, with the offset that tests set.
    pub(crate) fn own_clock() -> Result<Arc<dyn Clock>, Failure> {
        let Ok(text) = std::env::var(TEST_CLOCK_OFFSET_MS) else {
            return Ok(Arc::new(SystemClock));
        };
        let offset_ms = text.parse().map_err(|_| {
            Failure::usage(format!("{TEST_CLOCK_OFFSET_MS} must be a whole number, not \"{text}\""))
        })?;
        Ok(Arc::new(OffsetClock { offset_ms }))
    }
}

/// Machine clock with an offset, for tests.
#[derive(Debug)]
struct OffsetClock {
    offset_ms: i64,
}

impl Clock for OffsetClock {
    fn now_ms(&self) -> u64 {
        SystemClock.now_ms().saturating_add_signed(self.offset_ms)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_member_setting_has_a_name() {
        let printed = format!("{:#?}", MemberSettings::default());
        let fields = printed.lines().filter_map(|line| line.trim().split_once(':'));
        assert_eq!(fields.map(|(name, _)| name).collect::<Vec<_>>(), MemberSettings::NAMES);
    }

    #[test]
    fn tls_takes_all_three_files() {
        assert!(MemberSettings::default().tls().unwrap().is_none());
        let half = MemberSettings { tls_ca: Some("/x".into()), ..MemberSettings::default() };
        assert!(half.tls().err().unwrap().to_string().contains("all three"));
        let files = || Some(PathBuf::from("/nowhere/x.pem"));
        let nowhere = MemberSettings {
            tls_certificate: files(),
            tls_key: files(),
            tls_ca: files(),
            ..MemberSettings::default()
        };
        assert!(nowhere.tls().err().unwrap().to_string().contains("x.pem"));
    }

    #[test]
    fn a_member_has_a_name_and_a_key() {
        let nobody = MemberSettings::default();
        assert!(nobody.name().unwrap_err().to_string().contains("--name"));
        assert!(nobody.secret().err().unwrap().to_string().contains("--cluster-key-file"));
        for odd in ["a b", "a/b", "ü", "a,b"] {
            let named = MemberSettings { name: Some(odd.into()), ..nobody.clone() };
            assert!(named.name().is_err(), "{odd}");
        }
        let named = MemberSettings { name: Some("n-1.rack_7".into()), ..nobody };
        assert_eq!(named.name().unwrap(), "n-1.rack_7");
        assert!(named.admin_address(1).ip().is_loopback());
    }
}
