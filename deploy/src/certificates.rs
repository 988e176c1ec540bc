//! Certificates of a cluster: an authority of its own, and certificates for machines.
//!
//! * The authority's key stays in the output folder. Machines get its certificate alone.
//! * The authority is one file, so that no crash leaves half of it: certificate, key, and a record of
//!   the names and the end of each certificate that it has issued.
//! * A certificate is issued again when fewer than a third of its days are left, when its names
//!   should differ, or when a file isn't the recorded one.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use martlet_protocol::id::random_bytes;
use martlet_serving::Failure;
use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair, KeyUsagePurpose};
use serde::{Deserialize, Serialize};
use time::{Duration, OffsetDateTime};

use crate::files::{FileKind, WantedFile, read_text};
use crate::made::MadeBefore;
use crate::names::{AUTHORITY, AUTHORITY_FILE, CLUSTER_DIR};

/// Days of the authority's certificate.
const AUTHORITY_DAYS: i64 = 3650;
/// Time by which clocks of machines may be behind.
const SKEW: Duration = Duration::hours(1);

/// Contents of the authority's file.
#[derive(Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct AuthorityFile {
    /// Common name of the authority.
    name: String,
    /// Certificate of the authority (PEM).
    certificate: String,
    /// Key of the authority (PEM).
    key: String,
    /// Certificates by their paths within the output folder.
    #[serde(default)]
    issued: BTreeMap<String, IssuedRecord>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct IssuedRecord {
    names: BTreeSet<String>,
    /// End of the certificate, in seconds since 1970.
    ends: i64,
    /// BLAKE3 of the certificate and its key.
    hash: String,
}

/// Authority of a cluster.
pub(crate) struct Authority {
    file: AuthorityFile,
    issuer: Issuer<'static, KeyPair>,
}

/// Certificate to be held by a machine.
pub(crate) struct Wanted<'a> {
    /// Name of the files without their extensions, within the output folder.
    pub(crate) path: &'a Path,
    /// IP addresses and host names.
    pub(crate) names: BTreeSet<String>,
    pub(crate) days: u32,
}

/// Certificate with its key.
pub(crate) struct Issued {
    pub(crate) files: [WantedFile; 2],
    /// Reason for the issue; `None` if the certificate was there.
    pub(crate) reason: Option<String>,
    /// End of the certificate.
    pub(crate) ends: OffsetDateTime,
}

impl Authority {
    /// Reads the authority of an output folder, or makes one in memory.
    ///
    /// # Errors
    /// The authority is missing or mangled, and machines may have certificates of it.
    pub(crate) fn find_or_make(
        cluster: &str,
        made: &MadeBefore,
        now: OffsetDateTime,
    ) -> Result<Self, Failure> {
        let Some(text) = read_text(&made.out.join(CLUSTER_DIR).join(AUTHORITY_FILE))? else {
            made.check_new_authority(AUTHORITY_FILE)?;
            return Self::make(cluster, now);
        };
        Self::of_file(toml::from_str(&text).map_err(|error| unclear(&error.message()))?)
    }

    fn make(cluster: &str, now: OffsetDateTime) -> Result<Self, Failure> {
        let name = format!("Martlet cluster {cluster} {}", hex::encode(random_bytes::<4>()));
        let pair = KeyPair::generate().map_err(|error| broken(&error))?;
        let mut params = authority_params(&name)?;
        params.not_before = now - SKEW;
        params.not_after = now + Duration::days(AUTHORITY_DAYS);
        let certificate = params.self_signed(&pair).map_err(|error| broken(&error))?.pem();
        let (key, issued) = (pair.serialize_pem(), BTreeMap::new());
        Self::of_file(AuthorityFile { name, certificate, key, issued })
    }

    fn of_file(file: AuthorityFile) -> Result<Self, Failure> {
        let pair = KeyPair::from_pem(&file.key).map_err(|error| unclear(&error))?;
        let issuer = Issuer::new(authority_params(&file.name)?, pair);
        Ok(Self { file, issuer })
    }

