//! Keys of a cluster: made once, kept in the output folder, never printed.
//!
//! Root credentials and the first tenant's key may come from the environment. Without them random
//! ones are made. There is no default.

use std::path::{Path, PathBuf};

use martlet_protocol::id::random_bytes;
use martlet_serving::Failure;
use martlet_serving::key_file::{KeyFileForm, ROOT_KEY, TENANT_KEY};

use crate::files::{FileKind, WantedFile, read_text};
use crate::made::MadeBefore;
use crate::names::{CLUSTER_DIR, CLUSTER_KEY, FIRST, MASTER_KEY, ROOT, SSE_MASTER_KEY};
use crate::spec::{ClusterSpec, NodeRole, NodeSpec};

/// Alphabet of access keys and of secrets, as S3 clients expect them.
const ACCESS_ALPHABET: &[u8; 32] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZ234567";
const SECRET_ALPHABET: &[u8; 64] =
    b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
const ACCESS_CHARACTERS: usize = 20;
const SECRET_CHARACTERS: usize = 40;

/// Source of environment variables.
pub(crate) type Environment<'a> = &'a dyn Fn(&str) -> Option<String>;

/// Keys of a cluster, in the form of their files.
pub(crate) struct Secrets {
    pub(crate) cluster_key: String,
    pub(crate) master_key: String,
    pub(crate) sse_master_key: String,
    pub(crate) root: String,
    /// Key of the first tenant, if the file names one.
    pub(crate) first: Option<String>,
}

impl Secrets {
    /// Reads the keys of an output folder, and makes those of a new cluster in memory.
    ///
    /// # Errors
    /// A key is missing or mangled, and the cluster was made before: another key would lock its
    /// machines out of their data.
    pub(crate) fn find_or_make(
        spec: &ClusterSpec,
        made: &MadeBefore,
        environment: Environment,
    ) -> Result<Self, Failure> {
        let out = made.out;
        let key = |name: &str| {
            let Some(text) = read_text(&path(out, name))? else {
                made.check_new(name)?;
                return Ok(hex::encode(random_bytes::<32>()) + "\n");
            };
            checked_key(&path(out, name), text)
        };
        let pair = |names: &PairNames| -> Result<String, Failure> {
            let given = names.variables.map(environment);
            if let Some(text) = names.given(given)? {
                return Ok(text);
            }
            let Some(text) = read_text(&path(out, names.file))? else {
                made.check_new(names.file)?;
                return Ok(names.random());
            };
            Ok(text)
        };
        let first = spec.first.as_ref().map(|_| pair(&FIRST_NAMES)).transpose()?;
        Ok(Self {
            cluster_key: key(CLUSTER_KEY)?,
            master_key: key(MASTER_KEY)?,
            sse_master_key: key(SSE_MASTER_KEY)?,
            root: pair(&ROOT_NAMES)?,
            first,
        })
    }

    fn files(&self) -> Vec<(&'static str, &str)> {
        let mut files = vec![
            (CLUSTER_KEY, self.cluster_key.as_str()),
            (MASTER_KEY, self.master_key.as_str()),
            (SSE_MASTER_KEY, self.sse_master_key.as_str()),
            (ROOT, self.root.as_str()),
        ];
        files.extend(self.first.as_deref().map(|text| (FIRST, text)));
        files
    }

    /// Files of the operator's own folder.
    pub(crate) fn kept(&self) -> impl Iterator<Item = WantedFile> {
        self.files().into_iter().map(|(name, text)| {
            WantedFile::new(Path::new(CLUSTER_DIR).join(name), FileKind::Secret, text)
        })
    }

    /// Files of a machine. A machine without a proxy gets the cluster key alone. One machine makes
    /// the first tenant, and gets that tenant's key.
    pub(crate) fn of_machine(&self, node: &NodeSpec, makes_first: bool) -> Vec<WantedFile> {
        let has_proxy = node.has(NodeRole::Proxy);
        let is_for_it = |name: &str| match name {
            CLUSTER_KEY => true,
            FIRST => makes_first,
            _ => has_proxy,
        };
        let files = self.files().into_iter().filter(|(name, _)| is_for_it(name));
        let node = node.name();
        files
            .map(|(name, text)| WantedFile::new(Path::new(node).join(name), FileKind::Secret, text))
            .collect()
    }
}

fn path(out: &Path, name: &str) -> PathBuf {
    out.join(CLUSTER_DIR).join(name)
}

fn checked_key(path: &Path, text: String) -> Result<String, Failure> {
    let is_key = |line: &str| line.len() == 64 && line.bytes().all(|it| it.is_ascii_hexdigit());
    let lines = || text.lines().map(str::trim).filter(|line| !line.is_empty());
    if lines().next().is_some() && lines().all(is_key) {
        return Ok(text);
    }
    Err(Failure::refused(format!(
        "{} must hold 64 hexadecimal digits: restore it from a copy. A new key would lock the \
         cluster out of its data",
        path.display()
    )))
}

