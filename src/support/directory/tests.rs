//! Lists of processes from reports, as deployments have them.

use martlet_admin_api::{MemberLine, NodeLine};

use super::*;

fn report(role: &str, address: &str) -> ProcessReport {
    ProcessReport { admin_address: address.parse().ok(), ..ProcessReport::of(role) }
}

fn node(name: &str, host: &str, admin: &str) -> NodeLine {
    let report = Some(report(&format!("storage node {name}"), admin));
    NodeLine { name: name.into(), address: format!("{host}:6200"), report, ..NodeLine::default() }
}

fn member(role: &str, sender: &str, admin: &str) -> MemberLine {
    MemberLine { heard_ms_ago: 1, sender: sender.parse().ok(), report: report(role, admin) }
}

/// Status of the proxy n1 of machines that run all roles. The machine at 0 has the address of this process.
fn machines(hosts: &[(&str, &str, &str)], admin_of: impl Fn(&str) -> String) -> ServerStatus {
    let mut status =
        ServerStatus { own: report("proxy n1", &admin_of(hosts[0].1)), ..ServerStatus::default() };
    for (name, host, sender) in hosts {
        let admin = admin_of(host);
        status.nodes.push(node(name, host, &admin));
        for role in ["proxy", "replicator"] {
            status.members.push(member(&format!("{role} {name}"), sender, &admin));
        }
    }
    status
}

const THREE: [(&str, &str, &str); 3] = [
    ("n1", "10.0.0.1", "10.0.0.1"),
    ("n2", "10.0.0.2", "10.0.0.2"),
    ("n3", "10.0.0.3", "10.0.0.3"),
];

/// Lists as the process itself does, at this address.
fn here(status: &ServerStatus, address: &str) -> Vec<ListedProcess> {
    processes(status, Replier { address: &address.parse().unwrap(), is_here: true })
}

/// Names, with their addresses or the beginnings of the reasons.
fn shown(list: &[ListedProcess]) -> Vec<(String, String)> {
    let place = |process: &ListedProcess| match &process.address {
        Ok(address) => address.to_string(),
        Err(reason) => reason[..20].to_owned(),
    };
    list.iter().map(|process| (process.name.clone(), place(process))).collect()
}

fn pairs(expected: &[(&str, &str)]) -> Vec<(String, String)> {
    expected.iter().map(|(name, place)| ((*name).to_owned(), (*place).to_owned())).collect()
}

#[test]
fn machines_at_their_loopback_interfaces_are_listed_with_what_to_set() {
    // `cluster apply` without admin TLS.
    let status = machines(&THREE, |_| "127.0.0.1:9001".to_owned());
    let list = here(&status, "127.0.0.1:9001");
    let expected = [
        ("proxy n1", "127.0.0.1:9001"),
        ("proxy n2", &LOOPBACK[..20]),
        ("proxy n3", &LOOPBACK[..20]),
    ];
    assert_eq!(shown(&list), pairs(&expected));
    assert_eq!(list[0].roles, ["proxy n1", "replicator n1", "storage node n1"]);
    assert!(list[0].own && !list[1].own);
    let reason = list[1].address.as_ref().unwrap_err();
    assert!(reason.contains("admin_address") && reason.contains("tls.admin"), "{reason}");
}

#[test]
fn all_roles_of_a_process_are_listed_at_its_address_and_that_with_s3_names_it() {
    // `cluster apply` with admin TLS.
    let status = machines(&THREE, |host| format!("{host}:9001"));
    let list = here(&status, "https://10.0.0.1:9001");
    let expected = [
        ("proxy n1", "10.0.0.1:9001"),
        ("proxy n2", "10.0.0.2:9001"),
        ("proxy n3", "10.0.0.3:9001"),
    ];
    assert_eq!(shown(&list), pairs(&expected));
    assert_eq!(list[1].roles, ["proxy n2", "replicator n2", "storage node n2"]);
}

#[test]
fn an_address_of_all_interfaces_is_one_of_the_senders_machine() {
    // The chart: each role has a pod of its own, and ring addresses are names.
    let status = ServerStatus {
        own: report("proxy p1", "0.0.0.0:9001"),
        nodes: vec![node("n1", "n1.nodes", "0.0.0.0:6201"), node("n2", "n2.nodes", "0.0.0.0:6201")],
        members: vec![
            member("proxy p1", "10.1.0.1", "0.0.0.0:9001"),
            member("proxy p2", "10.1.0.2", "0.0.0.0:9001"),
            member("replicator r1", "10.1.0.3", "0.0.0.0:6301"),
            member("replicator r2", "fd00::4", "[::]:6301"),
            member("replicator old", "", "0.0.0.0:6301"),
            member("replicator starting", "10.1.0.9", ""),
        ],
        ..ServerStatus::default()
    };
    let expected = [
        ("proxy p1", "0.0.0.0:9001"),
        ("proxy p2", "10.1.0.2:9001"),
        ("replicator old", &UNKNOWN[..20]),
        ("replicator r1", "10.1.0.3:6301"),
        ("replicator r2", "[fd00::4]:6301"),
        ("replicator starting", &NO_ADDRESS[..20]),
        ("storage node n1", "n1.nodes:6201"),
        ("storage node n2", "n2.nodes:6201"),
    ];
    assert_eq!(shown(&here(&status, "0.0.0.0:9001")), pairs(&expected));
}

