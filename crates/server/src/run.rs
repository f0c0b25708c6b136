//! `towline run`: start, serve, end.

use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use serde_json::Value;
use tokio::task::JoinSet;
use towline_admin::catalogue::{
    ENDED, ENDING_NOW, FATAL, HOUSEKEEPING_FAILED, LISTENING, QUIESCING, READY, STDOUT_CLOSED,
};
use towline_admin::status::ProcessMode;
use towline_node::Farewell;

use crate::control::{ControlDesk, ControlSocket, ControlledInstance, InstanceReport, names};
use crate::net::{
    Admission, IoThreads, ListenerKind, Listening, LocalAccess, bind_floating, drain,
    server_settings,
};
use crate::refused::RunError;
use crate::reload::{self, Reload};
use crate::signals::{LocalEvent, Signals};
use crate::{descriptors, hint};
use towline_access::Attempts;
use towline_access::LoginPolicy;
use towline_config::{AutoDefineConfig, Config, ConfigError, ListenerConfig};
use towline_engine::Door;
use towline_engine::{OpenInstance, RunningInstance, StartError, StartOptions, settings};
use towline_logging::log;
use towline_process::Clock;
use towline_process::folder;
use towline_standby::{Entry, EntryError, EntryStep, Home};

/// Where clients come in when neither the command line nor the configuration says: the port of
/// AMQP.
const LISTEN_DEFAULT: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 5672);

/// How long a quiescing queue manager waits for open units of work.
const QUIESCE_MAX: Duration = Duration::from_secs(10);

/// How long it waits after that for what was decided to be durable and answered. Less on any disk
/// that answers; gets go on meanwhile, so that there may always be something that is not.
const ANSWERS_MAX: Duration = Duration::from_secs(1);

/// What `towline run` was told.
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

    fn refused(&self, error: StartError) -> RunError {
        let name = self.name.as_str().into();
        RunError::Start { name, data: self.data.as_path().into(), error }
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
    /// Where it is asked what it is doing, to end, to reload.
    pub(crate) control: ControlSocket,
    /// What can change while it runs.
    pub(crate) reload: Arc<Reload>,
    /// Connections that there are file descriptors for.
    pub(crate) clients_max: usize,
}

/// Runs a queue manager until it is told to end (SIGTERM or SIGINT: quiesce; twice: at once).
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
    let control = start_control(args, &config, &reload, clock, &signals)?;
    let clients_max = descriptors::clients_of(&config, descriptors);
    let of_process = Process { control, reload, clients_max };
    if let Some(group) = &config.group {
        return crate::group::run(args, (&config, group), &of_process, clock, &signals);
    }
    signals.starting(&args.name);
    let home = enter(args, &mut config, of_process.control.desk())?;
    let open = OpenInstance::open(&args.name, &home, &config, args.wishes(), clock)
        .map_err(|error| args.refused(error))?;
    of_process.control.insist().map_err(|error| control_refused(&of_process.control, error))?;
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
    of_process.control.remove();
    door.log().shutdown();
    home.leave();
    served?;
    log(&ENDED, &[&args.name]);
    Ok(())
}

/// Answers on the control socket, whatever this process will be.
fn start_control(
    args: &RunArgs,
    config: &Config,
    reload: &Arc<Reload>,
    clock: Clock,
    signals: &Signals,
) -> Result<ControlSocket, RunError> {
    let folder = |error| args.refused(StartError::Folder(error));
    folder::make(&args.data).map_err(folder)?;
    let mode = match &config.group {
        Some(group) => (ProcessMode::Group, group.instance.clone()),
        None if args.standby || towline_standby::is_shared(&args.data).map_err(folder)? => {
            (ProcessMode::MultiInstance, towline_standby::process_name())
        }
        None => (ProcessMode::Single, String::new()),
    };
    let desk = ControlDesk::new(&args.name, mode, clock, Arc::clone(reload), signals.events());
    let control = ControlSocket::of(&args.data, Arc::new(desk));
    control.start(&args.data).map_err(|error| control_refused(&control, error))?;
    signals.before_exit(control.remover());
    Ok(control)
}

pub(crate) fn control_refused(control: &ControlSocket, error: std::io::Error) -> RunError {
    RunError::Listen { address: control.path().display().to_string(), error }
}

