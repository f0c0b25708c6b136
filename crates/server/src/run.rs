//! `towline run`: start, serve, end.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use tokio::signal::unix::{SignalKind, signal};
use tokio::task::JoinSet;

use crate::clock::Clock;
use crate::config::{AutoDefineConfig, Config, ConfigError, ListenerConfig};
use crate::door::Door;
use crate::identity::Doorman;
use crate::net::{Admission, IoThreads, ListenerKind, Listening, bind, server_settings};
use crate::start::StartError;
use crate::users::Users;
use crate::{defaults, fetcher, housekeeping, logging, start};

/// How long a quiescing queue manager waits for open units of work.
const QUIESCE_MAX: Duration = Duration::from_secs(10);
/// How long it waits for connections to close after it told them to.
const GOODBYE_MAX: Duration = Duration::from_secs(2);

/// What `towline run` was told.
#[derive(Clone, Debug)]
pub struct RunArgs {
    /// The queue manager's name.
    pub name: String,
    /// Its data folder, made when it is not there.
    pub data: PathBuf,
    /// Where clients come in when the configuration names no listener.
    pub listen: SocketAddr,
    /// The configuration file.
    pub config: Option<PathBuf>,
    /// Names of queues that are defined on first use in this run.
    pub auto_define: Option<String>,
    /// Added to each sync of the log, for experiments.
    pub log_sync_delay: Duration,
}

/// Why the queue manager did not run.
#[derive(Debug)]
pub enum RunError {
    /// The configuration was refused.
    Config(ConfigError),
    /// Something that the configuration names cannot be used.
    Settings(String),
    /// The data folder cannot be started from.
    Start {
        /// Which.
        data: PathBuf,
        /// Why.
        error: StartError,
    },
    /// An address cannot be listened on.
    Listen {
        /// Which.
        address: String,
        /// Why.
        error: std::io::Error,
    },
    /// The operating system refused a thread or a signal handler.
    System(std::io::Error),
}

impl std::fmt::Display for RunError {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            RunError::Config(error) => write!(out, "configuration: {error}"),
            RunError::Settings(why) => write!(out, "configuration: {why}"),
            RunError::Start { data, error } => {
                write!(out, "cannot start from {}: {error}", data.display())
            }
            RunError::Listen { address, error } => {
                write!(out, "cannot listen on {address}: {error}")
            }
            RunError::System(error) => write!(out, "{error}"),
        }
    }
}

impl std::error::Error for RunError {}

/// Runs a queue manager until it is told to end (SIGTERM or SIGINT: quiesce; twice: at once).
///
/// # Errors
/// When it cannot start; see [`RunError`].
pub fn run(args: &RunArgs) -> Result<(), RunError> {
    let clock = Clock::start();
    logging::start();
    let mut config = match &args.config {
        Some(path) => Config::read(path).map_err(RunError::Config)?,
        None => Config::default(),
    };
    if let Some(pattern) = &args.auto_define {
        let model = defaults::DEFAULT_LOCAL_MODEL.to_owned();
        config.auto_define.push(AutoDefineConfig { pattern: pattern.clone(), model });
    }
    if config.listener.is_empty() {
        let listener = ListenerConfig::plain(args.listen);
        listener.check().map_err(RunError::Settings)?;
        config.listener.push(listener);
    }
    let users = Arc::new(Users::read(&config.users).map_err(RunError::Settings)?);
    let (door, fetches) = start::open(&args.name, &args.data, &config, args.log_sync_delay, clock)
        .map_err(|error| RunError::Start { data: args.data.clone(), error })?;
    fetcher::start(fetches, Arc::clone(&door)).map_err(RunError::System)?;
    door.define_defaults();
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .max_blocking_threads(2)
        .build()
        .map_err(RunError::System)?;
    let served = runtime.block_on(serve(args, &config, &users, &door));
    door.log().shutdown();
    served?;
    tracing::info!(id = "TWL7021I", "the queue manager has ended");
    Ok(())
}