#[test]
fn the_roles_of_one_machine_are_joined_though_rings_have_its_name() {
    let named = [("n1", "n1.lan", "10.0.0.1"), ("n2", "n2.lan", "10.0.0.2")];
    for (admin, second) in [("0.0.0.0:9001", "n2.lan:9001"), ("127.0.0.1:9001", &LOOPBACK[..20])] {
        let list = here(&machines(&named, |_| admin.to_owned()), admin);
        assert_eq!(shown(&list), pairs(&[("proxy n1", admin), ("proxy n2", second)]));
        assert_eq!((list[0].roles.len(), list[1].roles.len()), (3, 3), "{list:?}");
    }
    // The proxy of an earlier release, whose sender is unknown, is at the node of its name.
    let old = [("n1", "10.0.0.1", ""), ("n2", "10.0.0.2", "")];
    let list = here(&machines(&old, |_| "0.0.0.0:9001".to_owned()), "0.0.0.0:9001");
    let expected = [("proxy n1", "0.0.0.0:9001"), ("proxy n2", "10.0.0.2:9001")];
    assert_eq!(shown(&list), pairs(&expected));
}

#[test]
fn a_loopback_address_is_read_on_this_machine_alone() {
    let status = ServerStatus {
        own: report("proxy p1", "127.0.0.1:7201"),
        nodes: vec![
            node("n1", "127.0.0.1", "127.0.0.1:7101"),
            node("n2", "10.0.0.2", "127.0.0.1:7102"),
        ],
        members: vec![
            member("proxy p1", "10.0.0.1", "127.0.0.1:7201"),
            member("replicator r1", "10.0.0.1", "127.0.0.1:7301"),
            member("replicator r2", "10.0.0.2", "127.0.0.1:7201"),
            member("replicator r3", "", "127.0.0.1:7303"),
        ],
        ..ServerStatus::default()
    };
    let refused = &LOOPBACK[..20];
    let mut expected = [
        ("proxy p1", "127.0.0.1:7201"),
        ("replicator r1", "127.0.0.1:7301"),
        ("replicator r2", refused),
        ("replicator r3", refused),
        ("storage node n1", "127.0.0.1:7101"),
        ("storage node n2", refused),
    ];
    assert_eq!(shown(&here(&status, "127.0.0.1:7201")), pairs(&expected));
    // A command on another machine reaches none of them.
    let address = "10.0.0.1:7201".parse().unwrap();
    let list = processes(&status, Replier { address: &address, is_here: false });
    expected[0].1 = "10.0.0.1:7201";
    (expected[1].1, expected[4].1) = (refused, refused);
    assert_eq!(shown(&list), pairs(&expected));
}

#[test]
fn processes_without_a_report_and_beyond_the_bound_are_listed_with_a_reason() {
    let mut status =
        ServerStatus { own: report("proxy p1", "10.0.0.1:1"), ..ServerStatus::default() };
    status.nodes.push(NodeLine { name: "n0".into(), ..NodeLine::default() });
    let nodes = (0..300).map(|at| {
        let host = format!("10.1.{}.{}", at / 200, at % 200);
        node(&format!("n{at:03}x"), &host, &format!("{host}:6201"))
    });
    status.nodes.extend(nodes);
    status.members.push(member("proxy zz", "10.0.0.9", "10.0.0.9:9001"));
    let list = here(&status, "10.0.0.1:1");
    let names: Vec<&str> = list.iter().map(|process| process.name.as_str()).collect();
    assert_eq!((names[0], names[1], names[2]), ("proxy p1", "proxy zz", "storage node n0"));
    assert_eq!(list[2].address, Err(NO_REPORT.to_owned()));
    assert_eq!(list.iter().filter(|process| process.address.is_ok()).count(), 1 + OTHERS_MAX);
    let last = list.last().unwrap();
    assert_eq!(last.name, "46 further processes");
    assert!(last.address.as_ref().unwrap_err().contains("--admin-address"));
    assert_eq!(
        last.roles,
        ["storage node n254x"],
        "one role of each kind shows which routes are missing"
    );
}

#[test]
fn processes_of_one_name_differ_by_their_addresses() {
    let mut status =
        ServerStatus { own: report("proxy p1", "10.0.0.1:1"), ..ServerStatus::default() };
    for admin in ["10.0.0.2:1", "10.0.0.3:1", "", ""] {
        status.members.push(member("proxy p2", "10.0.0.9", admin));
    }
    let list = here(&status, "10.0.0.1:1");
    let names: Vec<&str> = list.iter().map(|process| process.name.as_str()).collect();
    let unknown = "proxy p2 at an unknown address";
    let second = format!("{unknown} (2)");
    assert_eq!(
        names,
        ["proxy p1", "proxy p2 at 10.0.0.2:1", "proxy p2 at 10.0.0.3:1", unknown, &second]
    );
}
