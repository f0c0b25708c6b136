//! `towline run`: start, serve, end.

use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use tokio::task::JoinSet;
use towline_admin::catalogue::{
    ENDED, ENDING_NOW, FATAL, HOUSEKEEPING_FAILED, LISTENING, QUIESCING, READY, STDOUT_CLOSED,
};
use towline_node::Farewell;

use crate::attempts::Attempts;
use crate::identity::Doorman;
use crate::net::{
    Admission, IoThreads, ListenerKind, Listening, LocalAccess, bind_floating, drain,
    server_settings,
};
use crate::refused::RunError;
use crate::reload::{self, Reload};
use crate::signals::{Event, Signals};
use crate::{descriptors, hint};
use towline_config::{AutoDefineConfig, Config, ConfigError, ListenerConfig};
use towline_engine::Door;
use towline_engine::{OpenInstance, RunningInstance, StartError, StartOptions, settings};
use towline_logging::log;
use towline_process::Clock;
use towline_process::folder;
use towline_standby::{Entry, EntryError, Home};

/// Where clients come in when neither the command line nor the configuration says: the port of
/// AMQP.
const LISTEN_DEFAULT: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 5672);

/// How long a quiescing queue manager waits for open units of work.
const QUIESCE_MAX: Duration = Duration::from_secs(10);

/// How long it waits after that for what was decided to be durable and answered. Less on any disk
/// that answers; gets go on meanwhile, so that there may always be something that is not.
const ANSWERS_MAX: Duration = Duration::from_secs(1);

/// The arguments of `towline run`.
#[derive(Clone, Debug)]
pub struct RunArgs {
    /// The queue manager's name.
    pub name: String,
    /// Its data folder, made when it is not there.
    pub data: PathBuf,
    /// Where clients come in, when the configuration names no listener; else the default address.
    pub listen: Option<SocketAddr>,
    /// The configuration file.
    pub config: Option<PathBuf>,
    /// Accept clients of other machines without TLS at `listen`.
    pub allow_plaintext: bool,
    /// Names of queues that are defined on first use in this run.
    pub auto_define: Option<String>,
    /// Stand by when another instance is active on the same data folder, and take over when it
    /// ends.
    pub standby: bool,
    /// Added to each sync of the log, for experiments.
    pub log_sync_delay: Duration,
    /// Start although extents with live messages are gone: they are set aside when their turn
    /// comes.
    pub without_missing_extents: bool,
    /// How this program was called, for the commands to try that are printed after `ready`.
    pub program: String,
}

impl RunArgs {
    /// No option but the name, which is missing.
    pub(crate) fn of_nothing() -> RunArgs {
        RunArgs {
            name: String::new(),
            data: PathBuf::new(),
            listen: None,
            config: None,
            allow_plaintext: false,
            auto_define: None,
            standby: false,
            log_sync_delay: Duration::ZERO,
            without_missing_extents: false,
            program: String::new(),
        }
    }

    pub(crate) fn wishes(&self) -> StartOptions {
        StartOptions {
            sync_delay: self.log_sync_delay,
            without_missing: self.without_missing_extents,
        }
    }
}

/// What the process as a whole has, whichever way it serves.
pub(crate) struct Process {
    /// What can change while it runs.
    pub(crate) reload: Arc<Reload>,
    /// Connections that there are file descriptors for.
    pub(crate) clients_max: usize,
}

