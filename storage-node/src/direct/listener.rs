//! The socket of direct reads, and the packets of one client.
//!
//! The socket has the type `SOCK_SEQPACKET`, which keeps the ends of packets. Tokio drives it as it
//! drives a stream; only sending and receiving differ.

use std::fmt;
use std::io::{self, IoSlice};
use std::mem::MaybeUninit;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt};
use std::os::unix::net::UnixListener as StdListener;
use std::path::{Path, PathBuf};

use martlet_protocol::{Error, Result};
use rustix::io::Errno;
use rustix::net::{
    self, AddressFamily, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage, SendFlags, Shutdown,
    SocketAddrUnix, SocketFlags, SocketType,
};
use tokio::io::Interest;
use tokio::net::{UnixListener, UnixStream};

use super::packet::REQUEST_BYTES_MAX;

/// Permissions of the socket.
const MODE: u32 = 0o660;
/// Connections that wait to be accepted.
const BACKLOG: i32 = 64;
/// Descriptors of a packet.
const DESCRIPTORS_MAX: usize = 2;

/// A socket that accepts clients. Its file is removed when it is dropped.
pub struct DirectListener {
    listener: UnixListener,
    path: PathBuf,
    /// Device and inode of the socket's file.
    identity: (u64, u64),
}

/// A connected client.
pub(super) struct Peer {
    stream: UnixStream,
    uid: u32,
}

impl DirectListener {
    /// Makes the socket, with mode 0660. A socket at the path is replaced if no process serves it.
    /// Must run within a tokio runtime.
    pub fn bind(path: PathBuf) -> Result<Self> {
        let failed = |what: &str, errno: Errno| {
            let sentence = format!("direct_socket: can't {what} {}", path.display());
            Error::unavailable(sentence).with_source(io::Error::from(errno))
        };
        let address = SocketAddrUnix::new(&path).map_err(|_| {
            Error::invalid(format!(
                "direct_socket: {} is longer than the 107 bytes that the path of a socket may have",
                path.display()
            ))
        })?;
        remove_unserved(&path, &address)?;
        let socket = seqpacket().map_err(|errno| failed("make a socket for", errno))?;
        net::bind(&socket, &address).map_err(|errno| failed("make", errno))?;
        let bound = restrict(&path);
        // Until now, no client could connect.
        let listening = bound.and_then(|identity| Ok((identity, listen(socket)?)));
        match listening {
            Ok((identity, listener)) => Ok(Self { listener, path, identity }),
            Err(error) => {
                // The socket is this process's own.
                let _ = std::fs::remove_file(&path);
                let sentence = format!("direct_socket: can't serve {}", path.display());
                Err(Error::unavailable(sentence).with_source(error))
            }
        }
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Waits for the next client.
    pub(super) async fn accept(&self) -> io::Result<Peer> {
        let (stream, _) = self.listener.accept().await?;
        let uid = stream.peer_cred()?.uid();
        Ok(Peer { stream, uid })
    }
}

fn seqpacket() -> Result<OwnedFd, Errno> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    net::socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None)
}

fn listen(socket: OwnedFd) -> io::Result<UnixListener> {
    net::listen(&socket, BACKLOG)?;
    UnixListener::from_std(StdListener::from(socket))
}

/// Sets the permissions of a new socket; returns its identity.
fn restrict(path: &Path) -> io::Result<(u64, u64)> {
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(MODE))?;
    identity(path)
}

fn identity(path: &Path) -> io::Result<(u64, u64)> {
    let about = std::fs::symlink_metadata(path)?;
    Ok((about.dev(), about.ino()))
}

/// Removes a socket that a process left behind. Files of other types, and sockets that a process
/// serves, are errors.
fn remove_unserved(path: &Path, address: &SocketAddrUnix) -> Result<()> {
    let shown = path.display();
    match std::fs::symlink_metadata(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Ok(about) if about.file_type().is_socket() => {}
        Ok(_) => {
            let sentence = format!(
                "direct_socket: {shown} exists and is no socket: remove it, or name another path"
            );
            return Err(Error::invalid(sentence));
        }
        Err(error) => {
            let sentence = format!("direct_socket: can't look at {shown}");
            return Err(Error::unavailable(sentence).with_source(error));
        }
    }
    let probe = seqpacket().and_then(|socket| net::connect(&socket, address));
    match probe {
        Err(Errno::CONNREFUSED) => std::fs::remove_file(path).map_err(|error| {
            Error::unavailable(format!("direct_socket: can't replace {shown}")).with_source(error)
        }),
        Ok(()) | Err(Errno::AGAIN) => {
            Err(Error::conflict(format!("direct_socket: another process serves {shown}")))
        }
        Err(errno) => {
            let sentence = format!("direct_socket: can't test if a process serves {shown}");
            Err(Error::unavailable(sentence).with_source(io::Error::from(errno)))
        }
    }
}

