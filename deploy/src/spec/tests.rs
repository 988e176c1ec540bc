//! Tests of cluster files: what is read and what is refused.

use super::*;

/// A cluster of three nodes with two devices each.
pub(crate) const THREE: &str = r#"name = "try"

[[node]]
name = "n1"
address = "10.0.0.1"
zone = 1
device = [{ name = "d1", path = "/srv/martlet/d1", size = "4TB" },
          { name = "d2", path = "/srv/martlet/d2", weight = 4000 }]

[[node]]
name = "n2"
address = "10.0.0.2"
zone = 2
device = [{ name = "d1", path = "/srv/martlet/d1", size = "4TB" },
          { name = "d2", path = "/srv/martlet/d2", size = "4TB" }]

[[node]]
name = "n3"
address = "fd00::3"
zone = 3
device = [{ name = "d1", path = "/srv/martlet/d1", size = "4TB" },
          { name = "d2", path = "/srv/martlet/d2", size = "4TB" }]
"#;

fn refusal(text: &str) -> String {
    ClusterSpec::parse(text).expect_err(text)
}

#[test]
fn a_short_file_is_a_whole_cluster() {
    let spec = ClusterSpec::parse(THREE).unwrap();
    let rings: Vec<String> = spec.rings().into_iter().map(|ring| ring.file).collect();
    assert_eq!(rings, ["index", "data-0"]);
    let devices: Vec<NewDevice> = spec.devices().collect();
    assert_eq!(devices.len(), 6);
    assert_eq!(devices[0].node.address, "10.0.0.1:6200");
    assert_eq!(devices[5].node.address, "[fd00::3]:6200");
    assert!(devices.iter().all(|device| device.weight.to_bits() == 4000_f64.to_bits()));
    assert!(spec.tls.members && spec.tls.s3, "TLS is on unless the file turns it off");
    assert!(!spec.tls.admin, "the admin port is on loopback unless the file opens it");
}

#[test]
fn policies_have_rings_in_their_order() {
    let text =
        format!("default_policy = \"ec\"\n{THREE}\n[[policy]]\nname = \"ec\"\ncode = \"2+1\"\n");
    let spec = ClusterSpec::parse(&text).unwrap();
    let last = spec.rings().pop().unwrap();
    assert_eq!((last.file.as_str(), last.policy, last.replicas), ("data-1", 1, 3));
}

#[test]
fn unknown_names_are_refused_with_their_line() {
    for (from, to) in [("zone = 2", "zoom = 2"), ("size = \"4TB\"", "sise = \"4TB\"")] {
        let why = refusal(&THREE.replacen(from, to, 1));
        assert!(why.contains("unknown field") && why.contains("line "), "{why}");
        let right = from.split(' ').next().unwrap();
        assert!(why.ends_with(&format!("did you mean \"{right}\"?")), "{why}");
    }
    assert!(refusal(&format!("coppies = 3\n{THREE}")).contains("line 1"));
}

#[test]
fn mistakes_are_refused_with_their_line_and_a_remedy() {
    let two = |text: &str| THREE.replacen("10.0.0.2", text, 1);
    let cases = [
        (two("10.0.0.1"), "line 12: two nodes have the address 10.0.0.1"),
        (two("10.0.0.2:9000"), "line 12: \"10.0.0.2:9000\" is neither"),
        (two("two.example.org"), "bind = \"10.0.0.1\""),
        (THREE.replacen("\"n2\"", "\"n1\"", 1), "line 11: the node n1 is named twice"),
        (THREE.replacen("\"n2\"", "\"cluster\"", 1), "line 11: a node can't be named cluster"),
        (THREE.replacen("\"n2\"", "\"../n2\"", 1), "line 11: \"../n2\" is not a name"),
        (THREE.replacen("\"d2\"", "\"d1\"", 1), "line 8: a device of n1 has the name"),
        (THREE.replacen("\"/srv", "\"srv", 1), "line 7: the path of n1/d1 must be absolute"),
        (THREE.replacen(", size = \"4TB\"", "", 1), "line 7: the device n1/d1 needs a size"),
        (THREE.replacen("weight = 4000", "weight = -1", 1), "no number of at least 0"),
        (format!("replicas = 4\n{THREE}"), "line 1: 4 copies need as many nodes"),
        (format!("replicas = 0\n{THREE}"), "line 1: 0 copies"),
        (format!("data_dir = \"x\"\n{THREE}"), "line 1: data_dir must be an absolute path"),
        (format!("default_policy = \"x\"\n{THREE}"), "line 1: there is no [[policy]]"),
        (format!("{THREE}\n[ports]\ns3 = 9001\n"), "three different ports"),
        (format!("{THREE}\n[[policy]]\nname = \"ec\"\ncode = \"6+1\"\n"), "needs 7 devices"),
        (format!("{THREE}\n[[policy]]\nname = \"Default\"\ncode = \"2+1\"\n"), "reserved"),
        (format!("{THREE}\n[[policy]]\nname = \"x\"\ncode = \"replicated\"\n"), "code = \"4+2\""),
        (
            format!("{THREE}\n[[node]]\nname = \"n4\"\naddress = \"10.0.0.4\"\nzone = 1\n"),
            "n4 has no",
        ),
        (format!("{THREE}\n[first]\ntenant = \"t\"\nbucket = \"A_b\"\n"), "first bucket"),
        ("name = \"x\"\nnode = []\n".to_owned(), "add [[node]]"),
        (THREE.replacen("/srv/martlet/d1", "/srv/a\\\"b", 1), "without double quotes"),
        (THREE.replacen("/srv/martlet/d1", "/srv/a\\\\b", 1), "without double quotes"),
        (format!("data_dir = \"/srv/a\\nb\"\n{THREE}"), "line 1: data_dir must be"),
    ];
    for (text, words) in cases {
        let why = refusal(&text);
        assert!(why.contains(words), "{why}\nlacks: {words}");
    }
}

/// The three nodes with these roles.
fn with_roles(roles: [&str; 3]) -> String {
    let zones = (1..).zip(roles);
    zones.fold(THREE.to_owned(), |text, (zone, roles)| {
        text.replacen(&format!("zone = {zone}"), &format!("zone = {zone}\nroles = [{roles}]"), 1)
    })
}

#[test]
fn each_storage_node_has_a_replicator_and_clients_a_proxy() {
    let (all, data) = ("\"storage-node\", \"proxy\", \"replicator\"", "\"storage-node\"");
    let workers = "\"storage-node\", \"replicator\"";
    let why = refusal(&with_roles([workers; 3]));
    assert!(why.contains("no node has the role proxy"), "{why}");
    let alone = with_roles([all, all, data]);
    let why = refusal(&alone);
    assert!(why.contains("line 23: no replicator looks after the devices of n3"), "{why}");
    let fourth = format!(
        "{alone}\n[[node]]\nname = \"n4\"\naddress = \"10.0.0.4\"\nzone = 1\nroles = \
         [\"replicator\"]\n"
    );
    ClusterSpec::parse(&fourth).unwrap();
    ClusterSpec::parse(&with_roles([all, workers, workers])).unwrap();
}
