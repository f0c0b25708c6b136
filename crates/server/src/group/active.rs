//! This instance leads, and all that the group committed is applied: it ends the restart and serves
//! clients. From here on it is what a single instance is, but for what "durable" means.

use std::sync::{Arc, OnceLock};
use std::time::Instant;

use towline_admin::catalogue::GROUP_ACTIVE;
use towline_log::{Listener, Space};
use towline_node::{Farewell, Restart};
use towline_types::{BatchPlace, Lsn};

use super::start::Opened;
use crate::clock::Clock;
use crate::door::{Door, GroupView};
use crate::net::{Accepted, Away, Here, IoThreads};
use crate::reload::Reload;
use crate::start::Made;
use crate::{clerk, fetcher, pager};
use towline_config::Config;
use towline_logging::log as say;
use towline_replication::active_instance::ActiveInstance;
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
    async fn serve(&self, client: Accepted) {
        // `Where::Here` is said when the threads are there.
        if let Some(threads) = self.threads.get() {
            threads.serve(client).await;
        }
    }

    async fn turn_away(&self, client: Accepted) {
        // It ends with the process.
        self.away.serve(client).await;
    }

    fn is_hopeful(&self) -> bool {
        self.driver.group().leader.is_some()
    }
}

impl ActiveInstance for Door {
    fn committed(&self, upto: Lsn) {
        self.durable(upto);
    }

    fn space(&self, space: Space) {
        Listener::space(self, space);
    }

    fn close_clients(&self) {
        self.end(Farewell::HandsOver);
    }

    fn runs_pending(&self) -> usize {
        self.look(|instance| instance.runs_pending())
    }

    fn hold_still(&self, act: &mut dyn FnMut() -> bool) -> bool {
        Door::hold_still(self, act)
    }
}

/// Makes this instance active.
///
/// # Errors
/// When the system has no thread for it.
pub(crate) fn open_door(
    (name, config): (&str, &Config),
    opened: &Opened,
    (restart, tail): (Restart, BatchPlace),
    (serving, reload): (&Serving, &Arc<Reload>),
    (listeners, group): (Vec<String>, Arc<dyn GroupView>),
) -> std::io::Result<Arc<Door>> {
    let began = Instant::now();
    let driver: &Arc<Driver> = &opened.driver;
    let instance = restart.finish(tail.end);
    let about = (config, opened.extent_bytes, opened.restart.clone());
    let files = (&opened.pages, opened.marker.as_path(), None);
    let made = Door::make(instance, about, files, opened.clock);
    let Made { door, fetches, page_requests, chores } = made;
    door.set_log(driver.log().clone());
    door.set_listeners(listeners);
    door.set_group(group);
    door.set_repairs(Arc::clone(driver.repairs()));
    fetcher::start(fetches, Arc::clone(&door))?;
    pager::start(page_requests, Arc::clone(&door), opened.pages.clone())?;
    clerk::start(name, chores, &door, (&opened.images, reload))?;
    let threads = IoThreads::start(crate::run::io_threads(config), &door)?;
    assert!(serving.threads.set(threads).is_ok(), "an instance becomes active once");
    opened.set_door(Arc::clone(&door));
    driver.set_active(door.clone());
    let mut said = Space::Ample;
    // The log says each change once, and what it said before there was a door is not said again.
    while driver.log().space() != said {
        said = driver.log().space();
        Listener::space(door.as_ref(), said);
    }
    door.define_defaults();
    door.load_first_pages();
    let (term, took) = (tail.term.to_string(), began.elapsed().as_micros().to_string());
    say(&GROUP_ACTIVE, &[&term, &took]);
    Ok(door)
}
