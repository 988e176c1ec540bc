//! Who is told of what a process does: targets of events, access logs of buckets, and the process's own
//! access log.
//!
//! Their tasks begin with the door and the workers, and end after the last request and the last deed:
//! then what they have taken is written down.

use std::sync::Arc;

use martlet_protocol::Clock;
use martlet_protocol::lifecycle::ObjectExpiry;
use martlet_proxy::{ObjectStore, WitnessedExpiry};
use martlet_s3compat::auth::UNNAMED_REGION;
use martlet_s3compat::{
    AccessLog, BucketLogs, Delivery, DeliveryOptions, ExpiryEvents, Hearers, Outlet,
};
use tokio::sync::watch;
use tokio::task::JoinSet;

use super::access_log::LogFile;
use super::door::DoorSettings;
use super::events::{EventSettings, Events, Running};
use super::folder::DataFolder;
use super::metrics::{AskHearers, HearerFigures};
use crate::failure::Failure;

/// Those who are told, and their tasks.
pub(crate) struct Audience {
    /// Those of requests.
    pub(crate) hearers: Hearers,
    events: Arc<Events>,
    clock: Arc<dyn Clock>,
    figures: AskHearers,
    tasks: JoinSet<()>,
    stop: watch::Sender<bool>,
}

impl Audience {
    /// Starts their tasks where S3 clients ask.
    pub(crate) fn open(
        door: &DoorSettings,
        events: &EventSettings,
        folder: &DataFolder,
        store: &ObjectStore,
        clock: &Arc<dyn Clock>,
    ) -> Result<Self, Failure> {
        let mut audience = Self::of_rules(events, folder, clock)?;
        let stopped = audience.stop.subscribe();
        let tasks = &mut audience.tasks;
        let file = match &door.access_log {
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
        let interval = door.bucket_log_interval;
        let options = DeliveryOptions { interval, region: UNNAMED_REGION.to_owned() };
        let (logs, delivery) = BucketLogs::new(store.clone(), clock.clone(), options);
        tasks.spawn(Delivery::run(delivery, stopped));
        let has_targets = !events.notifications.is_empty();
        let events = audience.events.clone();
        audience.hearers = Hearers {
            outlet: has_targets.then(|| events.clone() as Arc<dyn Outlet>),
            access_log: file.clone().map(|file| file as Arc<dyn AccessLog>),
            bucket_logs: Some(logs.clone()),
        };
        audience.figures = Arc::new(move || HearerFigures {
            targets: events.figures(),
            lost_lines: file.as_ref().map_or(0, |file| file.lost()),
            lost_bucket_lines: logs.lost(),
        });
        Ok(audience)
    }

    /// Starts the tasks of those who hear of what rules do, where nobody asks.
    pub(crate) fn of_rules(
        settings: &EventSettings,
        folder: &DataFolder,
        clock: &Arc<dyn Clock>,
    ) -> Result<Self, Failure> {
        let mut tasks = JoinSet::new();
        let (stop, stopped) = watch::channel(false);
        let mut running = Running { tasks: &mut tasks, stopped: &stopped };
        let events = Arc::new(Events::open(settings, folder, &mut running)?);
        let told = events.clone();
        let figures: AskHearers =
            Arc::new(move || HearerFigures { targets: told.figures(), ..HearerFigures::default() });
        let (hearers, clock) = (Hearers::default(), clock.clone());
        Ok(Self { hearers, events, clock, figures, tasks, stop })
    }

    /// What carries the rules of buckets out in `store`, and tells of it.
    pub(crate) fn expiry(&self, store: ObjectStore) -> Arc<dyn ObjectExpiry> {
        let events = ExpiryEvents::new(self.events.clone(), self.clock.clone());
        Arc::new(WitnessedExpiry::new(store, Arc::new(events)))
    }

    /// How they fare.
    pub(crate) fn figures(&self) -> AskHearers {
        self.figures.clone()
    }

    /// Ends their tasks, once no request and no worker is under way any more.
    pub(crate) async fn stop(mut self) {
        self.stop.send_replace(true);
        while self.tasks.join_next().await.is_some() {}
    }
}
