//! Key of a cluster: a file with 64 hexadecimal digits, readable by its owner only.

use std::fs;
use std::path::Path;

use martlet_protocol::extent_token::ExtentTokenKey;
use martlet_protocol::http::ClusterKey;
use martlet_protocol::tree::TreeKey;
use martlet_serving::folder::is_shared;
use martlet_serving::{AdminToken, Failure};

/// Derivation context of the key of hash trees.
const TREE_KEY: &str = "martlet 2026 hash trees of a cluster";
/// Derivation context of the secret of session and continuation tokens.
const TOKENS: &str = "martlet 2026 tokens of a cluster's clients";
const MAKE_ONE: &str = "create one with: (umask 077; openssl rand -hex 32 > cluster.key)";

/// Secrets of a cluster's members, all from one key file.
#[derive(Clone)]
pub struct ClusterSecret {
    /// Signs requests between members.
    pub key: ClusterKey,
    /// Authorizes requests to the admin addresses of members.
    pub token: AdminToken,
    /// Keys the sums of registers, so that a client can't craft two registers with equal sums (rule
    /// H1).
    pub tree: TreeKey,
    /// Secret of proxies for session and continuation tokens.
    pub tokens: [u8; 32],
    /// Signs the tokens of reads in place.
    pub extents: ExtentTokenKey,
}

impl ClusterSecret {
    /// Reads a key file. A file that other users can read is refused.
    pub fn load(path: &Path) -> Result<Self, Failure> {
        let name = path.display();
        let bytes = fs::read(path).map_err(|error| {
            Failure::refused(format!(
                "the cluster key in {name} can't be read: {error}; {MAKE_ONE}"
            ))
        })?;
        refuse_if_shared(path, "the cluster key")?;
        let text = String::from_utf8_lossy(&bytes);
        let key = text.parse().map_err(|_| {
            Failure::refused(format!(
                "the cluster key in {name} must be 64 hexadecimal digits: copy it from another \
                 node, or {MAKE_ONE}"
            ))
        })?;
        let digits = text.trim().to_ascii_lowercase();
        let tree = TreeKey(blake3::derive_key(TREE_KEY, digits.as_bytes()));
        let tokens = blake3::derive_key(TOKENS, digits.as_bytes());
        let extents = ExtentTokenKey::derive(digits.as_bytes());
        Ok(Self { key, token: AdminToken::of(digits.as_bytes()), tree, tokens, extents })
    }
}

/// Refuses a secret file that other users can read: one that [`is_shared`].
pub(crate) fn refuse_if_shared(path: &Path, what: &str) -> Result<(), Failure> {
    if !fs::metadata(path).is_ok_and(|it| is_shared(&it)) {
        return Ok(());
    }
    let name = path.display();
    Err(Failure::refused(format!(
        "other users can read {what} in {name}: chmod 600 {name}, and use a new key on all nodes \
         if the old one may have been read"
    )))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    fn file(text: &str, mode: u32) -> (tempfile::TempDir, std::path::PathBuf) {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("cluster.key");
        fs::write(&path, text).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
        (place, path)
    }

    fn refusal(text: &str, mode: u32) -> String {
        let (_place, path) = file(text, mode);
        ClusterSecret::load(&path).err().map(|failure| failure.to_string()).unwrap_or_default()
    }

    #[test]
    fn a_key_is_64_digits_in_a_file_of_mode_0600() {
        let digits = "0f".repeat(32);
        assert_eq!(refusal(&format!("{digits}\n"), 0o600), "");
        assert!(refusal(&digits, 0o640).contains("chmod 600"));
        assert!(refusal(&digits, 0o604).contains("chmod 600"));
        for wrong in ["", "0f", &format!("{digits}0f"), &digits.replace('f', "g")] {
            assert!(refusal(wrong, 0o600).contains("64 hexadecimal digits"), "{wrong}");
            assert!(wrong.len() < 8 || !refusal(wrong, 0o600).contains(wrong));
        }
        let missing = ClusterSecret::load(Path::new("/nowhere/cluster.key"));
        assert!(missing.err().unwrap().to_string().contains("openssl rand -hex 32"));
    }

    #[test]
    fn the_same_digits_make_the_same_token() {
        let (_first, lower) = file(&"0f".repeat(32), 0o600);
        let (_second, upper) = file(&format!(" {}\n", "0F".repeat(32)), 0o600);
        let secret = |path: &Path| ClusterSecret::load(path).unwrap();
        let (lower, upper) = (secret(&lower), secret(&upper));
        assert_eq!(lower.token.to_text(), upper.token.to_text());
        assert!(lower.tree == upper.tree && lower.tree != TreeKey::default());
    }
}