/// Runs a queue manager until SIGTERM or SIGINT (an orderly shutdown; a second one: at once).
///
/// # Errors
/// When it cannot start; see [`RunError`].
pub fn run(args: &RunArgs) -> Result<(), RunError> {
    // Before there is another thread.
    let signals = Signals::take().map_err(RunError::System)?;
    let clock = Clock::start();
    towline_logging::start().map_err(RunError::Environment)?;
    tell_of_panics(&args.name);
    let descriptors = descriptors::raise();
    let refused = |why: String| RunError::Config { file: args.config.clone(), error: why.into() };
    let file = of_file(args)?;
    towline_logging::set_level(file.logging.level.as_deref()).map_err(refused)?;
    let reload = Reload::new(args.config.clone(), &file).map_err(refused)?;
    let mut config = with_command_line(args, file)?;
    check_socket(args, &config)?;
    let of_process = Process { reload, clients_max: descriptors::clients_of(&config, descriptors) };
    if let Some(group) = &config.group {
        return crate::group::run(args, (&config, group), &of_process, clock, &signals);
    }
    signals.starting(&args.name);
    let home = enter(args, &mut config)?;
    let open =
        OpenInstance::open(&args.name, &home, &config, args.wishes(), clock).map_err(|error| {
            RunError::Start {
                name: args.name.as_str().into(),
                data: args.data.as_path().into(),
                error,
            }
        })?;
    home.settle();
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .max_blocking_threads(2)
        .build()
        .map_err(RunError::System)?;
    let jobs = of_process.reload.jobs(&args.name);
    let running = open.start(&config, jobs, runtime.handle()).map_err(RunError::System)?;
    let door = Arc::clone(running.door());
    let images = Arc::clone(running.images());
    let served = runtime.block_on(serve(args, &config, &of_process, running, &signals));
    if let Err(error) = images.take(door.as_ref()) {
        // The next start reads a longer tail.
        log(&HOUSEKEEPING_FAILED, &[&error.to_string()]);
    }
    door.log().shutdown();
    home.leave();
    served?;
    log(&ENDED, &[&args.name]);
    Ok(())
}

/// Returns when this process may open the log: at once, or, with `--standby`, when the active
/// instance of a shared data folder has ended. There, more of the log is reserved than the
/// configuration says.
fn enter(args: &RunArgs, config: &mut Config) -> Result<Home, RunError> {
    let name: Box<str> = args.name.as_str().into();
    let data: Box<std::path::Path> = args.data.as_path().into();
    let refused = |error| RunError::Start { name: name.clone(), data: data.clone(), error };
    folder::make(&args.data).map_err(|error| refused(StartError::Folder(error)))?;
    let is_shared = towline_standby::is_shared(&args.data);
    if !args.standby && !is_shared.map_err(|error| refused(StartError::Folder(error)))? {
        return Ok(Home::single(&args.data));
    }
    let window_bytes = settings::options(config).stray_bytes();
    config.log.reserve_bytes = towline_standby::reserve_bytes(&config.log, window_bytes);
    for listener in &config.listener {
        // A setting that would make the takeover fail is refused now.
        server_settings(listener).map_err(RunError::Tls)?;
    }
    let entry = Entry {
        name: &args.name,
        data: &args.data,
        shared: &config.shared,
        stands_by: args.standby,
        window_bytes: settings::options(config).stray_bytes(),
        announce: &|line| {
            // The supervisor need not read it.
            say(line);
        },
    };
    entry.enter().map_err(|error| match error {
        EntryError::Folder(error) => refused(error.into()),
        EntryError::InUse { holder } => RunError::InUse { data: args.data.clone(), holder },
        EntryError::Thread(error) => RunError::System(error),
    })
}

/// The configuration as its file says it.
pub(crate) fn of_file(args: &RunArgs) -> Result<Config, RunError> {
    let Some(file) = &args.config else { return Ok(Config::default()) };
    Config::read(file).map_err(|error| RunError::Config { file: Some(file.clone()), error })
}

/// The same with what the command line adds to it.
pub(crate) fn with_command_line(args: &RunArgs, mut config: Config) -> Result<Config, RunError> {
    if let Some(pattern) = &args.auto_define {
        let model = towline_config::DEFAULT_LOCAL_MODEL.to_owned();
        config.auto_define.push(AutoDefineConfig { pattern: pattern.clone(), model });
    }
    if config.listener.is_empty() {
        let allow_plaintext = args.allow_plaintext;
        let address = args.listen.unwrap_or(LISTEN_DEFAULT);
        config.listener.push(ListenerConfig { allow_plaintext, ..ListenerConfig::plain(address) });
    } else if args.listen.is_some() || args.allow_plaintext {
        // It would have no effect, and the operator would not know.
        let option = if args.listen.is_some() { "--listen" } else { "--allow-plaintext" };
        let why = format!(
            "it has [[listener]], and {option} is for a configuration without: leave the option out, \
             or change the [[listener]]"
        );
        return Err(RunError::Config { file: args.config.clone(), error: ConfigError::from(why) });
    }
    // The file was checked; what is wrong now is of the command line.
    config.check().map_err(|why| RunError::Config { file: None, error: ConfigError::from(why) })?;
    if config.group.is_some() && args.standby {
        let why = "--standby is for several processes on one folder, and [group] for three instances \
                   with a folder each: choose one";
        let error = ConfigError::from(why.to_owned());
        return Err(RunError::Config { file: args.config.clone(), error });
    }
    Ok(config)
}