async fn serve(
    args: &RunArgs,
    config: &Config,
    users: &Arc<Users>,
    door: &Arc<Door>,
) -> Result<(), RunError> {
    let mut terminate = signal(SignalKind::terminate()).map_err(RunError::System)?;
    let mut interrupt = signal(SignalKind::interrupt()).map_err(RunError::System)?;
    let io = IoThreads::start(io_threads(config), door).map_err(RunError::System)?;
    let io = Arc::new(io);
    let admission = Admission::new(config.limits.clone());
    let mut accepting = JoinSet::new();
    let mut addresses = Vec::new();
    for listener in &config.listener {
        let (listening, url) = listen(&args.name, listener, config, users)?;
        addresses.push(url);
        let (io, admission) = (Arc::clone(&io), Arc::clone(&admission));
        accepting.spawn(async move { io.accept(listening, admission).await });
    }
    let socket = args.data.join("towline.sock");
    let doorman = Arc::new(Doorman::local(&args.name, &config.limits, users));
    let local = Listening::local(&socket, ListenerKind { tls: None, doorman })
        .map_err(|error| RunError::Listen { address: socket.display().to_string(), error })?;
    {
        let (io, admission) = (Arc::clone(&io), Arc::clone(&admission));
        accepting.spawn(async move { io.accept(local, admission).await });
    }
    let mut chores = JoinSet::new();
    chores.spawn(housekeeping::tick(Arc::clone(door)));
    chores.spawn(housekeeping::reclaim(Arc::clone(door), door.extent_bytes()));
    door.set_listeners(addresses.clone());
    for url in &addresses {
        say(&format!("ready {url}"));
    }
    tokio::select! {
        _ = terminate.recv() => {}
        _ = interrupt.recv() => {}
    }
    tracing::info!(id = "TWL7020I", "the queue manager quiesces; a second signal ends it at once");
    accepting.abort_all();
    tokio::select! {
        () = quiesce(door, &admission) => {}
        _ = terminate.recv() => {}
        _ = interrupt.recv() => {}
    }
    chores.abort_all();
    let removed = std::fs::remove_file(&socket);
    if let Err(error) = removed {
        tracing::debug!(%error, "the local socket was gone");
    }
    Ok(())
}

fn listen(
    name: &str,
    listener: &ListenerConfig,
    config: &Config,
    users: &Arc<Users>,
) -> Result<(Listening, String), RunError> {
    let tls = server_settings(listener).map_err(RunError::Settings)?;
    let doorman =
        Doorman::new(name, listener, &config.limits, users).map_err(RunError::Settings)?;
    let scheme = doorman.scheme();
    let kind = ListenerKind { tls, doorman: Arc::new(doorman) };
    let (listening, address) = bind(listener.address, kind)
        .map_err(|error| RunError::Listen { address: listener.address.to_string(), error })?;
    Ok((listening, format!("{scheme}://{address}")))
}

fn io_threads(config: &Config) -> usize {
    match config.limits.io_threads {
        0 => std::thread::available_parallelism().map_or(1, |cores| cores.get().div_ceil(2)),
        threads => threads,
    }
}

/// New work is refused, open units of work may end, then everybody is told to go.
async fn quiesce(door: &Arc<Door>, admission: &Arc<Admission>) {
    door.quiesce();
    let waited = wait_until(QUIESCE_MAX, || door.look(|instance| instance.units_open()) == 0).await;
    if !waited {
        tracing::warn!(id = "TWL7022W", "units of work were still open and are rolled back");
    }
    door.end();
    wait_until(GOODBYE_MAX, || admission.connections() == 0).await;
}

/// Looks every few milliseconds. True when it came about in time.
async fn wait_until(longest: Duration, mut done: impl FnMut() -> bool) -> bool {
    let deadline = tokio::time::Instant::now() + longest;
    while !done() {
        if tokio::time::Instant::now() >= deadline {
            return false;
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    true
}

/// The one thing that goes to standard output: others wait for it.
fn say(line: &str) {
    use std::io::Write;
    let mut out = std::io::stdout().lock();
    if writeln!(out, "{line}").and_then(|()| out.flush()).is_err() {
        tracing::warn!(id = "TWL7023W", line, "nobody reads standard output");
    }
}
