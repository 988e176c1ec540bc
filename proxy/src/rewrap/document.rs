//! Wrapped data key of an object or upload, as the document in its entry has it.

use martlet_protocol::entry::Marks;

use crate::encryption::keys::Wrapper;
use crate::encryption::{Locked, ObjectAddress};
use crate::error::{Error, Result};
use crate::keyring::Vault;

/// Returns true if a master key other than the first wraps the data key.
pub(super) fn is_outdated(vault: &Vault, locked: Option<&Locked>) -> bool {
    let first = vault.first_root().map(|(name, _)| name);
    match locked.map(Locked::by) {
        Some(Wrapper::Master(name)) => Some(name.as_str()) != first,
        Some(Wrapper::Customer) | None => false,
    }
}

/// The document wrapped by the first master key; none if no rewrap is needed.
pub(super) fn rewrapped(
    vault: &Vault,
    marks: &Marks,
    object: ObjectAddress<'_>,
) -> Result<Option<Vec<u8>>> {
    let Some(locked) = Locked::of(marks, object)?.filter(|it| is_outdated(vault, Some(it))) else {
        return Ok(None);
    };
    let Wrapper::Master(name) = locked.by() else { return Ok(None) };
    let secret = vault.unwrap(name, &locked)?;
    let (by, root) = vault.wrapping().ok_or(Error::NoMasterKey)?;
    Ok(Some(secret.lock(by, root, object)))
}