/// Names around an access key and its secret.
struct PairNames {
    file: &'static str,
    /// Environment variables that give both.
    variables: [&'static str; 2],
    /// Form of the file.
    form: KeyFileForm,
}

const ROOT_NAMES: PairNames = PairNames {
    file: ROOT,
    variables: ["MARTLET_ROOT_ACCESS_KEY", "MARTLET_ROOT_SECRET_KEY"],
    form: ROOT_KEY,
};
const FIRST_NAMES: PairNames = PairNames {
    file: FIRST,
    variables: ["MARTLET_FIRST_ACCESS_KEY", "MARTLET_FIRST_SECRET_KEY"],
    form: TENANT_KEY,
};

impl PairNames {
    /// Returns the file for values of the environment, or `None` if neither is set.
    fn given(&self, given: [Option<String>; 2]) -> Result<Option<String>, Failure> {
        let [access_name, secret_name] = self.variables;
        match given.map(|value| value.filter(|text| !text.is_empty())) {
            [None, None] => Ok(None),
            [Some(access), Some(secret)] => {
                let is_plain = |text: &str| text.bytes().all(|it| it.is_ascii_graphic());
                let is_short = access.len() < 3 || secret.len() < 16;
                if is_short
                    || access.contains(['/', ','])
                    || !is_plain(&access)
                    || !is_plain(&secret)
                {
                    return Err(Failure::usage(format!(
                        "{access_name} needs 3 characters without / and commas, {secret_name} 16, \
                         both without spaces"
                    )));
                }
                Ok(Some(self.form.text(&access, &secret)))
            }
            _ => Err(Failure::usage(format!(
                "only one of {access_name} and {secret_name} is set: set both or neither"
            ))),
        }
    }

    fn random(&self) -> String {
        let access = random_bytes::<ACCESS_CHARACTERS>();
        let secret = random_bytes::<SECRET_CHARACTERS>();
        self.form.text(&letters(&access, ACCESS_ALPHABET), &letters(&secret, SECRET_ALPHABET))
    }
}

/// Letters of an alphabet whose length divides 256, one for each byte.
fn letters(bytes: &[u8], alphabet: &[u8]) -> String {
    bytes.iter().map(|byte| char::from(alphabet[usize::from(*byte) % alphabet.len()])).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::spec::tests::THREE;

    fn none(_: &str) -> Option<String> {
        None
    }

    fn secrets(out: &Path, environment: Environment) -> Result<Secrets, Failure> {
        let spec = ClusterSpec::parse(THREE).unwrap();
        Secrets::find_or_make(&spec, &MadeBefore::find(&spec, out), environment)
    }

    #[test]
    fn keys_are_random_and_then_kept() {
        let out = tempfile::tempdir().unwrap();
        let one = secrets(out.path(), &none).unwrap();
        let other = secrets(out.path(), &none).unwrap();
        assert_ne!(one.cluster_key, other.cluster_key);
        assert_ne!(one.root, other.root);
        assert_ne!(one.master_key, one.sse_master_key);
        std::fs::create_dir(out.path().join(CLUSTER_DIR)).unwrap();
        for file in one.kept() {
            std::fs::write(out.path().join(&file.path), &file.bytes).unwrap();
        }
        let again = secrets(out.path(), &none).unwrap();
        assert_eq!((again.cluster_key, again.root), (one.cluster_key, one.root));
        std::fs::write(path(out.path(), CLUSTER_KEY), "mangled").unwrap();
        let refusal = secrets(out.path(), &none).err().unwrap().to_string();
        assert!(refusal.contains("restore it from a copy") && !refusal.contains("mangled"));
    }

    #[test]
    fn credentials_of_the_environment_win() {
        let out = tempfile::tempdir().unwrap();
        let both = |name: &str| match name {
            "MARTLET_ROOT_ACCESS_KEY" => Some("mine".to_owned()),
            "MARTLET_ROOT_SECRET_KEY" => Some("0123456789abcdef".to_owned()),
            _ => None,
        };
        let given = secrets(out.path(), &both).unwrap().root;
        assert!(given.contains("=mine\n") && given.contains("=0123456789abcdef\n"));
        let half = |name: &str| both(name).filter(|_| name.contains("ACCESS"));
        assert!(secrets(out.path(), &half).err().unwrap().to_string().contains("set both"));
        let short = |name: &str| both(name).map(|_| "mine".to_owned());
        assert!(secrets(out.path(), &short).err().unwrap().to_string().contains("16"));
    }

    #[test]
    fn a_machine_gets_the_keys_of_its_roles() {
        let out = tempfile::tempdir().unwrap();
        let text = format!("{THREE}\n[first]\ntenant = \"t\"\n").replacen(
            "zone = 3",
            "zone = 3\nroles = [\"storage-node\", \"replicator\"]",
            1,
        );
        let spec = ClusterSpec::parse(&text).unwrap();
        let made = MadeBefore::find(&spec, out.path());
        let made = Secrets::find_or_make(&spec, &made, &none).unwrap();
        let files = made.of_machine(&spec.nodes[2], false);
        assert_eq!(files.len(), 1);
        assert_eq!(files[0].path, Path::new("n3/cluster.key"));
        assert_eq!(made.of_machine(&spec.nodes[1], false).len(), 4);
        assert_eq!(made.of_machine(&spec.nodes[0], true).len(), 5);
    }
}
