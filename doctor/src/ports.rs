//! Addresses that the process listens on: free, held by Martlet, or held by another program.

use std::fs;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::Path;

use rustix::io::Errno;
use rustix::net::sockopt::set_socket_reuseaddr;
use rustix::net::{AddressFamily, SocketFlags, SocketType, bind, socket_with};

use crate::finding::Finding;
use crate::target::ListenAddress;

const CHECK: &str = "port";
/// State of listening sockets in `/proc/net/tcp`.
const LISTEN: &str = "0A";
/// Most processes whose descriptors are searched for a socket.
const PROCESSES_MAX: usize = 10_000;

/// Observed state of an address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum PortFacts {
    /// A process could listen here.
    Free,
    /// A process listens here: its name and id, if they can be read.
    Held(Option<Holder>),
    /// No interface of this machine has the address.
    NoInterface,
    /// This user may not listen on the port.
    Forbidden,
    /// The attempt failed otherwise.
    Unknown(String),
}

/// Process that listens on an address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Holder {
    pub(crate) name: String,
    pub(crate) pid: u32,
}

/// Examines all addresses. Port 0 is left out: the kernel chooses a free port.
pub(crate) fn examine(addresses: &[ListenAddress]) -> Vec<Finding> {
    let fixed = addresses.iter().filter(|it| it.address.port() != 0);
    fixed.map(|it| judge(it, &observe(it.address))).collect()
}

/// Binds a socket to the address, without listening, and closes it.
fn observe(address: SocketAddr) -> PortFacts {
    let family = if address.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
    let bound =
        socket_with(family, SocketType::STREAM, SocketFlags::CLOEXEC, None).and_then(|socket| {
            set_socket_reuseaddr(&socket, true)?;
            bind(&socket, &address)
        });
    match bound {
        Ok(()) => PortFacts::Free,
        Err(Errno::ADDRINUSE) => PortFacts::Held(holder(address)),
        Err(Errno::ADDRNOTAVAIL) => PortFacts::NoInterface,
        Err(Errno::ACCESS | Errno::PERM) => PortFacts::Forbidden,
        Err(error) => PortFacts::Unknown(error.to_string()),
    }
}

/// Returns true if a process listens on an address or on all addresses with its port, or if this user can't read
/// which sockets or descriptors there are.
pub fn is_listener(pid: u32, address: SocketAddr) -> bool {
    let sockets = listening_sockets(address);
    sockets.is_none_or(|sockets| has_any(pid, &sockets).unwrap_or(true))
}

/// Returns the sockets that listen on an address, as descriptors name them; none if the kernel's tables can't be read.
fn listening_sockets(address: SocketAddr) -> Option<Vec<String>> {
    let tables = ["/proc/net/tcp", "/proc/net/tcp6"];
    let texts: Vec<String> =
        tables.iter().filter_map(|path| fs::read_to_string(path).ok()).collect();
    let inodes = texts.iter().flat_map(|text| listening_inodes(text, address));
    let sockets = inodes.map(|inode| format!("socket:[{inode}]")).collect();
    (!texts.is_empty()).then_some(sockets)
}

/// Returns true if a process has any of these sockets open; none if its descriptors can't be read.
fn has_any(pid: u32, sockets: &[String]) -> Option<bool> {
    let descriptors = fs::read_dir(format!("/proc/{pid}/fd")).ok()?;
    let mut targets = descriptors.flatten().filter_map(|it| fs::read_link(it.path()).ok());
    let is_one = |target: &Path| sockets.iter().any(|socket| target.as_os_str() == socket.as_str());
    Some(targets.any(|target| is_one(&target)))
}

/// Finds the process that listens on an address, if this user may read its descriptors.
fn holder(address: SocketAddr) -> Option<Holder> {
    let sockets = listening_sockets(address)?;
    let processes = fs::read_dir("/proc").ok()?.flatten().take(PROCESSES_MAX);
    let mut ids = processes.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
    ids.find(|pid| has_any(*pid, &sockets) == Some(true)).map(|pid| {
        let name = fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
        Holder { name: name.trim().to_owned(), pid }
    })
}

/// Returns the inodes of sockets that listen on an address, or on all addresses with its port.
fn listening_inodes(table: &str, address: SocketAddr) -> Vec<String> {
    let inode = |line: &str| {
        let mut words = line.split_whitespace();
        let (local, state) = (words.nth(1)?, words.nth(1)?);
        let (ip, port) = local.split_once(':')?;
        let is_port = u16::from_str_radix(port, 16).ok()? == address.port();
        let ip = kernel_ip(ip)?;
        let is_ip = ip == address.ip() || ip.is_unspecified() || address.ip().is_unspecified();
        (is_port && is_ip && state == LISTEN).then(|| words.nth(5).map(str::to_owned))?
    };
    table.lines().filter_map(inode).collect()
}

