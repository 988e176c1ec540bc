//! Who is told of the requests of a process: targets of events, access logs of buckets, and the
//! process's own access log.
//!
//! Their tasks begin with the door and end after the last request: then what they have taken is
//! written down.

use std::sync::Arc;

use martlet_protocol::Clock;
use martlet_proxy::ObjectStore;
use martlet_s3compat::{AccessLog, BucketLogs, Delivery, DeliveryOptions, Hearers, Outlet};
use tokio::sync::watch;
use tokio::task::JoinSet;

use super::access_log::LogFile;
use super::door::DoorSettings;
use super::events::Events;
use super::folder::DataFolder;
use super::metrics::{AskHearers, HearerFigures};
use crate::failure::Failure;

/// What buckets say of where they are.
const REGION: &str = "us-east-1";

/// Those who are told, and their tasks.
pub(crate) struct Audience {
    pub(crate) hearers: Hearers,
    figures: AskHearers,
    tasks: JoinSet<()>,
    stop: watch::Sender<bool>,
}

impl Audience {
    /// Starts their tasks.
    pub(crate) fn open(
        settings: &DoorSettings,
        folder: &DataFolder,
        store: &ObjectStore,
        clock: &Arc<dyn Clock>,
    ) -> Result<Self, Failure> {
        let mut tasks = JoinSet::new();
        let (stop, stopped) = watch::channel(false);
        let running = (&mut tasks, &stopped);
        let targets = &settings.notifications;
        let events = Events::open(targets, settings.notification_spool, folder, running)?;
        let events = Arc::new(events);
        let file = match &settings.access_log {
            None => None,
            Some(path) => {
                let (log, scribe) = LogFile::open(path).map_err(|error| {
                    let path = path.display();
                    Failure::refused(format!("the access log {path} can't be written: {error}"))
                })?;
                tasks.spawn(scribe.run(stopped.clone()));
                Some(Arc::new(log))
            }
        };
        let interval = settings.bucket_log_interval;
        let options = DeliveryOptions { interval, region: REGION.to_owned() };
        let (logs, delivery) = BucketLogs::new(store.clone(), clock.clone(), options);
        tasks.spawn(Delivery::run(delivery, stopped));
        let hearers = Hearers {
            outlet: (!targets.is_empty()).then(|| events.clone() as Arc<dyn Outlet>),
            access_log: file.clone().map(|file| file as Arc<dyn AccessLog>),
            bucket_logs: Some(logs.clone()),
        };
        let figures: AskHearers = Arc::new(move || HearerFigures {
            targets: events.figures(),
            lost_lines: file.as_ref().map_or(0, |file| file.lost()),
            lost_bucket_lines: logs.lost(),
        });
        Ok(Self { hearers, figures, tasks, stop })
    }

    /// How they fare.
    pub(crate) fn figures(&self) -> AskHearers {
        self.figures.clone()
    }

    /// Ends their tasks, once no request is under way any more.
    pub(crate) async fn stop(mut self) {
        self.stop.send_replace(true);
        while self.tasks.join_next().await.is_some() {}
    }
}
