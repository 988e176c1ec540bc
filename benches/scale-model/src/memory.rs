//! Memory of a storage node, by the table of `docs/SCALE.md`.

use serde::Serialize;

use crate::constants::{Constants, Name};

const MIB: f64 = 1024.0 * 1024.0;
/// Bytes of a volume file.
const VOLUME_BYTES: f64 = 4096.0 * MIB;

/// Bytes of one structure on a node.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Structure {
    pub(crate) name: &'static str,
    pub(crate) formula: &'static str,
    pub(crate) bytes: f64,
}

/// Memory of a node.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct NodeMemory {
    pub(crate) structures: Vec<Structure>,
    pub(crate) total: f64,
    /// Bytes beside this while devices open after a crash.
    pub(crate) opening: f64,
}

impl NodeMemory {
    /// Computes the memory of a node; `deletes` if a share of all blocks became free runs.
    pub(crate) fn of(constants: &Constants, devices: f64, deletes: bool) -> Self {
        let volumes = constants.get(Name::DeviceBytes) / VOLUME_BYTES;
        let extents = constants.get(Name::Extents);
        let runs =
            if deletes { extents * constants.get(Name::FreeRunShare) } else { 10.0 * volumes };
        let each = |name, formula, bytes: f64| Structure { name, formula, bytes: bytes * devices };
        let index = constants.get(Name::MemoryBytes);
        let structures = vec![
            Structure { name: "index", formula: "the setting `memory`", bytes: index },
            each("free runs", "8 × f a device", 8.0 * runs),
            each("counts of free runs", "12 MB a device", 12e6),
            each("volumes", "1 KiB × v a device", 1024.0 * volumes),
            each("extents open for readers", "5 MB a device", 5e6),
            each("open tables", "20 KiB × e / 200,000 a device", 20_480.0 * extents / 200_000.0),
            each("idle buffers", "16 MiB a device", 16.0 * MIB),
            Structure { name: "workers", formula: "60 + 64 + 64 MB", bytes: 188e6 },
        ];
        let total = structures.iter().map(|it| it.bytes).sum();
        let openings = devices.min(8.0);
        let opening = constants.get(Name::DeviceBytes) / 32_768.0 + 4.0 * MIB;
        Self { structures, total, opening: openings * opening }
    }
}

#[cfg(test)]
mod tests {
    use super::NodeMemory;
    use crate::constants::{Constants, Name};

    #[test]
    fn sixty_devices_use_the_documented_memory() {
        let constants = Constants::default();
        let beside = |deletes| {
            let memory = NodeMemory::of(&constants, 60.0, deletes);
            memory.total - constants.get(Name::MemoryBytes)
        };
        assert!((beside(true) / 15e9 - 1.0).abs() < 0.05, "{}", beside(true));
        assert!((beside(false) / 3e9 - 1.0).abs() < 0.1, "{}", beside(false));
        let opening = NodeMemory::of(&constants, 60.0, true).opening;
        assert!((opening / 8.0 / 492e6 - 1.0).abs() < 0.05, "{opening}");
    }
}
