//! This instance leads, and all that the group committed is applied: it ends the restart and serves
//! clients. From here on it is what a single instance is, but for what "durable" means.

use std::sync::{Arc, OnceLock};
use std::time::Instant;

use towline_admin::catalogue::GROUP_ACTIVE;
use towline_log::{Listener, Space};
use towline_node::Restart;
use towline_types::BatchPlace;

use super::adapters::{ActiveDoor, GroupRepairs};
use super::start::OpenReplica;
use crate::net::{AcceptedClient, Away, Here, IoThreads};
use crate::reload::Reload;
use tokio::runtime::Handle;
use towline_config::Config;
use towline_engine::{GroupView, LogContext, OpenInstance, RunningInstance};
use towline_logging::log as say;
use towline_process::Clock;
use towline_replication::driver::Driver;
use towline_replication::no_active;

/// The threads that serve clients, once there are any, and the one that turns them away.
pub(crate) struct Serving {
    threads: OnceLock<IoThreads>,
    away: IoThreads,
    driver: Arc<Driver>,
}

impl Serving {
    /// Of an instance that is not active yet.
    ///
    /// # Errors
    /// When the system has no thread for it.
    pub(crate) fn new(driver: &Arc<Driver>, clock: Clock) -> std::io::Result<Serving> {
        let asked = Arc::clone(driver);
        let why = Box::new(move || no_active::why(&asked));
        let away = IoThreads::turning_away(Away { clock, why })?;
        Ok(Serving { threads: OnceLock::new(), away, driver: Arc::clone(driver) })
    }
}

impl Here for Serving {
    async fn serve(&self, client: AcceptedClient) {
        // `Where::Here` is said when the threads are there.
        if let Some(threads) = self.threads.get() {
            threads.serve(client).await;
        }
    }

    async fn turn_away(&self, client: AcceptedClient) {
        // It ends with the process.
        self.away.serve(client).await;
    }

    fn is_hopeful(&self) -> bool {
        self.driver.group().leader.is_some()
    }
}

/// Makes this instance active.
///
/// # Errors
/// When the system has no thread for it.
pub(crate) fn open_door(
    (name, config): (&str, &Config),
    opened: &OpenReplica,
    (restart, tail): (Restart, BatchPlace),
    (serving, reload): (&Serving, &Arc<Reload>),
    (listeners, group): (Vec<String>, Arc<dyn GroupView>),
    runtime: &Handle,
) -> std::io::Result<RunningInstance> {
    let began = Instant::now();
    let driver: &Arc<Driver> = &opened.driver;
    let instance = restart.finish(tail.end);
    let context = LogContext {
        extent_bytes: opened.extent_bytes,
        restart: opened.restart.clone(),
        pages: opened.pages.clone(),
        rebuild_marker: opened.marker.clone(),
        lease: None,
    };
    let log = driver.log().clone();
    let images = Arc::clone(&opened.images);
    let open = OpenInstance::of_leader(instance, config, context, log, images, opened.clock);
    let door = Arc::clone(open.door());
    door.set_listeners(listeners);
    door.set_group(group);
    let repairs = Arc::new(GroupRepairs(Arc::clone(driver.repairs())));
    door.set_repairs(repairs);
    let threads = IoThreads::start(crate::endpoints::io_threads(config), &door)?;
    assert!(serving.threads.set(threads).is_ok(), "an instance becomes active once");
    opened.set_door(Arc::clone(&door));
    driver.set_active(Arc::new(ActiveDoor(Arc::clone(&door))));
    let mut said = Space::Ample;
    // The log says each change once, and what it said before there was a door is not said again.
    while driver.log().space() != said {
        said = driver.log().space();
        Listener::space(door.as_ref(), said);
    }
    let running = open.start(config, reload.jobs(name), runtime)?;
    let (term, took) = (tail.term.to_string(), began.elapsed().as_micros().to_string());
    say(&GROUP_ACTIVE, &[&term, &took]);
    Ok(running)
}
