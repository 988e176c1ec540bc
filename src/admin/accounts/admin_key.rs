//! Keys of the admin API, as part of `martlet admin key`.

use std::fs::{File, OpenOptions};
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::time::Duration;

use martlet_admin_api::accounts::DeletedLine;
use martlet_admin_api::principals::{
    ADMIN_KEY, ADMIN_KEYS, AdminKeyLine, AdminKeyRequest, AdminRole,
};
use martlet_serving::{Failure, key_file};

use super::pages::fetch_all;
use super::print;
use crate::admin::client::AdminEndpoint;
use crate::admin::print::show;

/// Parameters of a new admin key.
pub(super) struct NewKey<'a> {
    pub(super) role: AdminRole,
    pub(super) tenant: Option<&'a str>,
    pub(super) name: Option<&'a str>,
    pub(super) expires: Option<Duration>,
    /// File for the key, in place of the output.
    pub(super) file: Option<&'a Path>,
}

impl NewKey<'_> {
    /// Creates the key, and prints it or writes its file.
    pub(super) fn create(&self, server: &AdminEndpoint, json: bool) -> Result<(), Failure> {
        // A file that can't be made is refused before the key exists.
        let file = self.file.map(|path| Ok::<_, Failure>((path, make(path)?))).transpose()?;
        let request = AdminKeyRequest {
            role: self.role,
            tenant: self.tenant.map(str::to_owned),
            name: self.name.map(str::to_owned),
            expires_in_s: self.expires.map(|span| span.as_secs()),
        };
        let made = server.post::<AdminKeyLine>(ADMIN_KEYS, &request);
        if let (Err(_), Some((path, _))) = (&made, &file) {
            // The file is empty, and this command has just made it.
            let _ = std::fs::remove_file(path);
        }
        let mut line = made?;
        if let Some((path, mut file)) = file {
            // The file has the secret in place of the output.
            let secret = line.secret.take().unwrap_or_default();
            let text = key_file::ADMIN_KEY.text(&line.key, &secret);
            let written = file.write_all(text.as_bytes()).and_then(|()| file.sync_all());
            written.map_err(|error| {
                Failure::refused(format!(
                    "the key {} can't be written to {}: {error}; revoke it, and create another",
                    line.key,
                    path.display()
                ))
            })?;
        }
        show(&line, json, print::admin_key);
        Ok(())
    }
}

fn make(path: &Path) -> Result<File, Failure> {
    let made = OpenOptions::new().create_new(true).write(true).mode(0o600).open(path);
    made.map_err(|error| {
        Failure::refused(format!("the file {} can't be made: {error}", path.display()))
    })
}

/// Lists the admin keys.
pub(super) fn list(server: &AdminEndpoint, json: bool) -> Result<(), Failure> {
    let lines: Vec<AdminKeyLine> = fetch_all(server, ADMIN_KEYS, &[])?;
    show(&lines, json, |lines| print::admin_keys(lines));
    Ok(())
}

/// Revokes an admin key.
pub(super) fn revoke(server: &AdminEndpoint, key: &str, json: bool) -> Result<(), Failure> {
    let deleted: DeletedLine = server.delete(ADMIN_KEY, &[("key", key)])?;
    show(&deleted, json, |it| format!("revoked admin key {}\n", it.deleted));
    Ok(())
}