async fn serve(
    args: &RunArgs,
    config: &Config,
    of_process: &Process,
    mut running: RunningInstance,
    signals: &Signals,
) -> Result<(), RunError> {
    signals.serving();
    let door = &Arc::clone(running.door());
    let io = IoThreads::start(io_threads(config), door).map_err(RunError::System)?;
    let io = Arc::new(io);
    let admission = Admission::new(config.limits.clone(), of_process.clients_max);
    let mut accepting = JoinSet::new();
    let attempts = Arc::new(Attempts::default());
    let mut addresses = Vec::new();
    for listener in &config.listener {
        let (listening, url) =
            listen(args, (listener, None), config, &of_process.reload, &attempts)?;
        log(&LISTENING, &[&url]);
        addresses.push(url);
        let (io, admission) = (Arc::clone(&io), Arc::clone(&admission));
        accepting.spawn(async move { io.accept(listening, admission).await });
    }
    let socket = args.data.join("towline.sock");
    let local = listen_locally(args, config, local_kind(args, config, &of_process.reload))?;
    {
        let (io, admission) = (Arc::clone(&io), Arc::clone(&admission));
        accepting.spawn(async move { io.accept(local, admission).await });
    }
    let mut chores = JoinSet::new();
    chores.spawn(reload::watch(Arc::clone(&of_process.reload)));
    door.set_listeners(addresses.clone());
    welcome(args, &addresses, door.clock(), false);
    until_stop(signals, &of_process.reload).await;
    log(&QUIESCING, &[&args.name]);
    accepting.abort_all();
    let in_order = tokio::select! {
        in_order = quiesce(door, &admission) => in_order,
        () = until_stop(signals, &of_process.reload) => false,
    };
    signals.ending(&args.name);
    if !in_order {
        log(&ENDING_NOW, &[&args.name]);
    }
    chores.abort_all();
    running.stop_housekeeping();
    let removed = std::fs::remove_file(&socket);
    if let Err(error) = removed {
        tracing::debug!(%error, "the local socket was gone");
    }
    Ok(())
}

/// Waits for a signal that wants an end; on SIGHUP, what can change is read again meanwhile.
pub(crate) async fn until_stop(signals: &Signals, reload: &Arc<Reload>) {
    loop {
        match signals.next().await {
            Event::Stop => return,
            Event::Reload => reload.soon(),
        }
    }
}

/// Listens where the configuration says; on the socket that came from the program before, if one
/// did.
pub(crate) fn listen(
    args: &RunArgs,
    (listener, came): (&ListenerConfig, Option<TcpListener>),
    config: &Config,
    reload: &Reload,
    attempts: &Arc<Attempts>,
) -> Result<(Listening, String), RunError> {
    let tls = server_settings(listener).map_err(RunError::Tls)?;
    if let Some(tls) = &tls {
        reload.watch(tls);
    }
    let doorman = Doorman::new(&args.name, listener, &config.limits, &reload.users, attempts);
    let doorman =
        doorman.map_err(|why| RunError::Config { file: args.config.clone(), error: why.into() })?;
    let scheme = doorman.scheme();
    let kind = ListenerKind { tls, doorman: Arc::new(doorman), elsewhere: None };
    let floating = config.group.as_ref().and_then(|group| group.floating.as_ref());
    let floats = floating.is_some_and(|floating| floating.address.ip == listener.address.ip());
    let bound = match came {
        Some(socket) => Ok(socket),
        None if floats => bind_floating(listener.address),
        None => TcpListener::bind(listener.address),
    };
    let (listening, address) = bound
        .and_then(|socket| Listening::tcp(socket, kind))
        .map_err(|error| RunError::Listen { address: listener.address.to_string(), error })?;
    Ok((listening, format!("{scheme}://{address}")))
}

/// What the local socket is.
pub(crate) fn local_kind(args: &RunArgs, config: &Config, reload: &Reload) -> ListenerKind {
    let doorman = Arc::new(Doorman::local(&args.name, &config.limits, &reload.users));
    ListenerKind { tls: None, doorman, elsewhere: None }
}