    /// Certificate of the authority, for machines and S3 clients.
    pub(crate) fn certificate(&self) -> &str {
        &self.file.certificate
    }

    /// Files of the operator's own folder, with the record of all certificates.
    pub(crate) fn kept(&self) -> [WantedFile; 2] {
        let file = |name: &str, text: &str| {
            WantedFile::new(Path::new(CLUSTER_DIR).join(name), FileKind::Certificate, text)
        };
        let all = toml::to_string(&self.file).expect("names and numbers make TOML");
        [file(AUTHORITY_FILE, &all), file(AUTHORITY, &self.file.certificate)]
    }

    /// Returns the certificate that a machine has, or issues one and records it.
    pub(crate) fn issue(
        &mut self,
        out: &Path,
        wanted: &Wanted,
        now: OffsetDateTime,
    ) -> Result<Issued, Failure> {
        let paths = [wanted.path.with_extension("crt"), wanted.path.with_extension("key")];
        let file =
            |path: &Path, text: &str| WantedFile::new(path.to_owned(), FileKind::Certificate, text);
        let (certificate, key) =
            (read_text(&out.join(&paths[0]))?, read_text(&out.join(&paths[1]))?);
        let reason = match (&certificate, &key) {
            (Some(certificate), Some(key)) => match self.judge(certificate, key, wanted, now) {
                Ok(ends) => {
                    let files = [file(&paths[0], certificate), file(&paths[1], key)];
                    return Ok(Issued { files, reason: None, ends });
                }
                Err(reason) => reason,
            },
            _ => "new".to_owned(),
        };
        let pair = KeyPair::generate().map_err(|error| broken(&error))?;
        let names: Vec<String> = wanted.names.iter().cloned().collect();
        let mut params = CertificateParams::new(names).map_err(|error| broken(&error))?;
        let shown = wanted.path.display().to_string();
        params.distinguished_name = rcgen::DistinguishedName::new();
        params.distinguished_name.push(DnType::CommonName, shown.as_str());
        params.not_before = now - SKEW;
        params.not_after = now + Duration::days(i64::from(wanted.days));
        let ends = params.not_after;
        let certificate =
            params.signed_by(&pair, &self.issuer).map_err(|error| broken(&error))?.pem();
        let key = pair.serialize_pem();
        let record = IssuedRecord {
            names: wanted.names.clone(),
            ends: ends.unix_timestamp(),
            hash: hash(&certificate, &key),
        };
        self.file.issued.insert(shown, record);
        let files = [file(&paths[0], &certificate), file(&paths[1], &key)];
        Ok(Issued { files, reason: Some(reason), ends })
    }

    /// Drops records of certificates that the cluster no longer has.
    pub(crate) fn keep_only(&mut self, paths: &BTreeSet<String>) {
        self.file.issued.retain(|path, _| paths.contains(path));
    }

    /// Returns the end of a certificate that may stay, or the reason for another.
    fn judge(
        &self,
        certificate: &str,
        key: &str,
        wanted: &Wanted,
        now: OffsetDateTime,
    ) -> Result<OffsetDateTime, String> {
        let record = self.file.issued.get(&wanted.path.display().to_string());
        let record = record.filter(|record| record.hash == hash(certificate, key));
        let record = record.ok_or("this authority has not issued it")?;
        if record.names != wanted.names {
            return Err("its names have changed".to_owned());
        }
        let ends = OffsetDateTime::from_unix_timestamp(record.ends)
            .map_err(|_| "its end is unknown".to_owned())?;
        if ends - now < Duration::days(i64::from(wanted.days)) / 3 {
            return Err(format!("it ends on {}", ends.date()));
        }
        Ok(ends)
    }
}

fn hash(certificate: &str, key: &str) -> String {
    let mut hasher = blake3::Hasher::new();
    hasher.update(certificate.as_bytes()).update(key.as_bytes());
    hasher.finalize().to_hex().to_string()
}

