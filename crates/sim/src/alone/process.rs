//! One process of a queue manager that is no group: what the daemon is, without sockets and
//! signals. It gets the right to use the data folder, opens it, serves, and ends in order.
//!
//! Not here: anything of that itself: it is the product's code (`towline_engine`,
//! `towline_standby`).

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex as Plain;
use towline_config::Config;
use towline_engine::{AdminJobs, BackupFolders, Door, OpenInstance, StartOptions, settings};
use towline_node::Farewell;
use towline_os::process::exit;
use towline_os::task::{Handle, sleep};
use towline_process::{Clock, folder};
use towline_standby::{Entry, EntryError, Home};

use crate::served::look;

/// How long it waits for what was decided to be durable, as the daemon does.
const ANSWERS_MAX: Duration = Duration::from_secs(1);

/// What a process is given.
pub(super) struct AloneArgs {
    pub(super) data: PathBuf,
    pub(super) config: Config,
    /// The name of the process; `None`: the folder is not shared.
    pub(super) shared_name: Option<String>,
    /// Of a process alone: its number.
    pub(super) number: u64,
    pub(super) queues: Vec<String>,
    pub(super) board: Arc<AloneBoard>,
}

/// What a process shows to the run.
#[derive(Default)]
pub(super) struct AloneBoard {
    /// The door and its epoch.
    pub(super) served: Plain<Option<(Arc<Door>, u64)>>,
    pub(super) end: Plain<Option<ProcessVerdict>>,
    /// It stands by for another one.
    pub(super) stands_by: Plain<bool>,
    /// An end in order is wanted.
    pub(super) stop: tokio::sync::Notify,
}

impl AloneBoard {
    /// Ends the process.
    pub(super) fn ends(&self, served: Result<ProcessVerdict, String>) {
        *self.end.lock() = Some(served.unwrap_or_else(ProcessVerdict::Refused));
        exit(0);
    }
}

/// How a process ended by itself.
#[derive(Clone, Debug)]
pub(super) enum ProcessVerdict {
    /// The start was refused.
    Refused(String),
    Stopped,
}

/// Runs a process to its end.
pub(super) fn run(args: &AloneArgs) {
    args.board.ends(serve(args));
}

fn serve(args: &AloneArgs) -> Result<ProcessVerdict, String> {
    let AloneArgs { data, board, queues, .. } = args;
    let clock = Clock::start();
    folder::make(data).map_err(|error| error.to_string())?;
    let mut config = args.config.clone();
    let home = enter(args, &mut config)?;
    let open = OpenInstance::open("QMS", &home, &config, StartOptions::default(), clock);
    let open = open.map_err(|error| error.to_string())?;
    home.settle();
    let handle = Handle::current();
    let mut running = open.start(&config, jobs(), &handle).map_err(|error| error.to_string())?;
    let door = Arc::clone(running.door());
    look::define(&door, queues);
    let epoch = home.lease().map_or(args.number, |lease| lease.status().epoch);
    *board.served.lock() = Some((Arc::clone(&door), epoch));
    handle.block_on(board.stop.notified());
    until_applied(&door);
    running.stop_housekeeping();
    // The next start reads a longer tail without it.
    drop(running.images().take_last(door.as_ref()));
    door.log().shutdown();
    home.leave();
    Ok(ProcessVerdict::Stopped)
}

/// No new work is begun, what was decided is answered, and all clients get their close.
pub(super) fn until_applied(door: &Door) {
    let handle = Handle::current();
    door.quiesce();
    let clock = door.clock();
    let deadline = clock.now() + ANSWERS_MAX;
    while door.look(|instance| instance.runs_pending()) > 0 && clock.now() < deadline {
        handle.block_on(sleep(Duration::from_millis(5)));
    }
    door.end(Farewell::Ending);
}

/// What the daemon gives to administration jobs.
pub(super) fn jobs() -> AdminJobs {
    AdminJobs { name: "QMS".into(), backup_folders: Arc::new(BackupFolders::default()) }
}

fn enter(args: &AloneArgs, config: &mut Config) -> Result<Home, String> {
    let data: &Path = &args.data;
    let Some(name) = &args.shared_name else { return Ok(Home::single(data)) };
    let window_bytes = settings::options(config).stray_bytes();
    config.log.reserve_bytes = towline_standby::reserve_bytes(&config.log, window_bytes);
    let entry = Entry {
        name: "QMS",
        process: name,
        data,
        shared: &config.shared,
        stands_by: true,
        window_bytes,
        report: &|step| {
            *args.board.stands_by.lock() = matches!(step, towline_standby::EntryStep::StandsBy(_));
        },
    };
    entry.enter().map_err(|error| match error {
        EntryError::Folder(error) => error.to_string(),
        EntryError::Thread(error) => error.to_string(),
        EntryError::InUse { holder } => format!("{holder} is active"),
    })
}