/// Whether the local sockets in the data folder can have their paths, before anything is made
/// there.
pub(crate) fn check_socket(args: &RunArgs, config: &Config) -> Result<(), RunError> {
    /// `sun_path` of Linux (man 7 unix), without the zero at its end.
    const BYTES_MAX: usize = 107;
    let longest = if config.group.is_some() { "towline-group.sock" } else { "towline.sock" };
    let path = args.data.join(longest);
    let bytes = path.as_os_str().len();
    if bytes <= BYTES_MAX {
        return Ok(());
    }
    let why = format!(
        "the path of the local socket has {bytes} bytes, and {BYTES_MAX} are allowed: choose a shorter \
         name, or a shorter folder with --data"
    );
    let error = std::io::Error::new(std::io::ErrorKind::InvalidInput, why);
    Err(RunError::Listen { address: path.display().to_string(), error })
}

/// Listens on the local socket in the data folder.
pub(crate) fn listen_locally(
    args: &RunArgs,
    config: &Config,
    kind: ListenerKind,
) -> Result<Listening, RunError> {
    let access = LocalAccess::of_process(config.users.local_group.as_deref());
    let access =
        access.map_err(|why| RunError::Config { file: args.config.clone(), error: why.into() })?;
    let path = args.data.join("towline.sock");
    Listening::local(&path, kind, access)
        .map_err(|error| RunError::Listen { address: path.display().to_string(), error })
}

pub(crate) fn io_threads(config: &Config) -> usize {
    match config.limits.io_threads {
        0 => std::thread::available_parallelism().map_or(1, |cores| cores.get().div_ceil(2)),
        threads => threads,
    }
}

/// Refuses new work, waits for open units of work, then closes all connections. False when units of
/// work were still open.
async fn quiesce(door: &Arc<Door>, admission: &Arc<Admission>) -> bool {
    door.quiesce();
    let waited = wait_until(QUIESCE_MAX, || door.look(|instance| instance.units_open()) == 0).await;
    // A commit is decided before it is durable, and its answer goes out after that: a client that
    // got the close instead would not know its outcome.
    wait_until(ANSWERS_MAX, || door.look(|instance| instance.runs_pending()) == 0).await;
    door.end(Farewell::Ending);
    drain(|| admission.connections()).await;
    waited
}

/// Looks every few milliseconds. True when it came about in time.
pub(crate) async fn wait_until(longest: Duration, mut done: impl FnMut() -> bool) -> bool {
    let deadline = tokio::time::Instant::now() + longest;
    while !done() {
        if tokio::time::Instant::now() >= deadline {
            return false;
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    true
}

/// Reports that clients can connect: to the log and the waiting supervisor, then to a terminal.
pub(crate) fn welcome(args: &RunArgs, urls: &[String], clock: Clock, again: bool) {
    let took = clock.now().since(clock.started_at());
    log(&READY, &[&args.name, &took.as_millis().to_string()]);
    if again {
        return;
    }
    let ready: Vec<String> = urls.iter().map(|url| format!("ready {url}")).collect();
    let ready = ready.join("\n");
    if !say(&ready) {
        log(&STDOUT_CLOSED, &[&ready]);
        return;
    }
    let Some(url) = urls.first() else { return };
    // The process that waited for `ready` may have closed the pipe: that is no error.
    say(&hint::text(&args.program, &args.data, url));
}

/// What an administrator asked an instance of a group for.
#[derive(Clone, Copy, Debug)]
pub(crate) enum LocalEvent {
    /// To end.
    Stop,
    /// To begin again.
    Restart,
}

/// Writes to standard output. False when its reader is gone.
pub(crate) fn say(text: &str) -> bool {
    use std::io::Write;
    let mut out = std::io::stdout().lock();
    writeln!(out, "{text}").and_then(|()| out.flush()).is_ok()
}

/// Logs a failed assertion as a message of the catalogue, beside its location.
fn tell_of_panics(name: &str) {
    let (name, before) = (name.to_owned(), std::panic::take_hook());
    std::panic::set_hook(Box::new(move |panic| {
        log(&FATAL, &[&name, &panic.to_string().replace('\n', " ")]);
        before(panic);
    }));
}