fn unclear(why: &dyn std::fmt::Display) -> Failure {
    Failure::refused(format!(
        "the cluster's authority can't be read ({why}): restore {CLUSTER_DIR}/{AUTHORITY_FILE} \
         from a copy"
    ))
}

fn authority_params(name: &str) -> Result<CertificateParams, Failure> {
    let mut params = CertificateParams::new(Vec::new()).map_err(|error| broken(&error))?;
    params.distinguished_name = rcgen::DistinguishedName::new();
    params.distinguished_name.push(DnType::CommonName, name);
    params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
    Ok(params)
}

fn broken(error: &rcgen::Error) -> Failure {
    Failure::refused(format!("a certificate can't be made: {error}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::spec::ClusterSpec;
    use crate::spec::tests::THREE;

    fn wanted(names: &[&str]) -> Wanted<'static> {
        let names = names.iter().map(|name| (*name).to_owned()).collect();
        Wanted { path: Path::new("n1/node"), names, days: 90 }
    }

    fn find_or_make(cluster: &str, out: &Path, now: OffsetDateTime) -> Result<Authority, Failure> {
        let spec = ClusterSpec::parse(THREE).unwrap();
        Authority::find_or_make(cluster, &MadeBefore::find(&spec, out), now)
    }

    fn store(out: &Path, files: &[WantedFile]) {
        for file in files {
            let path = out.join(&file.path);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, &file.bytes).unwrap();
        }
    }

    #[test]
    fn certificates_stay_until_they_must_change() {
        let out = tempfile::tempdir().unwrap();
        let now = OffsetDateTime::now_utc();
        let names = ["10.0.0.1", "fd00::1", "n1"];
        let mut authority = find_or_make("try", out.path(), now).unwrap();
        let first = authority.issue(out.path(), &wanted(&names), now).unwrap();
        assert_eq!(first.reason.as_deref(), Some("new"));
        store(out.path(), &first.files);
        store(out.path(), &authority.kept());
        let stored = || find_or_make("renamed", out.path(), now).unwrap();
        let again = stored().issue(out.path(), &wanted(&names), now).unwrap();
        assert!(again.reason.is_none() && again.files[0].bytes == first.files[0].bytes);
        assert_eq!(again.ends.unix_timestamp(), first.ends.unix_timestamp());
        let reason = |names: &[&str], now| {
            stored().issue(out.path(), &wanted(names), now).unwrap().reason.unwrap()
        };
        assert_eq!(reason(&["10.0.0.2"], now), "its names have changed");
        assert!(reason(&names, now + Duration::days(61)).starts_with("it ends on"));
        let mut other = Authority::make("try", now).unwrap();
        let moved = other.issue(out.path(), &wanted(&names), now).unwrap();
        assert_eq!(moved.reason.as_deref(), Some("this authority has not issued it"));
        std::fs::write(out.path().join("n1/node.key"), "mangled").unwrap();
        assert_eq!(reason(&names, now), "this authority has not issued it");
    }

    #[test]
    fn a_spoiled_authority_is_refused() {
        let out = tempfile::tempdir().unwrap();
        let now = OffsetDateTime::now_utc();
        let authority = find_or_make("try", out.path(), now).unwrap();
        store(out.path(), &authority.kept());
        let path = out.path().join(CLUSTER_DIR).join(AUTHORITY_FILE);
        let text = std::fs::read_to_string(&path).unwrap();
        for spoiled in
            [text.replace("BEGIN PRIVATE KEY-----", "BEGIN PRIVATE KEY"), "mangled".to_owned()]
        {
            std::fs::write(&path, spoiled).unwrap();
            let refusal = find_or_make("try", out.path(), now).err().unwrap();
            assert!(refusal.to_string().contains("from a copy"), "{refusal}");
            assert!(!refusal.to_string().contains("BEGIN"), "{refusal}");
        }
    }
}
