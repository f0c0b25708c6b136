//! `towline run`: start, serve, end.
//!
//! Not here: an instance of a group (`group`); options (`run_args`), sockets (`endpoints`), and
//! what a process has in every mode (`process`).

use std::sync::Arc;

use serde_json::Value;
use tokio::task::JoinSet;
use towline_admin::catalogue::{
    ENDED, ENDING_NOW, FATAL, HOUSEKEEPING_FAILED, LISTENING, QUIESCING,
};
use towline_admin::status::ProcessMode;
use towline_os::task::handle_of;

use crate::control::{ControlDesk, ControlSocket, ControlledInstance, InstanceReport};
use crate::descriptors;
use crate::endpoints::{check_socket, io_threads, listen, listen_locally, local_kind};
use crate::group::is_folder_of_group;
use crate::net::{Admission, IoThreads, server_settings};
use crate::process::{Process, control_refused, say, until_end, welcome};
use crate::quiesce::quiesce;
use crate::refused::RunError;
use crate::reload::{self, Reload};
use crate::run_args::{RunArgs, of_file, with_command_line};
use crate::signals::Signals;
use crate::small_pages;
use towline_access::Attempts;
use towline_config::Config;
use towline_engine::Door;
use towline_engine::{OpenInstance, RunningInstance, StartError, settings};
use towline_logging::log;
use towline_process::Clock;
use towline_process::folder;
use towline_standby::{Entry, EntryError, EntryStep, Home};

/// Runs a queue manager until SIGTERM or SIGINT (an orderly shutdown; a second one: at once).
///
/// # Errors
/// When it cannot start; see [`RunError`].
pub fn run(args: &RunArgs) -> Result<(), RunError> {
    small_pages::only();
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
    reload.tell_open_keys();
    check_group_folder(&args.data, &config).map_err(|error| args.refused(error))?;
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
    let running =
        open.start(&config, jobs, &handle_of(runtime.handle())).map_err(RunError::System)?;
    let door = Arc::clone(running.door());
    let images = Arc::clone(running.images());
    let served = runtime.block_on(serve(args, &config, &of_process, running, &signals));
    if let Err(error) = images.take_last(door.as_ref()) {
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

/// The folder of an instance of a group is used with the configuration of its group only.
///
/// # Errors
/// The configuration has no group; the folder cannot be looked into.
pub(crate) fn check_group_folder(
    data: &std::path::Path,
    config: &Config,
) -> Result<(), StartError> {
    match config.group.is_none() && is_folder_of_group(data).map_err(StartError::Folder)? {
        true => Err(StartError::FolderOfGroup),
        false => Ok(()),
    }
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

/// Logs a failed assertion as a message of the catalogue, beside its location.
fn tell_of_panics(name: &str) {
    let (name, before) = (name.to_owned(), std::panic::take_hook());
    std::panic::set_hook(Box::new(move |panic| {
        log(&FATAL, &[&name, &panic.to_string().replace('\n', " ")]);
        before(panic);
    }));
}