impl Drop for DirectListener {
    fn drop(&mut self) {
        // Another process may have replaced the socket.
        if identity(&self.path).is_ok_and(|identity| identity == self.identity) {
            let _ = std::fs::remove_file(&self.path);
        }
    }
}

impl fmt::Debug for DirectListener {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("DirectListener").field(&self.path).finish()
    }
}

impl Peer {
    /// Returns the user that connected, by the kernel.
    pub(super) fn uid(&self) -> u32 {
        self.uid
    }

    /// Waits for a packet. None at the end of the connection. A packet that is too long is cut, and
    /// so is malformed. Descriptors that come with a packet are closed by the kernel. May be
    /// dropped at any time without the loss of a packet.
    pub(super) async fn receive(&self) -> io::Result<Option<Vec<u8>>> {
        let mut packet = vec![0; REQUEST_BYTES_MAX + 1];
        let receive = || {
            let (length, _) = net::recv(&self.stream, packet.as_mut_slice(), RecvFlags::empty())?;
            Ok(length)
        };
        let length = self.stream.async_io(Interest::READABLE, receive).await?;
        packet.truncate(length);
        Ok((length > 0).then_some(packet))
    }

    /// Sends a packet with up to two descriptors, once the client has room for it.
    pub(super) async fn send(&self, packet: &[u8], files: &[BorrowedFd<'_>]) -> io::Result<()> {
        self.stream.async_io(Interest::WRITABLE, || self.try_send(packet, files)).await
    }

    /// Closes the connection, so that the client receives all packets that were sent. Without this,
    /// packets that the server hasn't received make the client's next call fail.
    pub(super) fn close(self) {
        let _ = net::shutdown(&self.stream, Shutdown::Both);
        let mut packet = [0; 1];
        // The rest of each packet is dropped. The client can send no more.
        while matches!(
            net::recv(&self.stream, packet.as_mut_slice(), RecvFlags::DONTWAIT),
            Ok((1.., _))
        ) {}
    }

    /// Sends a packet if the client has room for it.
    pub(super) fn try_send(&self, packet: &[u8], files: &[BorrowedFd<'_>]) -> io::Result<()> {
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(DESCRIPTORS_MAX))];
        let mut control = SendAncillaryBuffer::new(&mut space);
        if !files.is_empty() {
            let fits = control.push(SendAncillaryMessage::ScmRights(files));
            assert!(fits, "a packet has at most two descriptors");
        }
        let flags = SendFlags::NOSIGNAL | SendFlags::DONTWAIT;
        net::sendmsg(&self.stream, &[IoSlice::new(packet)], &mut control, flags)?;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn connect(path: &Path) -> Result<OwnedFd, Errno> {
        let socket = net::socket_with(
            AddressFamily::UNIX,
            SocketType::SEQPACKET,
            SocketFlags::CLOEXEC,
            None,
        )?;
        net::connect(&socket, &SocketAddrUnix::new(path)?)?;
        Ok(socket)
    }

    #[tokio::test]
    async fn a_socket_is_replaced_only_if_no_process_serves_it() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("direct");
        let listener = DirectListener::bind(path.clone()).unwrap();
        assert_eq!(std::fs::symlink_metadata(&path).unwrap().mode() & 0o7777, MODE);
        let error = DirectListener::bind(path.clone()).unwrap_err();
        assert!(error.to_string().contains("another process serves"), "{error}");
        connect(&path).unwrap();
        drop(listener);
        assert!(!path.exists());
        // A process that is killed leaves its socket.
        let left = seqpacket().unwrap();
        net::bind(&left, &SocketAddrUnix::new(&path).unwrap()).unwrap();
        drop(left);
        drop(DirectListener::bind(path.clone()).unwrap());
        std::fs::write(&path, b"x").unwrap();
        let error = DirectListener::bind(path.clone()).unwrap_err();
        assert!(error.to_string().contains("is no socket"), "{error}");
        let error = DirectListener::bind(folder.path().join("x".repeat(108))).unwrap_err();
        assert!(error.to_string().contains("107 bytes"), "{error}");
    }

    #[tokio::test]
    async fn packets_keep_their_ends() {
        let folder = tempfile::tempdir().unwrap();
        let listener = DirectListener::bind(folder.path().join("direct")).unwrap();
        let client = connect(&listener.path).unwrap();
        let peer = listener.accept().await.unwrap();
        assert_eq!(peer.uid(), rustix::process::geteuid().as_raw());
        for packet in [vec![1; 3], vec![2; REQUEST_BYTES_MAX], vec![3; REQUEST_BYTES_MAX + 9]] {
            net::send(&client, &packet, SendFlags::empty()).unwrap();
        }
        assert_eq!(peer.receive().await.unwrap(), Some(vec![1; 3]));
        assert_eq!(peer.receive().await.unwrap(), Some(vec![2; REQUEST_BYTES_MAX]));
        assert_eq!(peer.receive().await.unwrap().map(|it| it.len()), Some(REQUEST_BYTES_MAX + 1));
        drop(client);
        assert_eq!(peer.receive().await.unwrap(), None);
    }
}
