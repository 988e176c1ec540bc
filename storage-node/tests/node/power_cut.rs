//! After a power cut, a device has all acknowledged writes, and nothing that no write explains.

#![allow(clippy::unwrap_used, reason = "these are tests")]

mod check;
mod load;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use self::load::{Dice, History, Round, Target, WRITERS};
use crate::support::*;
use martlet_protocol::backend::{Backend, DeviceHealth, Want, WriteReply};
use martlet_protocol::{BackendExt, Clock, DeviceId, Stamp, SystemClock, Term};
use martlet_storage_node::{DeviceConfig, NodeOptions, Reserve, StorageNode};

const RESERVE: u64 = 1024 * 1024;
const IMAGE_MIB: u64 = 768;
/// Writes acknowledged in a round before its power cut.
const WRITES_MIN: u64 = 40;
/// Milliseconds of further load, and of an opening or a closing, before a cut.
const LOAD_MS: u64 = 80;
const STEP_MS: u64 = 40;

/// `MARTLET_POWER_CUT_IMAGES` (2) images, of ext4 and XFS in turns, with `MARTLET_POWER_CUTS` (4)
/// each. `MARTLET_POWER_CUT_SEED` (random) repeats the choices, though not the times of threads.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn acknowledged_writes_survive_power_cuts() {
    let number = |name: &str| std::env::var(name).ok().map(|text| text.parse::<u64>().unwrap());
    let seed = number("MARTLET_POWER_CUT_SEED").unwrap_or_else(|| SystemClock.now_ms());
    let cuts = number("MARTLET_POWER_CUTS").unwrap_or(4);
    for image in 0..number("MARTLET_POWER_CUT_IMAGES").unwrap_or(2) {
        let filesystem = if (seed + image) % 2 == 0 { Filesystem::Ext4 } else { Filesystem::Xfs };
        Box::pin(cut_power_of_an_image(filesystem, seed + image, cuts)).await;
    }
}

/// Step of a device that a power cut interrupts.
#[derive(Clone, Copy, Debug)]
enum Step {
    Load,
    Opening,
    Closing,
}

async fn cut_power_of_an_image(filesystem: Filesystem, seed: u64, cuts: u64) {
    // Extents on a file system of their own depend on their own syncs.
    let devices = 1 + seed / 2 % 2;
    eprintln!("MARTLET_POWER_CUT_SEED={seed} on {filesystem:?}, {devices} devices");
    let images: Option<Vec<Image>> =
        (0..devices).map(|_| Image::of(filesystem, "power cuts", IMAGE_MIB)).collect();
    let Some(images) = images else { return };
    let mut device = CutNode { images, names: load::names(), dice: Dice(seed), cut_ms: 0 };
    for cut in 0..cuts {
        let step = match device.dice.roll(8) {
            0 => Step::Opening,
            1 => Step::Closing,
            _ => Step::Load,
        };
        let outcome = match step {
            Step::Opening => device.cut_an_opening().await,
            Step::Load | Step::Closing => device.cut_under_load(step, cut % 8 == 0).await,
        };
        if outcome.is_none() {
            eprintln!("SKIPPED power cuts: python3 could not shut the file system down");
            return;
        }
    }
    let target = device.open();
    check::check(&target, &mut device.names, device.cut_ms).await;
    for status in target.node.devices().await.unwrap() {
        assert_eq!((status.health, status.quarantined), (DeviceHealth::Ready, 0));
    }
    eprintln!("{cuts} power cuts on {filesystem:?}");
}

/// A node whose power is cut again and again.
struct CutNode {
    /// A file system for each device.
    images: Vec<Image>,
    names: Vec<Vec<History>>,
    dice: Dice,
    /// Time before the last cut under load, in milliseconds since 1970.
    cut_ms: u64,
}

impl CutNode {
    fn configs(&self) -> Vec<DeviceConfig> {
        let config = |(number, image): (u32, &Image)| {
            let path = image.path().join("device");
            let reserve = Reserve::Bytes(RESERVE);
            DeviceConfig { reserve, ..DeviceConfig::new(DeviceId(number), path) }
        };
        (0..).zip(&self.images).map(config).collect()
    }

    fn open(&self) -> Target {
        let configs = self.configs();
        let extents_on = configs.last().unwrap().id;
        let node = Arc::new(StorageNode::open(configs, NodeOptions::default()).unwrap());
        Target { node, extents_on }
    }

    /// Cuts the power while the device opens. Nothing is acknowledged meanwhile.
    async fn cut_an_opening(&mut self) -> Option<()> {
        let configs = self.configs();
        let opening =
            tokio::task::spawn_blocking(|| StorageNode::open(configs, NodeOptions::default()));
        tokio::time::sleep(Duration::from_millis(self.dice.roll(STEP_MS))).await;
        let cut = Image::cut_all_power(&self.images);
        drop(opening.await.unwrap());
        self.mount_again();
        cut.map(|_| ())
    }

