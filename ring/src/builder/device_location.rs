//! Text form of devices: `r1z2-alpha@10.0.0.5:6200/sdb`.

use std::str::FromStr;

use super::edit::NewDevice;
use crate::device::Node;
use crate::error::{Error, Result};

/// Location of a device in one word: region, zone, node, address, device.
///
/// The address may be omitted if it is also the node's name: `r1z2-10.0.0.5:6200/sdb`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeviceLocation {
    /// Region of the device.
    pub region: u32,
    /// Zone within the region.
    pub zone: u32,
    /// Node within the zone.
    pub node: Node,
    /// Name of the device on its node.
    pub name: String,
}

impl DeviceLocation {
    /// Returns a new device at this location.
    pub fn with(self, weight: f64, meta: impl Into<String>) -> NewDevice {
        let Self { region, zone, node, name } = self;
        NewDevice { region, zone, node, name, weight, meta: meta.into() }
    }
}

impl FromStr for DeviceLocation {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        read(text).ok_or_else(|| {
            Error::invalid(format!(
                "`{text}` is not a device: write region, zone, node, address and device name like \
                 r1z2-alpha@10.0.0.5:6200/sdb"
            ))
        })
    }
}

fn read(text: &str) -> Option<DeviceLocation> {
    let (domains, rest) = text.split_once('-')?;
    let (region, zone) = domains.strip_prefix('r')?.split_once('z')?;
    let (node, name) = rest.split_once('/')?;
    let (node_name, address) = node.split_once('@').unwrap_or((node, node));
    let (host, port) = address.rsplit_once(':')?;
    port.parse::<u16>().ok()?;
    if host.is_empty() || node_name.is_empty() || name.is_empty() || name.contains('/') {
        return None;
    }
    Some(DeviceLocation {
        region: region.parse().ok()?,
        zone: zone.parse().ok()?,
        node: Node { name: node_name.to_owned(), address: address.to_owned() },
        name: name.to_owned(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_reads_as_it_is_written() {
        let place: DeviceLocation = "r1z2-alpha@[fd00::5]:6200/sdb".parse().unwrap();
        assert_eq!((place.region, place.zone, place.name.as_str()), (1, 2, "sdb"));
        assert_eq!(
            (place.node.name.as_str(), place.node.address.as_str()),
            ("alpha", "[fd00::5]:6200")
        );
        let short: DeviceLocation = "r1z2-10.0.0.5:6200/sdb".parse().unwrap();
        assert_eq!(short.node.name, "10.0.0.5:6200");
        // A hyphen in the rest belongs to the node's name.
        let hyphen: DeviceLocation = "r1z2-rack-7@h:1/sdb".parse().unwrap();
        assert_eq!(hyphen.node.name, "rack-7");
    }

    #[test]
    fn invalid_device_locations_are_refused_with_an_example() {
        for text in [
            "",
            "r1z2",
            "z2-a@h:1/sdb",
            "r1z2-a/sdb",
            "r1z2-a@h:1",
            "r1z2-a@h:x/sdb",
            "r-1z2-a@h:1/sdb",
            "r1z2-a@h:1/x/y",
        ] {
            let error = text.parse::<DeviceLocation>().unwrap_err();
            assert!(error.to_string().contains("r1z2-alpha@10.0.0.5:6200/sdb"), "{text}: {error}");
        }
    }
}
