//! Lookup of the ids of principals that a document names, when the document is written.

use std::collections::BTreeSet;

use futures::stream::{self, StreamExt, TryStreamExt};
use martlet_proxy::{Error, ObjectStore};

use crate::access::{Bindings, BoundName, NAMES_MAX, PrincipalKind};

/// Number of concurrent lookups.
const AT_A_TIME: usize = 8;

/// Reason for which names are not bound.
#[derive(Debug)]
pub(crate) enum BindError {
    /// A name belongs to no principal, or there are too many names.
    Unknown,
    /// The store failed, for example without a quorum.
    Failed(Error),
}

/// Binds the names in a document to the ids of their current holders.
///
/// # Errors
/// [`BindError`]. A name without a holder is refused: a later holder would not be the intended one.
pub(crate) async fn bind(
    store: &ObjectStore,
    document: &[u8],
    names: BTreeSet<BoundName>,
) -> Result<Bindings, BindError> {
    if names.len() > NAMES_MAX {
        return Err(BindError::Unknown);
    }
    let found = stream::iter(names).map(|name| look_up(store, name)).buffer_unordered(AT_A_TIME);
    Ok(Bindings::new(document, found.try_collect::<Vec<_>>().await?))
}

async fn look_up(store: &ObjectStore, name: BoundName) -> Result<(BoundName, String), BindError> {
    let account =
        store.directory().account_called(&name.account).await.map_err(BindError::Failed)?;
    let account = account.ok_or(BindError::Unknown)?;
    let is_itself = |user: &str| user == account.name || user == account.canonical_id;
    let id = match &name.member {
        None => Some(account.canonical_id),
        Some((PrincipalKind::User, user)) if is_itself(user) => Some(account.canonical_id),
        Some((PrincipalKind::User, user)) => {
            store.directory().user_id(&account, user).await.map_err(BindError::Failed)?
        }
        Some((PrincipalKind::Role, role)) => {
            store.directory().role_id(&account, role).await.map_err(BindError::Failed)?
        }
    };
    Ok((name, id.ok_or(BindError::Unknown)?))
}
