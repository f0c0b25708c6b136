//! This instance leads, and all that the group committed is applied: it ends the restart and opens
//! its door. From here on it is what a single instance is, but for what "durable" means.
//!
//! Not here: the threads that serve clients, which start between [`ElectedInstance::of`] and
//! [`ElectedInstance::serve`].

use std::sync::Arc;
use std::time::Duration;

use towline_admin::catalogue::GROUP_ACTIVE;
use towline_config::{Config, RecoveryConfig};
use towline_engine::{AdminJobs, Door, GroupView, LogContext, OpenInstance, RunningInstance};
use towline_log::{Listener, Space};
use towline_logging::log as say;
use towline_node::Restart;
use towline_os::task::Handle;
use towline_os::time::Instant;
use towline_replication::driver::Driver;
use towline_types::BatchPlace;

use crate::adapters::{ActiveDoor, GroupRepairs};
use crate::open::OpenReplica;
use crate::promotion;

/// An instance that was elected; its door is made and not open yet.
pub struct ElectedInstance<'a> {
    opened: &'a OpenReplica,
    open: OpenInstance,
    term: u64,
    began: Instant,
}

impl<'a> ElectedInstance<'a> {
    /// Ends the restart.
    #[must_use]
    pub fn of(
        config: &Config,
        opened: &'a OpenReplica,
        (restart, tail): (Restart, BatchPlace),
        (listeners, group): (Vec<String>, Arc<dyn GroupView>),
    ) -> ElectedInstance<'a> {
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
        let door = open.door();
        let recovery = config.group.as_ref().and_then(|group| group.recovery.as_ref());
        if recovery.is_some_and(RecoveryConfig::replies_wait) {
            // Before the first client: what ships says later up to where they may go.
            door.wait_for_region();
        }
        door.set_listeners(listeners);
        door.set_group(group);
        door.set_repairs(Arc::new(GroupRepairs(Arc::clone(driver.repairs()))));
        ElectedInstance { opened, open, term: tail.term, began }
    }

    /// Its door.
    #[must_use]
    pub fn door(&self) -> &Arc<Door> {
        self.open.door()
    }

    /// Opens the door.
    ///
    /// # Errors
    /// When the system has no thread for it.
    pub fn serve(
        self,
        config: &Config,
        jobs: AdminJobs,
        runtime: &Handle,
    ) -> std::io::Result<RunningInstance> {
        let ElectedInstance { opened, open, term, began } = self;
        let (driver, door) = (&opened.driver, Arc::clone(open.door()));
        opened.set_door(Arc::clone(&door));
        driver.set_active(Arc::new(ActiveDoor(Arc::clone(&door))));
        promotion::begin_if_marked(opened, &door, config);
        let recovery = config.group.as_ref().and_then(|group| group.recovery.as_ref());
        let has_other = recovery.is_some_and(|other| other.enabled) && driver.has_region();
        if has_other && driver.has_no_content() {
            // The log may be lost and not new: the other region knows.
            driver.lets_clients_in_when_heard();
        } else {
            driver.lets_clients_in();
        }
        let mut said = Space::Ample;
        // The log says each change once, and what it said before there was a door is not said
        // again.
        while driver.log().space() != said {
            said = driver.log().space();
            Listener::space(door.as_ref(), said);
        }
        let running = open.start(config, jobs, runtime)?;
        let took: Duration = began.elapsed();
        say(&GROUP_ACTIVE, &[&term.to_string(), &took.as_micros().to_string()]);
        Ok(running)
    }
}