    /// Checks the device, and cuts its power under load, or while it closes after the load.
    async fn cut_under_load(&mut self, step: Step, waits: bool) -> Option<()> {
        let target = self.open();
        check::check(&target, &mut self.names, self.cut_ms).await;
        let done = Arc::new(AtomicU64::new(0));
        let round = Round::of(&mut self.dice, WRITES_MIN);
        let writers: Vec<_> = std::mem::take(&mut self.names)
            .into_iter()
            .map(|names| {
                let dice = Dice(self.dice.roll(u64::MAX));
                tokio::spawn(load::write_until_cut(
                    target.clone(),
                    done.clone(),
                    round,
                    names,
                    dice,
                ))
            })
            .collect();
        assert_eq!(writers.len() as u64, WRITERS);
        let reclaim = round.reclaims.then(|| tokio::spawn(load::reclaim_until_cut(target.clone())));
        wait_for(&done, WRITES_MIN).await;
        tokio::time::sleep(Duration::from_millis(self.dice.roll(LOAD_MS))).await;
        if matches!(step, Step::Closing) {
            let closed = target.node.clone();
            tokio::spawn(async move { closed.shutdown().await });
            tokio::time::sleep(Duration::from_millis(self.dice.roll(STEP_MS))).await;
        }
        let cut = Image::cut_all_power(&self.images);
        for writer in writers {
            self.names.push(writer.await.unwrap());
        }
        if let Some(reclaim) = reclaim {
            reclaim.await.unwrap();
        }
        let (before_ms, _) = cut?;
        self.cut_ms = before_ms;
        if waits {
            assert!(target.node.write(DEVICE, inline("after", 10)).await.is_err());
            wait_for_health(&target.node, |health| matches!(health, DeviceHealth::Offline(_)))
                .await;
        }
        drop(target);
        self.mount_again();
        Some(())
    }

    fn mount_again(&mut self) {
        for image in &mut self.images {
            image.unmount();
            assert!(image.mount(), "the file system isn't mounted again");
        }
    }
}

/// Waits until this many writes were acknowledged, for one minute at most.
async fn wait_for(done: &AtomicU64, writes: u64) {
    let began = Instant::now();
    while done.load(Ordering::Relaxed) < writes {
        assert!(began.elapsed() < Duration::from_mins(1), "{done:?} writes in a minute");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn hints_floor_votes_and_terms_survive_a_power_cut() {
    let Some(mut image) = Image::new("a power cut over hints", IMAGE_MIB) else { return };
    let root = image.path().join("device");
    let options = || NodeOptions { votes_when_new: false, ..NodeOptions::default() };
    let reopen = || StorageNode::open(vec![config(&root, RESERVE)], options()).unwrap();
    let node = reopen();
    give_fences(&node).await;
    node.set_voting(DEVICE, true).await.unwrap();
    let identity = node.devices().await.unwrap()[0].identity;
    let hints: Vec<_> = (0..200).map(|number| inline(&format!("h{number}"), 2000)).collect();
    for hint in &hints {
        assert_eq!(node.keep_hint(DEVICE, hint.clone()).await.unwrap(), WriteReply::Stored);
    }
    for hint in &hints[..100] {
        node.forget_hint(DEVICE, &hint.key, hint.entry.order).await.unwrap();
    }
    let floor = Stamp::at_ms(SystemClock.now_ms() + 1000);
    node.raise_floor(DEVICE, floor).await.unwrap();
    node.raise_term(DEVICE, Term(9)).await.unwrap();
    node.set_joined(DEVICE, 4).await.unwrap();
    if image.cut_power().is_none() {
        eprintln!("SKIPPED a power cut over hints: python3 could not shut the file system down");
        return;
    }
    assert!(node.keep_hint(DEVICE, inline("after", 10)).await.is_err());
    assert!(node.set_voting(DEVICE, false).await.is_err());
    wait_for_health(&node, |health| matches!(health, DeviceHealth::Offline(_))).await;
    drop(node);
    image.unmount();
    assert!(image.mount());
    let node = reopen();
    let status = node.devices().await.unwrap().remove(0);
    assert_eq!((status.voting, status.hints, status.identity), (true, 100, identity));
    assert_eq!((status.term, status.joined), (Term(9), 4));
    for (number, hint) in hints.iter().enumerate() {
        let view = node.read_hint(DEVICE, &hint.key, Want::EntryAndInline).await.unwrap();
        assert_eq!(view.inline, hint.inline.clone().filter(|_| number >= 100), "{number}");
    }
    assert_eq!(
        node.read(DEVICE, &key("absent"), Want::Entry, Term::ANY).await.unwrap().promise,
        floor
    );
}