/// Returns when this process may open the log: at once, or, with `--standby`, when the active
/// instance of a shared data folder has ended. There, more of the log is reserved than the
/// configuration says.
fn enter(args: &RunArgs, config: &mut Config, desk: &ControlDesk) -> Result<Home, RunError> {
    let refused = |error| args.refused(error);
    let Some(process) = desk.shared_name() else { return Ok(Home::single(&args.data)) };
    let window_bytes = settings::options(config).stray_bytes();
    config.log.reserve_bytes = towline_standby::reserve_bytes(&config.log, window_bytes);
    for listener in &config.listener {
        // A setting that would make the takeover fail is refused now.
        server_settings(listener).map_err(RunError::Tls)?;
    }
    let entry = Entry {
        name: &args.name,
        process,
        data: &args.data,
        shared: &config.shared,
        stands_by: args.standby,
        window_bytes: settings::options(config).stray_bytes(),
        report: &|step| match step {
            EntryStep::StandsBy(active) => {
                desk.stands_by(active);
                // The supervisor need not read it.
                say(&format!("standby {active}"));
            }
            EntryStep::TakesOver => desk.takes_over(),
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
    let desk = of_process.control.desk();
    desk.runs(Arc::new(SingleControl { door: Arc::clone(door) }));
    welcome(args, &addresses, door.clock(), false);
    until_end(signals, &of_process.reload).await;
    desk.ends();
    log(&QUIESCING, &[&args.name]);
    accepting.abort_all();
    let in_order = tokio::select! {
        in_order = quiesce(door, &admission) => in_order,
        _ = until_end(signals, &of_process.reload) => false,
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

/// An active instance that is not one of a group, on the control socket.
struct SingleControl {
    door: Arc<Door>,
}

impl ControlledInstance for SingleControl {
    fn report(&self) -> InstanceReport {
        InstanceReport { group: None, status: Some(self.door.status()) }
    }

    fn objection_to_stop(&self) -> Option<String> {
        None
    }

    fn switch(&self, _to: Option<&str>) -> Result<Value, String> {
        Err("this queue manager is not an instance of a group: there is none to switch to".into())
    }

    fn can_restart(&self) -> Result<(), String> {
        Err("this queue manager is not an instance of a group, and clients would have to wait for \
             its restart: stop it and start it"
            .into())
    }
}

/// How the process is to end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LocalEnd {
    /// In order.
    Stop,
    /// By executing its program again, an instance of a group only.
    Restart,
}

/// Waits until an end is asked for; what can change is read again meanwhile when that is asked for.
pub(crate) async fn until_end(signals: &Signals, reload: &Arc<Reload>) -> LocalEnd {
    loop {
        match signals.next().await {
            LocalEvent::Stop => return LocalEnd::Stop,
            LocalEvent::Restart => return LocalEnd::Restart,
            LocalEvent::Reload => reload.soon(),
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
    let policy = LoginPolicy::new(&args.name, listener, &config.limits, &reload.users, attempts);
    let policy =
        policy.map_err(|why| RunError::Config { file: args.config.clone(), error: why.into() })?;
    let scheme = policy.scheme();
    let kind = ListenerKind { tls, policy: Arc::new(policy), elsewhere: None };
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
    let policy = Arc::new(LoginPolicy::local(&args.name, &config.limits, &reload.users));
    ListenerKind { tls: None, policy, elsewhere: None }
}

/// Whether the local sockets in the data folder can have their paths, before anything is made
/// there.
pub(crate) fn check_socket(args: &RunArgs, config: &Config) -> Result<(), RunError> {
    /// `sun_path` of Linux (man 7 unix), without the zero at its end.
    const BYTES_MAX: usize = 107;
    // A folder that cannot be listed is refused when it is used.
    let is_shared = args.standby || matches!(towline_standby::is_shared(&args.data), Ok(true));
    let name = names::name_bytes_max(is_shared && config.group.is_none());
    let path = args.data.join("towline.sock");
    let bytes = path.as_os_str().len() - "towline.sock".len() + name.max("towline.sock".len());
    if bytes <= BYTES_MAX {
        return Ok(());
    }
    let why = format!(
        "the path of the control socket has {bytes} bytes, and {BYTES_MAX} are allowed: choose a shorter \
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

/// New work is refused, open units of work may end, then everybody is told to go. False when units
/// of work were still open.
async fn quiesce(door: &Arc<Door>, admission: &Arc<Admission>) -> bool {
    door.quiesce();
    let waited = wait_until(QUIESCE_MAX, || door.look(|instance| instance.units_open()) == 0).await;
    // A commit is decided before it is durable, and its answer goes out after that: a client that
    // got the close instead would not know whether it took place.
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

/// Tells those who wait for it, and then whoever looks, that clients may come.
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
    // Whoever waited for `ready` may have gone away: that is nobody's fault.
    say(&hint::text(&args.program, &args.data, url));
}

/// Writes to standard output. False when nobody reads it.
pub(crate) fn say(text: &str) -> bool {
    use std::io::Write;
    let mut out = std::io::stdout().lock();
    writeln!(out, "{text}").and_then(|()| out.flush()).is_ok()
}

/// Has a broken rule of ours told as a message of the catalogue, beside where it happened.
fn tell_of_panics(name: &str) {
    let (name, before) = (name.to_owned(), std::panic::take_hook());
    std::panic::set_hook(Box::new(move |panic| {
        log(&FATAL, &[&name, &panic.to_string().replace('\n', " ")]);
        before(panic);
    }));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_data_folder_whose_sockets_would_have_too_long_a_path_is_refused() {
        for (standby, bytes_max) in [(false, 86), (true, 69)] {
            let check = |bytes| {
                let data = PathBuf::from("x".repeat(bytes));
                let args = RunArgs { standby, data, ..RunArgs::of_nothing() };
                check_socket(&args, &Config::default()).map_err(|error| error.to_string())
            };
            assert_eq!(check(bytes_max), Ok(()));
            let why = check(bytes_max + 1).unwrap_err();
            assert!(why.contains("has 108 bytes, and 107 are allowed"), "{why}");
        }
    }
}
