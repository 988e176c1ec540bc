//! Condition keys of the time, the principal and the connection.

use std::net::IpAddr;

use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;

use crate::access::{Context, Requester};
use crate::connection::Connection;

/// Adds the time.
pub(crate) fn add_time(context: &mut Context, now_ms: u64) {
    let nanoseconds = i128::from(now_ms) * 1_000_000;
    let now = OffsetDateTime::from_unix_timestamp_nanos(nanoseconds).ok();
    if let Some(text) = now.and_then(|now| now.format(&Rfc3339).ok()) {
        context.add("aws:CurrentTime", text);
    }
    context.add("aws:EpochTime", (now_ms / 1000).to_string());
}

/// Adds the principal.
pub(crate) fn add_requester(context: &mut Context, requester: &Requester) {
    match requester {
        Requester::Anonymous => context.add("aws:PrincipalType", "Anonymous"),
        Requester::LogDelivery => context.add("aws:PrincipalType", "Service"),
        Requester::User(who) => {
            let kind = if who.session.is_some() { "AssumedRole" } else { "User" };
            context.add("aws:PrincipalType", kind);
            context.add("aws:PrincipalAccount", &*who.account);
            if who.session.is_none() {
                context.add("aws:username", &*who.user);
            }
            context.add("aws:userid", &*who.user);
        }
    }
    if let Some(arn) = requester.arn() {
        context.add("aws:PrincipalArn", arn);
    }
}

/// Adds the connection.
pub(crate) fn add_connection(context: &mut Context, connection: Connection) {
    let Connection { peer, tls } = connection;
    if let Some(address) = peer {
        let address: IpAddr = address.to_canonical();
        context.add("aws:SourceIp", address.to_string());
    }
    context.add("aws:SecureTransport", tls.is_some().to_string());
    if let Some(tls) = tls {
        context.add("s3:TlsVersion", tls.version.number());
    }
}
