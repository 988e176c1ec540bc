//! Selection of devices by id or by place.

use std::collections::{BTreeMap, HashSet};

use martlet_ring::{Builder, Device};
use martlet_serving::Failure;

/// Returns the devices that `text` names: a device by id (`d7` or `7`), all devices of a region,
/// zone or node (`r1`, `r1z2`, `r1z2-alpha`), or one device of a node (`r1z2-alpha/sdb`). No match
/// is an error.
pub fn select(builder: &Builder, text: &str) -> Result<Vec<Device>, Failure> {
    let is_named = |device: &&Device| names_of(device).iter().any(|name| name == text);
    let chosen: Vec<Device> = builder.devices().filter(is_named).cloned().collect();
    if chosen.is_empty() {
        return Err(nothing_matches(text));
    }
    Ok(chosen)
}

/// Returns the one device that `text` names. Several matches are an error.
pub fn select_one(builder: &Builder, text: &str) -> Result<Device, Failure> {
    let mut chosen = select(builder, text)?;
    if chosen.len() > 1 {
        return Err(Failure::refused(format!(
            "`{text}` matches {} devices, but the command takes one: use its id, such as {}",
            chosen.len(),
            chosen[0].id
        )));
    }
    Ok(chosen.remove(0))
}

/// Most words that name devices together.
pub const WORDS_MAX: usize = 100_000;

/// Returns all devices that several words name, without duplicates, in the order of ids. Takes one
/// pass over the devices, whatever the number of words.
///
/// # Errors
/// More than [`WORDS_MAX`] words; a word that names no device.
pub fn select_all(builder: &Builder, words: &[String]) -> Result<Vec<Device>, Failure> {
    if words.len() > WORDS_MAX {
        return Err(Failure::refused(format!(
            "{} words name devices, and at most {WORDS_MAX} may: name nodes, zones or regions",
            words.len()
        )));
    }
    let named: HashSet<&str> = words.iter().map(String::as_str).collect();
    let (mut found, mut all) = (HashSet::<&str>::new(), BTreeMap::new());
    for device in builder.devices() {
        let names = names_of(device);
        let mut matching = names.iter().filter_map(|name| named.get(name.as_str())).peekable();
        if matching.peek().is_some() {
            found.extend(matching);
            all.insert(device.id, device);
        }
    }
    match words.iter().find(|word| !found.contains(word.as_str())) {
        Some(word) => Err(nothing_matches(word)),
        None => Ok(all.into_values().cloned().collect()),
    }
}

/// Returns all texts that name a device.
fn names_of(device: &Device) -> [String; 6] {
    let region = format!("r{}", device.region);
    let zone = format!("{region}z{}", device.zone);
    let node = format!("{zone}-{}", device.node.name);
    [device.id.to_string(), device.id.0.to_string(), region, zone, node, device.to_string()]
}

fn nothing_matches(text: &str) -> Failure {
    Failure::refused(format!(
        "no device of this ring matches `{text}`: use an id such as d7, or a place such as r1, \
         r1z2, r1z2-alpha or r1z2-alpha/sdb; `show` lists all devices"
    ))
}

/// Formats devices as `d7 (r1z2-alpha/sdb)` or `12 devices (d0 to d11)`.
pub fn name(devices: &[Device]) -> String {
    match devices {
        [one] => format!("{} ({one})", one.id),
        [first, .., last] => format!("{} devices ({} to {})", devices.len(), first.id, last.id),
        [] => "no device".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use martlet_protocol::{PolicyId, Redundancy};
    use martlet_ring::{NewDevice, Node, RingSettings};

    use super::*;

    /// A builder whose devices are spread over so many nodes of two zones.
    fn builder(devices: u32, nodes: u32) -> Builder {
        let settings = RingSettings {
            policy: PolicyId(0),
            policy_name: "test".into(),
            redundancy: Redundancy::Replicated,
            part_power: 4,
            replicas: 3.0,
            min_part_hours: 1,
            overload: 0.0,
        };
        let mut builder = Builder::create(settings, [1; 16]).unwrap();
        for id in 0..devices {
            let node = id % nodes;
            let device = NewDevice {
                region: 1,
                zone: 1 + node % 2,
                node: Node { name: format!("n{node}"), address: format!("n{node}:6200") },
                name: format!("d{}", id / nodes),
                weight: 1.0,
                meta: String::new(),
            };
            builder.add(device).unwrap();
        }
        builder
    }

    fn ids(builder: &Builder, words: &[&str]) -> Result<Vec<u32>, String> {
        let words: Vec<String> = words.iter().map(|&word| word.to_owned()).collect();
        let found = select_all(builder, &words).map_err(|failure| failure.to_string())?;
        Ok(found.into_iter().map(|device| device.id.0).collect())
    }

    #[test]
    fn several_words_name_each_device_once_in_the_order_of_ids() {
        let builder = builder(8, 4);
        let node = builder.devices().find(|it| it.id.0 == 5).unwrap();
        let place = format!("r1z{}-{}", node.zone, node.node.name);
        let by = |words: &[&str]| ids(&builder, words).unwrap();
        assert_eq!(by(&["7", "d0", &place, "d5", "0"]), [0, 1, 5, 7]);
        assert_eq!(by(&["r1z1", "r1z2"]), by(&["r1"]));
        assert_eq!(by(&[&node.to_string()]), [5]);
        assert_eq!(by(&[]), [0; 0]);
        for word in ["d0", "7", "r1", "r1z2", &place] {
            let one = select(&builder, word).unwrap();
            assert_eq!(by(&[word]), one.iter().map(|it| it.id.0).collect::<Vec<_>>(), "{word}");
        }
    }

    #[test]
    fn the_first_word_without_a_device_is_named() {
        let refusal = ids(&builder(4, 4), &["d1", "r9", "d77"]).unwrap_err();
        assert!(refusal.contains("`r9`"), "{refusal}");
    }

    #[test]
    fn many_words_name_devices_up_to_a_bound() {
        let builder = builder(4000, 100);
        let words: Vec<String> = (0..WORDS_MAX).map(|at| format!("d{}", at % 4000)).collect();
        assert_eq!(select_all(&builder, &words).unwrap().len(), 4000);
        let more: Vec<String> = words.into_iter().chain(["d1".to_owned()]).collect();
        let refusal = select_all(&builder, &more).unwrap_err().to_string();
        assert!(refusal.contains("100001 words"), "{refusal}");
    }
}
