//! Messages to the service manager that started the process, by the protocol of `sd_notify(3)`:
//! datagrams of `NAME=value` lines to the socket that `NOTIFY_SOCKET` names.

use std::ffi::OsStr;
use std::io;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::time::Duration;

/// Variable that names the socket: a path, or `@` and the name of an abstract socket.
const SOCKET: &str = "NOTIFY_SOCKET";
/// Timeout for a datagram, when the manager's queue is full.
const SEND_MAX: Duration = Duration::from_secs(1);
/// Longest status text, in bytes, so that a message always fits into a datagram.
const STATUS_BYTES_MAX: usize = 1024;

/// Service manager of this process, if there is one.
pub(crate) struct ServiceManager(Option<SocketAddr>);

impl ServiceManager {
    /// Returns the service manager that the environment names.
    pub(crate) fn of_environment() -> Self {
        Self::at(std::env::var_os(SOCKET).as_deref())
    }

    /// Returns no service manager.
    pub(crate) fn none() -> Self {
        Self(None)
    }

    /// Returns the service manager behind a socket.
    pub(crate) fn at(socket: Option<&OsStr>) -> Self {
        let Some(name) = socket.filter(|name| !name.is_empty()) else { return Self(None) };
        let address = match name.as_bytes() {
            [b'@', rest @ ..] => SocketAddr::from_abstract_name(rest),
            _ => SocketAddr::from_pathname(name),
        };
        if let Err(error) = &address {
            tracing::warn!(%error, "could not use the socket that {SOCKET} names");
        }
        Self(address.ok())
    }

    /// Returns true if there is a manager to report to.
    pub(crate) fn exists(&self) -> bool {
        self.0.is_some()
    }

    /// Reports that the process answers requests.
    pub(crate) fn report_start(&self) {
        self.send("READY=1");
    }

    /// Reports that the process is stopping.
    pub(crate) fn report_end(&self) {
        self.send("STOPPING=1\nSTATUS=stopping");
    }

    /// Reports the condition of the process in one line.
    pub(crate) fn report_status(&self, status: &str) {
        let end = status.floor_char_boundary(STATUS_BYTES_MAX);
        self.send(&format!("STATUS={}", status[..end].replace('\n', " ")));
    }

    fn send(&self, message: &str) {
        let Some(address) = &self.0 else { return };
        let sent = || -> io::Result<usize> {
            let socket = UnixDatagram::unbound()?;
            socket.set_write_timeout(Some(SEND_MAX))?;
            socket.send_to_addr(message.as_bytes(), address)
        };
        if let Err(error) = sent() {
            tracing::warn!(%error, message, "could not report to the service manager");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn received(socket: &UnixDatagram) -> String {
        let mut bytes = [0; 4096];
        socket.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
        let count = socket.recv(&mut bytes).unwrap();
        String::from_utf8(bytes[..count].to_vec()).unwrap()
    }

    #[test]
    fn a_manager_at_a_path_is_notified() {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("notify");
        let socket = UnixDatagram::bind(&path).unwrap();
        let manager = ServiceManager::at(Some(path.as_os_str()));
        assert!(manager.exists());
        manager.report_start();
        assert_eq!(received(&socket), "READY=1");
        manager.report_status("not ready: d1 is full\nREADY=1");
        assert_eq!(received(&socket), "STATUS=not ready: d1 is full READY=1");
        manager.report_end();
        assert_eq!(received(&socket), "STOPPING=1\nSTATUS=stopping");
    }

    #[test]
    fn an_abstract_socket_is_notified() {
        let name = format!("martlet-test-{}", std::process::id());
        let address = SocketAddr::from_abstract_name(&name).unwrap();
        let socket = UnixDatagram::bind_addr(&address).unwrap();
        ServiceManager::at(Some(OsStr::new(&format!("@{name}")))).report_start();
        assert_eq!(received(&socket), "READY=1");
    }

    #[test]
    fn a_long_status_is_cut_between_characters() {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("notify");
        let socket = UnixDatagram::bind(&path).unwrap();
        ServiceManager::at(Some(path.as_os_str())).report_status(&"…".repeat(5000));
        let text = received(&socket);
        assert!(text.len() <= STATUS_BYTES_MAX + "STATUS=".len() && text.ends_with('…'));
    }

    #[test]
    fn without_a_manager_nothing_happens() {
        for socket in [None, Some(OsStr::new("")), Some(OsStr::new("/nowhere/notify"))] {
            ServiceManager::at(socket).report_start();
        }
        assert!(!ServiceManager::at(None).exists());
        assert!(!ServiceManager::at(Some(OsStr::new(""))).exists());
    }
}