/// Parses an address as the kernel prints it: words in the machine's byte order.
fn kernel_ip(text: &str) -> Option<IpAddr> {
    let word = |at: usize| {
        let digits = text.get(at * 8..at * 8 + 8)?;
        Some(u32::from_str_radix(digits, 16).ok()?.to_ne_bytes())
    };
    match text.len() {
        8 => Some(Ipv4Addr::from(word(0)?).into()),
        32 => {
            let words = [word(0)?, word(1)?, word(2)?, word(3)?].concat();
            Some(Ipv6Addr::from(<[u8; 16]>::try_from(words).ok()?).to_canonical())
        }
        _ => None,
    }
}

fn judge(listen: &ListenAddress, facts: &PortFacts) -> Finding {
    let ListenAddress { setting, address } = listen;
    let finding = |seen: String| Finding::ok(CHECK, format!("{setting} {address}"), seen);
    match facts {
        PortFacts::Free => finding("free".to_owned()),
        PortFacts::Held(Some(Holder { name, pid })) if name.starts_with("martlet") => {
            finding(format!("held by {name}, process {pid}"))
        }
        PortFacts::Held(Some(Holder { name, pid })) => {
            finding(format!("held by {name}, process {pid}"))
                .fail(format!("stop that process, or choose another port in {setting}"))
        }
        PortFacts::Held(None) => finding("held by a process of another user".to_owned())
            .warn("run doctor as root to see which; if it is not Martlet, choose another port"),
        PortFacts::NoInterface => {
            finding("no interface of this machine has the address".to_owned())
                .fail(format!("correct {setting}, or bring the interface up: ip address"))
        }
        PortFacts::Forbidden => finding("this user may not listen there".to_owned())
            .warn("run doctor as the server's user; ports below 1024 need CAP_NET_BIND_SERVICE"),
        PortFacts::Unknown(error) => {
            finding(format!("can't be examined: {error}")).warn(format!("check {setting}"))
        }
    }
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use super::*;
    use crate::finding::Verdict;

    fn listen(address: SocketAddr) -> ListenAddress {
        ListenAddress { setting: "s3_address", address }
    }

    #[test]
    fn a_held_port_is_held_by_its_process() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let PortFacts::Held(Some(holder)) = observe(address) else { panic!("no holder is found") };
        assert_eq!(holder.pid, std::process::id());
        let mut other = std::process::Command::new("sleep").arg("60").spawn().unwrap();
        assert!(is_listener(std::process::id(), address) && !is_listener(other.id(), address));
        other.kill().unwrap();
        other.wait().unwrap();
        drop(listener);
        assert_eq!(observe(address), PortFacts::Free);
        assert_eq!(observe("192.0.2.1:9000".parse().unwrap()), PortFacts::NoInterface);
        assert!(examine(&[listen("127.0.0.1:0".parse().unwrap())]).is_empty());
    }

    #[test]
    fn each_state_has_its_verdict() {
        let held = |name: &str| PortFacts::Held(Some(Holder { name: name.into(), pid: 7 }));
        let verdict =
            |facts: &PortFacts| judge(&listen("127.0.0.1:9000".parse().unwrap()), facts).verdict;
        assert_eq!(verdict(&PortFacts::Free), Verdict::Ok);
        assert_eq!(verdict(&held("martlet")), Verdict::Ok);
        assert_eq!(verdict(&held("nginx")), Verdict::Fail);
        assert_eq!(verdict(&PortFacts::Held(None)), Verdict::Warn);
        assert_eq!(verdict(&PortFacts::NoInterface), Verdict::Fail);
        assert_eq!(verdict(&PortFacts::Forbidden), Verdict::Warn);
        assert_eq!(verdict(&PortFacts::Unknown("x".into())), Verdict::Warn);
    }

    #[test]
    fn addresses_of_the_kernel_are_read() {
        let port = 9000;
        let line = |ip: [u8; 4], state: &str| {
            let ip = u32::from_ne_bytes(ip);
            format!(
                " 0: {ip:08X}:{port:04X} 00000000:0000 {state} 00000000:00000000 00:00000000 \
                 00000000  1000  0 4242 1 0000000000000000 100 0 0 10 0"
            )
        };
        let address = SocketAddr::from(([127, 0, 0, 1], port));
        assert_eq!(listening_inodes(&line([127, 0, 0, 1], LISTEN), address), ["4242"]);
        assert_eq!(listening_inodes(&line([0, 0, 0, 0], LISTEN), address), ["4242"]);
        assert!(listening_inodes(&line([127, 0, 0, 1], "01"), address).is_empty());
        assert!(listening_inodes(&line([10, 0, 0, 1], LISTEN), address).is_empty());
        let mapped = "0000000000000000FFFF00000100007F";
        let is_little = cfg!(target_endian = "little");
        assert_eq!(kernel_ip(mapped) == Some(address.ip()), is_little);
    }
}
