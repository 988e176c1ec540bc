//! Selection of devices by id or by place.

use martlet_ring::{Builder, Device};
use martlet_serving::Failure;

/// Returns the devices that `text` names: a device by id (`d7` or `7`), all devices of a region,
/// zone or node (`r1`, `r1z2`, `r1z2-alpha`), or one device of a node (`r1z2-alpha/sdb`). No match
/// is an error.
pub fn select(builder: &Builder, text: &str) -> Result<Vec<Device>, Failure> {
    let chosen: Vec<Device> =
        builder.devices().filter(|device| matches(device, text)).cloned().collect();
    if chosen.is_empty() {
        return Err(Failure::refused(format!(
            "no device of this ring matches `{text}`: use an id such as d7, or a place such as r1, \
             r1z2, r1z2-alpha or r1z2-alpha/sdb; `show` lists all devices"
        )));
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

/// Returns all devices that several words name, without duplicates, in the order of ids.
pub fn select_all(builder: &Builder, words: &[String]) -> Result<Vec<Device>, Failure> {
    let mut all = Vec::new();
    for word in words {
        all.extend(select(builder, word)?);
    }
    all.sort_by_key(|device| device.id);
    all.dedup_by_key(|device| device.id);
    Ok(all)
}

fn matches(device: &Device, text: &str) -> bool {
    let region = format!("r{}", device.region);
    let zone = format!("{region}z{}", device.zone);
    let node = format!("{zone}-{}", device.node.name);
    text == device.id.to_string()
        || text == device.id.0.to_string()
        || [region, zone, node].iter().any(|place| place == text)
        || text == device.to_string()
}

/// Formats devices as `d7 (r1z2-alpha/sdb)` or `12 devices (d0 to d11)`.
pub fn name(devices: &[Device]) -> String {
    match devices {
        [one] => format!("{} ({one})", one.id),
        [first, .., last] => format!("{} devices ({} to {})", devices.len(), first.id, last.id),
        [] => "no device".to_owned(),
    }
}
