//! Observers of requests and of lifecycle rules: targets of events, access logs of buckets, and the
//! process's own access log.
//!
//! Their tasks start with the S3 port and the workers. They end after the last request and the last
//! expiration, when all accepted messages are written.

use std::sync::Arc;

use martlet_notifications::{
    EventSettings, Events, LogFile, ObserverFigures, ObserverSource, TaskSet,
};
use martlet_protocol::Clock;
use martlet_protocol::lifecycle::ObjectExpiry;
use martlet_proxy::{ObjectStore, WitnessedExpiry};
use martlet_s3compat::auth::UNNAMED_REGION;
use martlet_s3compat::{
    AccessLog, BucketLogs, Delivery, DeliveryOptions, EventSink, ExpiryEvents, Observers,
};
use martlet_serving::Failure;
use martlet_serving::folder::DataFolder;
use tokio::sync::watch;
use tokio::task::JoinSet;

use super::s3_port::S3Settings;

/// Observers of a process, with their tasks.
pub(crate) struct ObserverTasks {
    /// Observers of requests.
    pub(crate) requests: Observers,
    events: Arc<Events>,
    clock: Arc<dyn Clock>,
    figures: ObserverSource,
    tasks: JoinSet<()>,
    stop: watch::Sender<bool>,
}

impl ObserverTasks {
    /// Starts the observers of a process with an S3 port.
    pub(crate) fn open(
        s3: &S3Settings,
        events: &EventSettings,
        folder: &DataFolder,
        store: &ObjectStore,
        clock: &Arc<dyn Clock>,
    ) -> Result<Self, Failure> {
        let mut observers = Self::of_rules(events, folder, clock)?;
        let stopped = observers.stop.subscribe();
        let tasks = &mut observers.tasks;
        let file = match &s3.access_log {
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
        let interval = s3.bucket_log_interval;
        let options = DeliveryOptions { interval, region: UNNAMED_REGION.to_owned() };
        let (logs, delivery) = BucketLogs::new(store.clone(), clock.clone(), options);
        tasks.spawn(Delivery::run(delivery, stopped));
        let has_targets = events.has_targets();
        let events = observers.events.clone();
        observers.requests = Observers {
            sink: has_targets.then(|| events.clone() as Arc<dyn EventSink>),
            access_log: file.clone().map(|file| file as Arc<dyn AccessLog>),
            bucket_logs: Some(logs.clone()),
        };
        observers.figures = Arc::new(move || ObserverFigures {
            targets: events.figures(),
            lost_lines: file.as_ref().map_or(0, |file| file.lost()),
            lost_bucket_lines: logs.lost(),
        });
        Ok(observers)
    }

    /// Starts the observers of a process without an S3 port: events of lifecycle rules only.
    pub(crate) fn of_rules(
        settings: &EventSettings,
        folder: &DataFolder,
        clock: &Arc<dyn Clock>,
    ) -> Result<Self, Failure> {
        let mut tasks = JoinSet::new();
        let (stop, stopped) = watch::channel(false);
        let mut running = TaskSet { tasks: &mut tasks, stopped: &stopped };
        let events = Arc::new(Events::open(settings, folder, &mut running)?);
        let counted = events.clone();
        let figures: ObserverSource = Arc::new(move || ObserverFigures {
            targets: counted.figures(),
            ..ObserverFigures::default()
        });
        let (requests, clock) = (Observers::default(), clock.clone());
        Ok(Self { requests, events, clock, figures, tasks, stop })
    }

    /// Returns the object expiry that applies lifecycle rules in `store` and emits their events.
    pub(crate) fn expiry(&self, store: ObjectStore) -> Arc<dyn ObjectExpiry> {
        let events = ExpiryEvents::new(self.events.clone(), self.clock.clone());
        Arc::new(WitnessedExpiry::new(store, Arc::new(events)))
    }

    /// Returns the source of the observers' metrics.
    pub(crate) fn figures(&self) -> ObserverSource {
        self.figures.clone()
    }

    /// Stops the tasks. Must be called after the last request and the last worker have ended.
    pub(crate) async fn stop(mut self) {
        self.stop.send_replace(true);
        while self.tasks.join_next().await.is_some() {}
    }
}
