//! The threads of an instance of a group: those that it has from its start on, and the tasks that
//! it has while it is active.
//!
//! Not here: those of its connections (`towline_link`) and of its clients.

use std::path::Path;
use std::sync::Arc;

use towline_admin::catalogue::GROUP_COPY_FAILED;
use towline_config::{Config, GroupConfig};
use towline_engine::housekeeping::{self, ImagePolicy};
use towline_link::Peer;
use towline_log::Stats;
use towline_logging::log as say;
use towline_node::Restart;
use towline_os::task::JoinSet;
use towline_os::thread::Builder;
use towline_replication::{copy, disk_watch, membership, repair, retention_watch, ticker};
use towline_types::BatchPlace;

use crate::open::OpenReplica;

/// Starts the threads of a replica. `on_elected` gets the restart that is to be ended, on the
/// thread that applies, when this instance leads and has applied all that it leads from.
///
/// # Errors
/// The system refused a thread.
pub fn start(
    opened: &Arc<OpenReplica>,
    (config, group): (&Config, &GroupConfig),
    on_elected: impl FnOnce(Restart, BatchPlace) + Send + 'static,
) -> std::io::Result<()> {
    let spawn = |name: &str, body: Box<dyn FnOnce() + Send>| {
        Builder::new().name(name.to_owned()).spawn(body).map(drop)
    };
    let (driver, tick) = (Arc::clone(&opened.driver), membership::tick(group));
    spawn("group-tick", Box::new(move || ticker::keep_time(&driver, tick)))?;
    let (driver, longest) = (Arc::clone(&opened.driver), group.heartbeat_timeout());
    spawn("group-disk", Box::new(move || disk_watch::watch(&driver, longest)))?;
    let of_fetches = Arc::clone(opened);
    spawn(
        "group-read",
        Box::new(move || {
            let orders = of_fetches.fetches.lock().take();
            if let Some(orders) = orders {
                repair::serve_fetches(&of_fetches.driver, orders);
            }
        }),
    )?;
    let of_repairs = Arc::clone(&opened.driver);
    spawn("group-repair", Box::new(move || repair::serve(&of_repairs)))?;
    let house = Arc::clone(opened);
    let policy = ImagePolicy::of(config, opened.extent_bytes);
    spawn("group-house", Box::new(move || house.replica.keep_house(&house.images, policy)))?;
    let applies = Arc::clone(opened);
    spawn(
        "group-apply",
        Box::new(move || {
            if let Some((restart, tail)) = applies.replica.apply() {
                on_elected(restart, tail);
            }
        }),
    )
}

/// Starts the tasks of an active instance that its part in the group needs.
pub fn serve_as_active(tasks: &mut JoinSet<()>, config: &Config, opened: &Arc<OpenReplica>) {
    if config.group.as_ref().is_none_or(|group| group.recovery.is_none()) {
        watch_retention(tasks, config, opened);
    }
    tasks.spawn(ticker::note_committed(Arc::clone(&opened.driver)));
}

/// Starts the tasks of an instance with another region, from its start on: whatever its
/// part is now, the live group may ship to it one day, and then it gives the others what they lack.
pub fn serve_beside_region(tasks: &mut JoinSet<()>, config: &Config, opened: &Arc<OpenReplica>) {
    watch_retention(tasks, config, opened);
}

fn watch_retention(tasks: &mut JoinSet<()>, config: &Config, opened: &Arc<OpenReplica>) {
    let reserve_bytes = config.log.reserve_bytes;
    let percent_full =
        move |stats: &Stats| housekeeping::percent_full(stats.bytes_in_use, stats, reserve_bytes);
    let of_images = Arc::clone(opened);
    let reclaim = move || match of_images.door() {
        Some(door) => of_images.images.reclaim(door.as_ref()),
        None => of_images.images.reclaim(of_images.replica.as_ref()),
    };
    tasks.spawn(retention_watch::watch(Arc::clone(&opened.driver), percent_full, reclaim));
}

/// Gets a full copy on a thread of its own, once; `done` hears whether it came. This instance takes
/// part in the group until then.
pub fn start_copy(
    opened: &Arc<OpenReplica>,
    data: &Path,
    peer: Peer,
    done: impl Fn(bool) + Clone + Send + 'static,
) {
    let (opened, data, at_end) = (Arc::clone(opened), data.to_owned(), done.clone());
    let started = Builder::new().name("copy".into()).spawn(move || {
        let drawn = u64::from_le_bytes(towline_process::random::bytes());
        let taken = copy::take(&opened.driver, &data, peer, drawn);
        if let Err(why) = &taken {
            let name = opened.driver.name(peer);
            say(&GROUP_COPY_FAILED, &[name, why]);
        }
        at_end(taken.is_ok());
    });
    if let Err(error) = started {
        say(&GROUP_COPY_FAILED, &["", &error.to_string()]);
        done(false);
    }
}
