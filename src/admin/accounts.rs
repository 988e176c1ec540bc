//! `martlet admin tenant`, `user`, `role` and `key`: accounts and their credentials.

mod admin_key;
mod key;
mod limit_args;
mod pages;
mod print;
mod role;
mod tenant;
mod user;

pub(super) use self::key::KeyCommand;
pub(super) use self::role::RoleCommand;
pub(super) use self::tenant::TenantCommand;
pub(super) use self::user::UserCommand;
