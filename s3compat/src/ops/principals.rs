//! The ids of those whom a document names, looked up when it is put.

use std::collections::BTreeSet;

use futures::stream::{self, StreamExt, TryStreamExt};
use martlet_proxy::{Error, ObjectStore};

use crate::access::{Bindings, Member, NAMES_MAX, Name};

/// Names that are looked up at a time.
const AT_A_TIME: usize = 8;

/// Why names can't be bound.
#[derive(Debug)]
pub(crate) enum Unbound {
    /// A name is nobody's, or there are too many.
    Unknown,
    /// No quorum answers.
    Failed(Error),
}

/// Binds the names in a document to those who have them now.
///
/// # Errors
/// [`Unbound`]: nothing is bound to nobody, for whoever has the name later would not be meant.
pub(crate) async fn bind(
    store: &ObjectStore,
    document: &[u8],
    names: BTreeSet<Name>,
) -> Result<Bindings, Unbound> {
    if names.len() > NAMES_MAX {
        return Err(Unbound::Unknown);
    }
    let found = stream::iter(names).map(|name| look_up(store, name)).buffer_unordered(AT_A_TIME);
    Ok(Bindings::new(document, found.try_collect::<Vec<_>>().await?))
}

async fn look_up(store: &ObjectStore, name: Name) -> Result<(Name, String), Unbound> {
    let account = store.account_called(&name.account).await.map_err(Unbound::Failed)?;
    let account = account.ok_or(Unbound::Unknown)?;
    let is_itself = |user: &str| user == account.name || user == account.canonical_id;
    let id = match &name.member {
        None => Some(account.canonical_id),
        Some((Member::User, user)) if is_itself(user) => Some(account.canonical_id),
        Some((Member::User, user)) => {
            store.user_id(&account, user).await.map_err(Unbound::Failed)?
        }
        Some((Member::Role, role)) => {
            store.role_id(&account, role).await.map_err(Unbound::Failed)?
        }
    };
    Ok((name, id.ok_or(Unbound::Unknown)?))
}
