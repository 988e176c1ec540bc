//! Signals that end `martlet top`: its terminal is restored first.

use std::sync::mpsc::SyncSender;
use std::thread;
use std::time::Duration;

use futures::future::select_all;
use martlet_serving::Failure;
use ratatui::crossterm::terminal::disable_raw_mode;
use tokio::runtime::{Builder, Runtime};
use tokio::signal::unix::{Signal, SignalKind, signal};

use super::event::Event;

/// Time after which a program that can't draw, because its terminal accepts no bytes, ends anyway.
const PATIENCE: Duration = Duration::from_secs(2);

/// Sends an event at SIGINT, SIGTERM and SIGHUP. From the return on, none of them ends the process
/// by itself.
pub(super) fn watch(events: SyncSender<Event>) -> Result<(), Failure> {
    let runtime = Builder::new_current_thread().enable_all().build()?;
    let signals = {
        let _entered = runtime.enter();
        let kinds = [SignalKind::interrupt(), SignalKind::terminate(), SignalKind::hangup()];
        kinds.into_iter().map(signal).collect::<Result<Vec<_>, _>>()?
    };
    thread::spawn(move || serve(&runtime, signals, &events));
    Ok(())
}

fn serve(runtime: &Runtime, mut signals: Vec<Signal>, events: &SyncSender<Event>) {
    runtime.block_on(async {
        select_all(signals.iter_mut().map(|signal| Box::pin(signal.recv()))).await;
        // A full queue belongs to a screen thread that hangs.
        let _ = events.try_send(Event::Stop);
        tokio::time::sleep(PATIENCE).await;
    });
    let _ = disable_raw_mode();
    std::process::exit(1);
}
