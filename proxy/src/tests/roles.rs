//! Roles: made once, changed, and effective everywhere within a second.

use std::time::Duration;

use martlet_protocol::testing::Fault;

use super::harness::{Harness, faulty};
use crate::{
    Accounts, Error, KeyCache, NewRole, NewUser, Role, RoleChange, RoleOf, SESSION_S_DEFAULT, Vault,
};

const SECOND: Duration = Duration::from_secs(1);

fn new_role(tenant: &str, name: &str) -> NewRole {
    NewRole {
        tenant: tenant.into(),
        name: name.into(),
        policy: "{}".into(),
        trust: None,
        trust_ids: None,
        session_s_max: SESSION_S_DEFAULT,
    }
}

async fn world() -> (Harness, Accounts) {
    let harness = Harness::new(3, 3);
    let desk = Accounts::new(harness.store.clone(), Vault::default());
    desk.create_tenant("t", None, Vec::new()).await.unwrap();
    desk.create_role(new_role("t", "r")).await.unwrap();
    (harness, desk)
}

fn policies(accounts: Accounts) -> KeyCache<String, RoleOf> {
    KeyCache::new(accounts, |of: &RoleOf, _: &str| of.role.policy.clone())
}

#[tokio::test]
async fn a_role_is_made_changed_and_deleted() {
    let (_harness, desk) = world().await;
    let made = desk.role("t", "r").await.unwrap();
    assert!(matches!(desk.create_role(new_role("t", "r")).await, Err(Error::AccountConflict(_))));
    assert!(matches!(desk.create_role(new_role("o", "r")).await, Err(Error::NoSuchAccount(_))));
    for wrong in [new_role("t", "a/b"), NewRole { session_s_max: 899, ..new_role("t", "x") }] {
        assert!(matches!(desk.create_role(wrong).await, Err(Error::InvalidArgument(_))));
    }
    let change = RoleChange { trust: Some("[]".into()), ..RoleChange::default() };
    let changed = desk.change_role("t", "r", change).await.unwrap();
    assert_eq!((changed.trust.as_deref(), changed.policy.as_str()), (Some("[]"), "{}"));
    let long = RoleChange { session_s_max: Some(43_201), ..RoleChange::default() };
    assert!(matches!(desk.change_role("t", "r", long).await, Err(Error::InvalidArgument(_))));
    desk.create_role(new_role("t", "s")).await.unwrap();
    let (page, more) = desk.roles("t", Some("r"), 9).await.unwrap();
    assert_eq!((page[0].name.as_str(), page.len(), more), ("s", 1, false));
    let refused = desk.delete_tenant("t").await.unwrap_err().to_string();
    assert_eq!(refused, "the tenant t still has the role r");
    desk.delete_role("t", "r").await.unwrap();
    assert!(matches!(desk.role("t", "r").await, Err(Error::NoSuchAccount(_))));
    desk.create_role(new_role("t", "r")).await.unwrap();
    assert_ne!(desk.role("t", "r").await.unwrap().id, made.id);
}

#[tokio::test]
async fn a_user_keeps_its_policy_until_it_is_taken_away() {
    let (_harness, desk) = world().await;
    let new = NewUser { tenant: "t".into(), name: "u".into(), role: Role::Admin };
    assert_eq!(desk.create_user(new).await.unwrap().policy, None);
    desk.set_user_policy("t", "u", Some("{}".into())).await.unwrap();
    desk.change_user("t", "u", None, Some(Role::ReadOnly)).await.unwrap();
    assert_eq!(desk.user("t", "u").await.unwrap().policy.as_deref(), Some("{}"));
    desk.set_user_policy("t", "u", None).await.unwrap();
    assert_eq!(desk.user("t", "u").await.unwrap().policy, None);
    let nobody = desk.set_user_policy("t", "nobody", None).await;
    assert!(matches!(nobody, Err(Error::NoSuchAccount(_))));
}

#[tokio::test(start_paused = true)]
async fn a_change_is_in_force_within_a_second_at_another_proxy() {
    let (harness, desk) = world().await;
    let store = faulty(&harness.memory, 3, 3, |_| Fault::None);
    let elsewhere = policies(Accounts::new(store, Vault::default()));
    let find = async || {
        tokio::time::advance(SECOND).await;
        elsewhere.find("t/r").await.unwrap().map(|policy| policy.as_str().to_owned())
    };
    assert_eq!(find().await.as_deref(), Some("{}"));
    let change = RoleChange { policy: Some("[]".into()), ..RoleChange::default() };
    desk.change_role("t", "r", change).await.unwrap();
    assert_eq!(find().await.as_deref(), Some("[]"));
    let off = |disabled| RoleChange { disabled: Some(disabled), ..RoleChange::default() };
    desk.change_role("t", "r", off(true)).await.unwrap();
    assert_eq!(find().await, None);
    desk.change_role("t", "r", off(false)).await.unwrap();
    assert!(find().await.is_some());
    desk.change_tenant("t", Some(true), None).await.unwrap();
    assert_eq!(find().await, None);
    assert_eq!(elsewhere.find("t").await.unwrap(), None, "no name of a role");
}
