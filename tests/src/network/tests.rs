//! Tests that cables are cut, made lossy and healed as requested, and that nothing is left behind.

use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

use super::{BridgeNetwork, Host, NAMES};

const PORT: u16 = 4000;
/// Answers every connection with a byte.
const SERVER: &str = "import socket\n\
    s = socket.socket(); s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)\n\
    s.bind(('', 4000)); s.listen(100)\n\
    while True: s.accept()[0].sendall(b'x')";
/// Exits with 0 if a connection receives a byte within 0.7 s.
const CLIENT: &str = "import socket, sys\n\
    s = socket.create_connection((sys.argv[1], 4000), 0.7); s.settimeout(0.7)\n\
    sys.exit(0 if s.recv(1) == b'x' else 1)";
/// Echoes datagrams; `COUNT` counts the echoes of two hundred.
const ECHO: &str = "import socket\n\
    s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM); s.bind(('', 4001))\n\
    while True: s.sendto(*s.recvfrom(10))";
const COUNT: &str = "import socket, sys, time\n\
    s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM); s.settimeout(0.3); n = 0\n\
    for _ in range(200): s.sendto(b'x', (sys.argv[1], 4001)); time.sleep(0.001)\n\
    try:\n\
    \twhile True: s.recvfrom(10); n += 1\n\
    except TimeoutError: print(n)";

struct KilledOnDrop(Child);

impl Drop for KilledOnDrop {
    fn drop(&mut self) {
        drop(self.0.kill());
        drop(self.0.wait());
    }
}

fn python(host: &Host, script: &str) -> KilledOnDrop {
    let mut command = host.command(Path::new("python3"));
    KilledOnDrop(command.args(["-c", script]).stdout(Stdio::null()).spawn().unwrap())
}

fn reaches(from: &Host, to: &Host) -> bool {
    let mut command = from.command(Path::new("python3"));
    command.args(["-c", CLIENT, &to.address.to_string()]).stderr(Stdio::null());
    command.status().unwrap().success()
}

fn wait_for(host: &Host) {
    let (begun, address) = (Instant::now(), SocketAddr::from((host.address, PORT)));
    while TcpStream::connect_timeout(&address, Duration::from_millis(200)).is_err() {
        assert!(begun.elapsed() < Duration::from_secs(20), "{address} does not answer");
        std::thread::park_timeout(Duration::from_millis(20));
    }
}

#[test]
fn cables_are_cut_and_healed() {
    let Some(mut network) = BridgeNetwork::new("cables_are_cut_and_healed") else { return };
    let (one, other, third) = (network.add("a"), network.add("b"), network.add("c"));
    let _servers = [python(&one, SERVER), python(&other, SERVER), python(&third, SERVER)];
    for host in [&one, &other, &third] {
        wait_for(host);
    }
    assert!(reaches(&one, &other) && reaches(&other, &one));
    network.cut("a", "b");
    assert!(!reaches(&one, &other) && !reaches(&other, &one), "the cut lets something through");
    assert!(reaches(&one, &third) && reaches(&other, &third), "the cut cuts others off");
    network.heal();
    assert!(reaches(&one, &other) && reaches(&other, &one), "it is not healed");
}

#[test]
fn a_cut_of_one_direction_lets_the_other_through() {
    let test = "a_cut_of_one_direction_lets_the_other_through";
    let Some(mut network) = BridgeNetwork::new(test) else { return };
    let (one, other) = (network.add("a"), network.add("b"));
    let _echoes = [python(&one, ECHO), python(&other, ECHO), python(&one, SERVER)];
    wait_for(&one);
    // Packets from `a` are dropped, so TCP fails both ways; but datagrams from `b` arrive.
    network.cut_one_way("a", "b");
    assert!(!reaches(&other, &one));
    let heard = python_receives(&one, &other);
    assert!(heard, "nothing of what b sends arrives at a");
}

/// Returns true if a datagram from `sender` arrives at `receiver`.
fn python_receives(receiver: &Host, sender: &Host) -> bool {
    let listen = "import socket, sys\n\
        s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM); s.bind(('', 4002)); s.settimeout(5)\n\
        sys.exit(0 if s.recv(1) == b'x' else 1)";
    let mut ear = receiver.command(Path::new("python3"));
    let mut ear = ear.args(["-c", listen]).stderr(Stdio::null()).spawn().unwrap();
    let speak = "import socket, sys, time\n\
        s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)\n\
        for _ in range(40): s.sendto(b'x', (sys.argv[1], 4002)); time.sleep(0.05)";
    let mut mouth = sender.command(Path::new("python3"));
    mouth.args(["-c", speak, &receiver.address.to_string()]);
    assert!(mouth.status().unwrap().success());
    ear.wait().unwrap().success()
}

#[test]
fn a_lossy_link_drops_about_its_stated_share() {
    let Some(mut network) = BridgeNetwork::new("a_lossy_link_drops_about_its_stated_share") else {
        return;
    };
    let (one, other) = (network.add("a"), network.add("b"));
    let _echo = python(&other, ECHO);
    let count = || {
        let mut command = one.command(Path::new("python3"));
        let output = command.args(["-c", COUNT, &other.address.to_string()]).output().unwrap();
        String::from_utf8(output.stdout).unwrap().trim().parse::<u32>().unwrap()
    };
    let begun = Instant::now();
    while count() < 190 {
        assert!(begun.elapsed() < Duration::from_secs(20), "whole cables lose something");
    }
    network.lose("a", "b", 30);
    let left = count();
    println!("of 200 datagrams {left} went there and back over a cable that loses 30 of 100");
    assert!((50..150).contains(&left), "{left} of 200 came back");
}

#[test]
fn nothing_is_left_behind() {
    let Some(mut network) = BridgeNetwork::new("nothing_is_left_behind") else { return };
    let (host, cable) = (network.add("a"), network.own_cable());
    let named = || Path::new(NAMES).join(&host.namespace).exists();
    let has_cable = || Path::new("/sys/class/net").join(&cable).exists();
    assert!(named() && has_cable());
    drop(network);
    assert!(!named() && !has_cable());
}
