//! An instance that is open, and its start: from here on there is one way, whether it came up
//! alone, by a takeover of a shared folder, or by an election.
//!
//! Not here: how its log is read (`replay`); listeners and connections.

use std::path::PathBuf;
use std::sync::Arc;

use towline_admin::status::RestartStatus;
use towline_config::Config;
use towline_log::{Listener, Log, LogId, Pages};
use towline_node::Instance;
use towline_os::task::{Handle, JoinSet};
use towline_process::{Clock, random};
use towline_standby::{Home, Lease};
use towline_types::FORMAT_LEVEL_UNASKED;

use crate::admin_jobs::{self, AdminJobs};
use crate::administration;
use crate::door::Door;
use crate::fetcher;
use crate::housekeeping;
use crate::images::Images;
use crate::pager;
use crate::process_status::ProcessStatus;
use crate::replay::{ReplayTarget, ReplayedLog, StartOptions, replay};
use crate::settings::log_bytes_max;
use crate::slices;
use crate::start_error::StartError;
use crate::workers::{WorkQueues, Workers};

/// What a door needs to know of the log in which its instance was found.
pub struct LogContext {
    /// Bytes of an extent.
    pub extent_bytes: u64,
    /// The times of the restart.
    pub restart: RestartStatus,
    /// The page file.
    pub pages: Pages,
    /// The rebuild marker, whether or not it is there.
    pub rebuild_marker: PathBuf,
    /// The lease of a shared data folder.
    pub lease: Option<Arc<Lease>>,
}

/// An instance behind its door, whose threads do not run yet.
pub struct OpenInstance {
    door: Arc<Door>,
    images: Arc<Images>,
    queues: WorkQueues,
    /// No other program reads the log while this one runs.
    alone: bool,
}

/// An instance whose threads run. Housekeeping ends when it is dropped.
pub struct RunningInstance {
    door: Arc<Door>,
    images: Arc<Images>,
    housekeeping: JoinSet<()>,
}

impl OpenInstance {
    /// Opens the log of `home` and restarts the queue manager `name` from it.
    ///
    /// # Errors
    /// When the folder, the log or its content cannot be used; nothing is changed then.
    pub fn open(
        name: &str,
        home: &Home,
        config: &Config,
        start: StartOptions,
        clock: Clock,
    ) -> Result<OpenInstance, StartError> {
        let new_id = LogId(u128::from_le_bytes(random::bytes()));
        let target = ReplayTarget { new_id, known: None };
        let ReplayedLog { restart, recovery, pages, status, marker, tail, disk, .. } =
            replay(name, home, config, start, target)?;
        let context = LogContext {
            extent_bytes: recovery.extent_bytes(),
            restart: status,
            pages: pages.clone(),
            rebuild_marker: marker.clone(),
            lease: home.lease().cloned(),
        };
        let (door, queues) = make_door(restart.finish(tail), config, context, clock);
        let listener: Arc<dyn Listener> = door.clone();
        let log = recovery.start(listener).map_err(StartError::Log)?;
        door.set_log(log.clone());
        let images = Images::open(disk, log.durable(), pages);
        images.end_rebuild(marker, door.as_ref());
        Ok(OpenInstance { door, images, queues, alone: true })
    }

    /// The instance of a group that was elected: its log runs, and it has applied all of it.
    #[must_use]
    pub fn of_leader(
        instance: Instance,
        config: &Config,
        context: LogContext,
        log: Log,
        images: Arc<Images>,
        clock: Clock,
    ) -> OpenInstance {
        let (door, queues) = make_door(instance, config, context, clock);
        door.set_log(log);
        OpenInstance { door, images, queues, alone: false }
    }

    /// The door of the instance.
    #[must_use]
    pub fn door(&self) -> &Arc<Door> {
        &self.door
    }

    #[cfg(test)]
    pub(crate) fn images(&self) -> &Arc<Images> {
        &self.images
    }

    /// Starts all that an instance needs to serve clients: the threads that read bodies and pages,
    /// administration jobs, and housekeeping on `runtime`. Raises the format level, unless others
    /// read the log too; defines the objects of a new queue manager and requests the first pages.
    ///
    /// # Errors
    /// The operating system refused a thread.
    pub fn start(
        self,
        config: &Config,
        jobs: AdminJobs,
        runtime: &Handle,
    ) -> std::io::Result<RunningInstance> {
        let OpenInstance { door, images, queues, alone } = self;
        let WorkQueues { fetches, page_work, admin_jobs, scripts, statuses, slices: work } = queues;
        fetcher::start(fetches, Arc::clone(&door))?;
        slices::start(work, Arc::clone(&door))?;
        pager::start(page_work, Arc::clone(&door), images.pages().clone())?;
        admin_jobs::start(admin_jobs, &door, &images, jobs)?;
        administration::start_scripts(scripts, &door)?;
        administration::start_status(statuses, &door)?;
        // If there is no space for it now, the next start does it.
        if alone {
            door.raise_format_level(FORMAT_LEVEL_UNASKED);
        }
        door.define_defaults();
        door.load_first_pages();
        let housekeeping = housekeeping::start(&door, &images, config, runtime);
        Ok(RunningInstance { door, images, housekeeping })
    }
}

impl RunningInstance {
    /// The door of the instance.
    #[must_use]
    pub fn door(&self) -> &Arc<Door> {
        &self.door
    }

    /// Takes the images of the instance.
    #[must_use]
    pub fn images(&self) -> &Arc<Images> {
        &self.images
    }

    /// Ends housekeeping: expiry, images and reclaim.
    pub fn stop_housekeeping(&mut self) {
        self.housekeeping.abort_all();
    }
}

fn make_door(
    instance: Instance,
    config: &Config,
    context: LogContext,
    clock: Clock,
) -> (Arc<Door>, WorkQueues) {
    let LogContext { extent_bytes, restart, pages, rebuild_marker, lease } = context;
    let (workers, queues) = Workers::new(&rebuild_marker);
    let process = ProcessStatus {
        cache_bytes_max: config.log.cache_bytes,
        log_bytes_nearly_max: log_bytes_max(config).saturating_sub(2 * extent_bytes),
        restart,
        lease,
        ..ProcessStatus::new(clock, pages)
    };
    (Arc::new(Door::new(instance, workers, process, clock)), queues)
}

#[cfg(test)]
mod tests;
