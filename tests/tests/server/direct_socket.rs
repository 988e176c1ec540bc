//! The direct socket of a server process: its file, its answers, its metrics, and its end.
#![allow(clippy::unwrap_used, reason = "all of this runs within tests")]

use std::fs::File;
use std::io::IoSliceMut;
use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;
use std::os::unix::fs::{FileExt, PermissionsExt};
use std::path::Path;
use std::time::Duration;

use martlet_tests::bytes::body;
use martlet_tests::{Server, Setup};
use rustix::net::{
    self, AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendFlags,
    SocketAddrUnix, SocketFlags, SocketType, sockopt,
};
use serde_json::Value;

/// Code of a token that is not valid.
const TOKEN: [u8; 2] = [3, 0];

fn connect(path: &Path) -> OwnedFd {
    let (family, kind) = (AddressFamily::UNIX, SocketType::SEQPACKET);
    let socket = net::socket_with(family, kind, SocketFlags::CLOEXEC, None).unwrap();
    net::connect(&socket, &SocketAddrUnix::new(path).unwrap()).unwrap();
    let patience = Some(Duration::from_secs(20));
    sockopt::set_socket_timeout(&socket, sockopt::Timeout::Recv, patience).unwrap();
    socket
}

/// Requests a lease with a token that no key signed; returns the reply.
async fn ask_without_a_token(path: &Path) -> Vec<u8> {
    let path = path.to_owned();
    let exchange = move || {
        let socket = connect(&path);
        let mut packet = b"MDS1\x01\0\0\0\x09\0\0\0\0\0\0\0".to_vec();
        packet.extend_from_slice(&[7; 16]);
        packet.extend_from_slice(b"no-token");
        net::send(&socket, &packet, SendFlags::empty()).unwrap();
        let mut reply = vec![0; 8192];
        let (length, _) = net::recv(&socket, reply.as_mut_slice(), RecvFlags::empty()).unwrap();
        reply.truncate(length);
        reply
    };
    tokio::task::spawn_blocking(exchange).await.unwrap()
}

async fn check_refusal(server: &Server, path: &Path) {
    let before = server.metric("martlet_direct_refused_total").await;
    let reply = ask_without_a_token(path).await;
    assert!(reply.starts_with(b"MDS1\x82") && reply[6..8] == TOKEN && reply[8] == 9, "{reply:?}");
    assert!(String::from_utf8_lossy(&reply[16..]).contains("token"));
    let after = server.metric("martlet_direct_refused_total").await;
    assert_eq!(after, before + 1);
}

#[tokio::test]
async fn a_server_serves_its_direct_socket_until_it_stops() {
    let setup = Setup::new();
    let path = setup.join("direct.sock");
    let setup = setup.flags(&["--direct-socket", path.to_str().unwrap()]);
    let mut server = setup.start().await;
    let mode = std::fs::symlink_metadata(&path).unwrap().permissions().mode();
    assert_eq!(mode & 0o7777, 0o660);
    check_refusal(&server, &path).await;
    let other = Setup::new().flags(&["--direct-socket", path.to_str().unwrap()]);
    let (code, sentence) = other.refusal();
    assert!(code == 1 && sentence.contains("another process serves"), "{sentence}");
    check_refusal(&server, &path).await;
    server.kill();
    server.ended().await;
    assert!(path.exists(), "a server that is killed leaves its socket");
    let mut server = setup.start().await;
    check_refusal(&server, &path).await;
    assert!(server.stop().await.success());
    assert!(!path.exists());
}

/// Leases an extent; returns its bytes, read with `O_DIRECT`.
fn read_in_place(path: &Path, id: &str, token: &str) -> Vec<u8> {
    let socket = connect(path);
    let mut packet = b"MDS1\x01\0\0\0\x09\0\0\0\0\0\0\0".to_vec();
    packet.extend_from_slice(&hex::decode(id).unwrap());
    packet.extend_from_slice(token.as_bytes());
    net::send(&socket, &packet, SendFlags::empty()).unwrap();
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(2))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let mut reply = vec![0; 8192];
    let mut slices = [IoSliceMut::new(&mut reply)];
    net::recvmsg(&socket, &mut slices, &mut control, RecvFlags::CMSG_CLOEXEC).unwrap();
    let rights = control.drain().find_map(|message| match message {
        RecvAncillaryMessage::ScmRights(rights) => Some(rights.collect::<Vec<_>>()),
        _ => None,
    });
    let rights = rights.unwrap_or_else(|| panic!("{}", String::from_utf8_lossy(&reply[16..])));
    let length = u64::from_le_bytes(reply[32..40].try_into().unwrap());
    let length = usize::try_from(length).unwrap();
    let mut memory = vec![0; length.next_multiple_of(4096) + 4096];
    let start = memory.as_ptr().align_offset(4096);
    let buffer = &mut memory[start..start + length.next_multiple_of(4096)];
    File::from(rights.into_iter().nth(1).unwrap()).read_exact_at(buffer, 0).unwrap();
    buffer[..length].to_vec()
}

#[tokio::test]
async fn a_token_of_a_located_object_opens_its_extents() {
    let setup = Setup::new();
    let path = setup.join("direct.sock");
    let flags = ["--direct-socket", path.to_str().unwrap(), "--data-address", "127.0.0.1:0"]
        .map(String::from);
    let setup = setup.flags(&flags.each_ref().map(String::as_str));
    let server = setup.start().await;
    let mut client = server.client();
    client.make_bucket("box").await;
    let sent = body("large", 70 << 20);
    assert_eq!(client.put("/box/large", sent.clone()).await.unwrap().status, 200);
    let located = client.get("/box/large?locate=").await.unwrap();
    assert_eq!(located.status, 200, "{}", located.text());
    let located: Value = serde_json::from_str(&located.text()).unwrap();
    let mut found = Vec::new();
    for extent in located["extents"].as_array().unwrap() {
        let piece = &extent["pieces"][0];
        let text = |value: &Value| value.as_str().unwrap().to_owned();
        let (id, token) = (text(&piece["id"]), text(&piece["holders"][0]["token"]));
        let path = path.clone();
        let read = move || read_in_place(&path, &id, &token);
        found.extend(tokio::task::spawn_blocking(read).await.unwrap());
    }
    assert!(found == sent, "bytes in place are those that were sent");
}

#[tokio::test]
async fn a_server_without_the_setting_has_no_socket() {
    let server = Setup::new().start().await;
    let text = server.admin("/metrics").await.unwrap().text();
    assert!(!text.contains("martlet_direct_"), "{text}");
    assert!(text.contains("martlet_device_withheld_bytes"));
}

#[test]
fn settings_of_the_socket_that_make_no_sense() {
    let refusal = |setup: Setup| setup.refusal();
    let (code, sentence) = refusal(Setup::new().flags(&["--direct-uid", "1000"]));
    assert!(code == 2 && sentence.contains("direct_socket"), "{sentence}");
    let long = format!("/tmp/{}", "x".repeat(120));
    let (code, sentence) = refusal(Setup::new().flags(&["--direct-socket", &long]));
    assert!(code == 1 && sentence.contains("107 bytes"), "{sentence}");
    let flags = ["--direct-socket", "/no/such/folder/socket"];
    let (code, sentence) = refusal(Setup::new().flags(&flags));
    assert!(code == 1 && sentence.contains("/no/such/folder/socket"), "{sentence}");
}
