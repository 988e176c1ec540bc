//! Choice of free ports: the usual port if it is free, another one if not.
//!
//! A chosen port stays reserved until the processes start, so that two clusters that start at once
//! choose different ports.

use std::io::ErrorKind;
use std::net::{Ipv4Addr, SocketAddr, TcpListener};

use martlet_serving::Failure;

/// Distance between candidate ports.
const STEP: u16 = 400;
/// First port of the kernel's ephemeral range.
const EPHEMERAL: u16 = 32768;

/// Address on 127.0.0.1, unreachable from other machines.
pub(super) fn loopback(port: u16) -> SocketAddr {
    SocketAddr::from((Ipv4Addr::LOCALHOST, port))
}

/// Ports reserved for processes that have not started.
#[derive(Debug, Default)]
pub(super) struct Ports(Vec<TcpListener>);

impl Ports {
    /// Reserves and returns a free port: `wanted`, if it is free.
    pub(super) fn take(&mut self, wanted: u16) -> Result<u16, Failure> {
        let further = (wanted..EPHEMERAL).step_by(usize::from(STEP)).skip(1);
        // Port 0 lets the kernel choose.
        let mut candidates = std::iter::once(wanted).chain(further).chain([0]);
        let found = candidates.find_map(|port| TcpListener::bind(loopback(port)).ok());
        let nothing = || Failure::refused("no free port on 127.0.0.1");
        let listener = found.ok_or_else(nothing)?;
        let port = listener.local_addr().map_err(|_| nothing())?.port();
        self.0.push(listener);
        Ok(port)
    }
}

/// Checks that all listening addresses of the process `name` are free.
pub(super) fn check_free(
    name: &str,
    addresses: impl Iterator<Item = SocketAddr>,
) -> Result<(), Failure> {
    for address in addresses {
        let Err(error) = TcpListener::bind(address) else { continue };
        let why = match error.kind() {
            ErrorKind::AddrInUse => "another process listens there: stop it and start again".into(),
            _ => error.to_string(),
        };
        return Err(Failure::refused(format!(
            "{name} had the address {address} before, and {why}"
        )));
    }
    Ok(())
}

/// Returns the first of some addresses on which a process listens.
pub(super) fn held_address(mut addresses: impl Iterator<Item = SocketAddr>) -> Option<SocketAddr> {
    let is_held = |address: &SocketAddr| {
        TcpListener::bind(address).is_err_and(|error| error.kind() == ErrorKind::AddrInUse)
    };
    addresses.find(is_held)
}

#[cfg(test)]
mod tests {
    use super::super::layout::tests::layout;
    use super::*;

    /// Port that only this test uses. Another test would take the port as soon as it is free.
    fn own_port() -> u16 {
        let offset = std::process::id() % u32::from(STEP);
        20_000 + u16::try_from(offset).unwrap()
    }

    #[test]
    fn a_port_in_use_is_skipped() {
        let mut ports = Ports::default();
        let first = ports.take(own_port()).unwrap();
        let second = ports.take(first).unwrap();
        assert_ne!(first, second);
        assert!(TcpListener::bind(loopback(second)).is_err(), "it is not held");
        drop(ports);
        assert!(TcpListener::bind(loopback(second)).is_ok(), "it is still held");
    }

    #[test]
    fn high_ports_are_tried_too() {
        let mut ports = Ports::default();
        let held = TcpListener::bind(loopback(0)).unwrap();
        let high = held.local_addr().unwrap().port();
        assert!(high >= EPHEMERAL, "the kernel gives {high}");
        assert_ne!(ports.take(high).unwrap(), high);
    }

    #[test]
    fn an_address_in_use_is_an_error_with_its_owner() {
        let member = layout().members().swap_remove(0);
        let before = check_free(&member.name, member.addresses());
        let _held = TcpListener::bind(member.admin_address);
        let refusal = check_free(&member.name, member.addresses()).unwrap_err().to_string();
        assert!(before.is_err() || refusal.starts_with("n1 had the address"), "{refusal}");
    }
}
