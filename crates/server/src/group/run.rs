//! An instance of a group from start to end: a replica first, active when the group says so.

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use tokio::sync::mpsc::{UnboundedSender, unbounded_channel};
use towline_admin::catalogue::{
    ENDED, GROUP_AWAITED, GROUP_REPLICA, HOUSEKEEPING_FAILED, LISTENING, QUIESCING,
};
use towline_group::Role;
use towline_node::{Elsewhere, Farewell};
use towline_os::task::JoinSet;

use super::active::{self, Serving};
use super::address_watch;
use super::addresses::{ClientAddresses, ListenerAddresses};
use super::control::GroupControl;
use super::drill_return;
use super::host::GroupHost;
use super::listener_handover::InheritedSockets;
use super::region;
use super::region_orders::RegionOrders;
use super::region_tasks;
use super::rehearsals::Rehearsals;
use super::status::View;
use crate::control::ControlSocket;
use crate::endpoints::{listen, listen_locally, local_kind};
use crate::net::Reception;
use crate::net::{Admission, ListenerKind, Listening, drain};
use crate::process::{self, LocalEnd, Process, control_refused, until_end, welcome};
use crate::quiesce::quiesce;
use crate::refused::RunError;
use crate::reload::{self, Reload};
use crate::run_args::RunArgs;
use crate::signals::Signals;
use towline_access::Attempts;
use towline_config::{Config, GroupConfig};
use towline_engine::GroupView;
use towline_engine::RunningInstance;
use towline_floating::Floating;
use towline_link::{self as link, LinkSettings, Links, StreamPurpose};
use towline_logging::log as say;
use towline_process::Clock;
use towline_replica::replica::forget_old_places;
use towline_replica::{OpenReplica, open, threads};
use towline_replication::driver::Driver;
use towline_replication::inbox::GroupInbox;
use towline_replication::lifecycle::EndReason;
use towline_replication::redirect::Redirect;
use towline_replication::reexec::ReexecContext;
use towline_replication::region_part::RegionPart;
use towline_replication::{
    agreement, disk_probe, hand_over, no_active, preferred, redirect, reexec,
};

/// A start that takes longer refuses those that come to the sockets of the program before it.
const START_MAX: Duration = Duration::from_secs(5);
/// Before an instance with a full log re-executes.
const NO_ROOM_PAUSE: Duration = Duration::from_secs(2);
/// Between two reports of an active instance to the others about all instances.
const TELL_INTERVAL: Duration = Duration::from_millis(500);

/// What happens to the process as a whole.
enum Event {
    /// This instance became active.
    Active(RunningInstance),
    /// It cannot go on as it is.
    EndReason(EndReason),
    /// The disk that had not answered does.
    DiskAnswers,
    /// A copy replaced its log.
    Copied,
    /// No copy was received. The process re-executes all the same: it took no part meanwhile.
    NotCopied,
    /// The system refused something that an active instance needs.
    Failed(std::io::Error),
}

/// Runs an instance of a group until its shutdown.
///
/// # Errors
/// When it cannot start; see [`RunError`].
pub(crate) fn run(
    args: &RunArgs,
    about: (&Config, &GroupConfig),
    of_process: &Process,
    clock: Clock,
    signals: &Signals,
) -> Result<(), RunError> {
    let refused = |error| RunError::Start {
        name: args.name.as_str().into(),
        data: args.data.as_path().into(),
        error,
    };
    let wrong = |why: String| RunError::Config { file: args.config.clone(), error: why.into() };
    let (config, group) = about;
    let (this, _) = group.own().map_err(wrong)?;
    // First of all: the connections of the process before this one are closed, and their clients
    // heard it, because the address was still there.
    let floating = Floating::new(group.floating.clone());
    let sockets = InheritedSockets::of_process();
    floating.clear();
    signals.starting(&args.name);
    sockets.close_unless_settled(START_MAX);
    let process = (clock, reexec::start_before());
    let opened = open(&args.name, &args.data, (config, group, this), args.wishes(), process)
        .map_err(refused)?;
    let opened = Arc::new(opened);
    let control = &of_process.control;
    control.insist().map_err(|error| control_refused(control, error))?;
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .max_blocking_threads(2)
        .build()
        .map_err(RunError::System)?;
    let parts = (&opened, &floating, &sockets);
    let ended = runtime.block_on(serve(args, about, of_process, parts, signals))?;
    runtime.shutdown_background();
    if matches!(ended, Ended::Again(_)) && signals.stop() {
        // The re-executed program would not know of it. Nothing of this one is kept, as there.
        floating.let_go();
        say(&ENDED, &[&args.name]);
        return Ok(());
    }
    if let Ended::Again(next) = ended {
        reexec::reexecute(
            next,
            |program| sockets.hand_over(program),
            || floating.let_go(),
            towline_process::EXIT_REEXEC_FAILED,
        );
    }
    // No listener accepts any more.
    drop(sockets);
    floating.let_go();
    if opened.driver.overdue().is_none() {
        end_in_order(&opened, control);
    }
    say(&ENDED, &[&args.name]);
    Ok(())
}

/// How serving ended.
enum Ended {
    InOrder,
    Again(ReexecContext),
}

fn end_in_order(opened: &OpenReplica, control: &ControlSocket) {
    let driver = &opened.driver;
    driver.end();
    let image = match opened.door() {
        Some(door) => opened.images.take_last(door.as_ref()),
        None => opened.images.take_last(opened.replica.as_ref()),
    };
    if let Err(error) = image {
        // The next start reads a longer tail.
        say(&HOUSEKEEPING_FAILED, &[&error.to_string()]);
    }
    if let Err(error) = driver.note_committed() {
        tracing::warn!(%error, "how far the log is committed cannot be written down");
    }
    if let Some(links) = driver.links() {
        links.stop();
    }
    control.remove();
    driver.shutdown();
}

async fn serve(
    args: &RunArgs,
    (config, group): (&Config, &GroupConfig),
    of_process: &Process,
    (opened, floating, sockets): (&Arc<OpenReplica>, &Floating, &InheritedSockets),
    signals: &Signals,
) -> Result<Ended, RunError> {
    signals.serving();
    let (events, mut happened) = unbounded_channel();
    let (driver, reload) = (&opened.driver, &of_process.reload);
    driver.ask_for_copies_after(reexec::copy_pause(reexec::copies_failed()));
    tell_over(driver, events.clone());
    let admission = Admission::new(config.limits.clone(), of_process.clients_max);
    let addresses = ClientAddresses::new(driver, config, group);
    let mut listeners = Listeners::bind(args, (config, group), reload, sockets, &addresses)?;
    let names = listeners.urls.clone();
    let about = (&listeners, sockets);
    let entrance = start_links(args, (config, group), opened, &admission, about, reload)?;
    let region = region::start(args, (config, group), opened, sockets, reload)?;
    sockets.close_others();
    let mut tasks = watches(args, group, driver);
    if let Some(region) = &region {
        region_tasks::start(&mut tasks, (args, config), &entrance.view, &addresses, region);
    }
    let desk = of_process.control.desk();
    let orders = RegionOrders::new(args, opened, group, (region.as_ref(), &entrance.view));
    desk.runs(Arc::new(GroupControl {
        driver: Arc::clone(driver),
        opened: Arc::clone(opened),
        view: entrance.view.clone(),
        region: Arc::clone(&orders),
        rehearsals: Rehearsals::new(opened, (config, group)),
    }));
    // Not before: a command that asks this folder for its instance must not be led to the active
    // one.
    listeners.bind_local(args, config)?;
    let mut accepting = listeners.accept(&entrance);
    tasks.spawn(reload::watch(Arc::clone(reload)));
    let about = (&entrance, reload, names.clone());
    start_threads(args, (config, group), opened, about, events.clone())?;
    say(&GROUP_REPLICA, &[&group.instance, &args.name]);
    let follows = region::says_it_follows(args, (group, driver), reexec::ready_was_printed());
    if group.recovery.is_some() {
        threads::serve_beside_region(&mut tasks, config, opened);
    }
    if !follows && !driver.is_alone() {
        await_group(args, group, needed(opened), reexec::ready_was_printed());
    }
    tasks.spawn(ready(args.clone(), names, Arc::clone(&entrance.view)));
    let view = Arc::clone(&entrance.view);
    let parts = (config, opened, floating);
    let region = region.map(|part| (part, orders));
    let running = None;
    let mut attending = Attending { args, parts, view, admission, events, tasks, region, running };
    loop {
        let ended = tokio::select! {
            end = until_end(signals, reload) => {
                desk.ends();
                if end == LocalEnd::Stop {
                    signals.ending(&args.name);
                }
                attending.leave(&mut accepting).await;
                attending.leave_region();
                Some(match end {
                    LocalEnd::Stop => Ended::InOrder,
                    LocalEnd::Restart => attending.reexec(),
                })
            }
            Some(event) = happened.recv() => attending.event(event, &mut accepting).await?,
        };
        if let Some(ended) = ended {
            return Ok(ended);
        }
    }
}

/// How many instances must be connected before one is active. One that has not heard from another
/// one yet from which it must hear waits for all: so does each of a new group.
fn needed(opened: &OpenReplica) -> usize {
    let group = opened.driver.group();
    let all = group.peers.len() + 1;
    if group.unheard.is_empty() { all / 2 + 1 } else { all }
}

/// Prints what this instance waits for: `ready` comes when clients are served.
fn await_group(args: &RunArgs, group: &GroupConfig, needed: usize, ready_was_printed: bool) {
    let (all, name) = (group.member.len().to_string(), group.name.as_str());
    let needed = needed.to_string();
    say(&GROUP_AWAITED, &[&args.name, &needed, &all, name]);
    if !ready_was_printed {
        // It need not be read.
        process::say(&format!("waiting for {needed} of {all} instances of group {name}"));
    }
}

/// Reports that clients can connect, when they are served for the first time.
async fn ready(args: RunArgs, urls: Vec<String>, view: Arc<View>) {
    let was_printed = reexec::ready_was_printed();
    tokio::select! {
        () = view.until_served() => {}
        () = view.until_fenced() => {
            if !was_printed {
                process::say(&format!("fenced {}: it serves no client", args.name));
            }
            view.until_served().await;
        }
    }
    welcome(&args, &urls, view.clock(), reexec::ready_was_printed());
    view.ready_is_told();
}

/// Attends to what happens to the process as a whole.
struct Attending<'a> {
    args: &'a RunArgs,
    parts: (&'a Config, &'a Arc<OpenReplica>, &'a Floating),
    view: Arc<View>,
    admission: Arc<Admission>,
    events: UnboundedSender<Event>,
    tasks: JoinSet<()>,
    /// The traffic with the other region, if there is one, and changes of roles.
    region: Option<(Arc<RegionPart>, Arc<RegionOrders>)>,
    /// The instance, once this one is active.
    running: Option<RunningInstance>,
}

impl Attending<'_> {
    /// Nothing new of copies.
    fn reexec(&self) -> Ended {
        self.reexec_after(reexec::copies_failed())
    }

    fn reexec_after(&self, copies_failed: u32) -> Ended {
        let ready_printed = self.view.was_ready_told() || reexec::ready_was_printed();
        let start = self.parts.1.driver.own_start();
        Ended::Again(ReexecContext { copies_failed, ready_printed, start })
    }

    async fn event(
        &mut self,
        event: Event,
        accepting: &mut JoinSet<()>,
    ) -> Result<Option<Ended>, RunError> {
        let (config, opened, floating) = self.parts;
        match event {
            Event::Active(running) => {
                let leading = Arc::clone(&opened.driver);
                floating.hold(move || leading.group().role == Role::Leader);
                serve_as_active(&mut self.tasks, config, opened, &self.view);
                self.running = Some(running);
                if let Some((part, orders)) = &self.region {
                    part.serve_as_live().map_err(RunError::System)?;
                    let name = config.group.as_ref().map_or("", |group| group.name.as_str());
                    drill_return::watch(opened, orders, name).map_err(RunError::System)?;
                }
            }
            Event::EndReason(
                EndReason::LostLeadership
                | EndReason::PutBack
                | EndReason::TakesLogId
                | EndReason::Rebased
                | EndReason::ChangesPart,
            ) => {
                // The re-executed program serves new clients; the others have their close.
                accepting.abort_all();
                if let Some(door) = opened.door() {
                    door.end(Farewell::NotActive);
                }
                self.goodbye().await;
                return Ok(Some(self.reexec()));
            }
            Event::EndReason(EndReason::DiskHangs) => {
                let answers = self.events.clone();
                self.tasks.abort_all();
                self.running.iter_mut().for_each(RunningInstance::stop_housekeeping);
                let of_clients = Arc::clone(opened);
                let close_clients = move || {
                    if let Some(door) = of_clients.door() {
                        door.end(Farewell::NotActive);
                    }
                };
                disk_probe::wait_for_disk(&self.args.data, close_clients, move || {
                    answers.send(Event::DiskAnswers).ok();
                });
            }
            Event::DiskAnswers => {
                accepting.abort_all();
                return Ok(Some(self.reexec()));
            }
            Event::EndReason(EndReason::LogFull) => {
                // There may be free space after a while; the start takes images that reclaim it.
                tokio::time::sleep(NO_ROOM_PAUSE).await;
                return Ok(Some(self.reexec()));
            }
            Event::EndReason(EndReason::NeedsCopy(peer)) => {
                let events = self.events.clone();
                threads::start_copy(opened, &self.args.data, peer, move |came| {
                    events.send(if came { Event::Copied } else { Event::NotCopied }).ok();
                });
            }
            Event::Copied => return Ok(Some(self.reexec_after(0))),
            Event::NotCopied => {
                return Ok(Some(self.reexec_after(reexec::copies_failed().saturating_add(1))));
            }
            Event::Failed(error) => return Err(RunError::System(error)),
        }
        Ok(None)
    }

    /// Before the process ends on purpose: an active instance hands over, if anybody is there.
    async fn leave(&self, accepting: &mut JoinSet<()>) {
        say(&QUIESCING, &[&self.args.name]);
        let driver = &self.parts.1.driver;
        // It is not there if the start was interrupted.
        std::fs::remove_file(self.args.data.join("towline.sock")).ok();
        let leads = driver.leads();
        let Some(door) = self.parts.1.door().filter(|_| leads) else { return };
        accepting.abort_all();
        if driver.is_alone() {
            quiesce(door, &self.admission).await;
            return;
        }
        let driver = Arc::clone(driver);
        let listener_handover =
            tokio::task::spawn_blocking(move || hand_over::hand_over(&driver, None)).await;
        if !matches!(listener_handover, Ok(Ok(()))) {
            // No instance takes over: clients get the notice all the same.
            door.end(Farewell::Ending);
        }
        self.goodbye().await;
    }

    /// What clients were given is on its way to the other region by now, if that is there.
    fn leave_region(&self) {
        self.region.iter().for_each(|(part, _)| part.end());
    }

    /// The clients got their close: waits for connections to end and accepts no new client.
    async fn goodbye(&self) {
        let left = drain(|| self.admission.connections()).await;
        if left > 0 {
            tracing::info!(left, "connections that did not end in time are cut");
        }
    }
}

/// Watches which instance is active, and whether one is.
fn watches(args: &RunArgs, group: &GroupConfig, driver: &Arc<Driver>) -> JoinSet<()> {
    let mut tasks = JoinSet::new();
    tasks.spawn(preferred::watch(Arc::clone(driver), group.clone(), args.data.clone()));
    tasks.spawn(no_active::watch(Arc::clone(driver), group.heartbeat_timeout()));
    tasks.spawn(address_watch::watch(Arc::clone(driver), group.floating.clone()));
    tasks
}

fn tell_over(driver: &Driver, events: UnboundedSender<Event>) {
    driver.set_on_end(move |why| {
        // The receiver is gone when the process ends anyway.
        events.send(Event::EndReason(why)).ok();
    });
}

/// The sockets that clients come to.
struct Listeners {
    listening: Vec<(Option<u16>, Listening)>,
    kinds: Vec<ListenerKind>,
    local: ListenerKind,
    urls: Vec<String>,
    addresses: Arc<ClientAddresses>,
}

impl Listeners {
    fn bind(
        args: &RunArgs,
        (config, group): (&Config, &GroupConfig),
        reload: &Reload,
        sockets: &InheritedSockets,
        addresses: &Arc<ClientAddresses>,
    ) -> Result<Listeners, RunError> {
        let attempts = Arc::new(Attempts::default());
        let (mut listening, mut kinds, mut urls) = (Vec::new(), Vec::new(), Vec::new());
        for (number, listener) in (0..).zip(&config.listener) {
            let came = sockets.take(&[listener.address]);
            let (mut socket, url) = listen(args, (listener, came), config, reload, &attempts)?;
            let (all, listener) = (Arc::clone(addresses), usize::from(number));
            socket.set_addresses(ListenerAddresses { all, listener });
            // A client that waits at an address that is about to move would wait for ever: it gets
            // its close while the address is still here.
            if let Listening::Tcp(socket, _) = &socket
                && group.floating.is_none()
            {
                sockets.keep(socket).map_err(RunError::System)?;
            }
            say(&LISTENING, &[&url]);
            kinds.push(ListenerKind {
                elsewhere: socket
                    .address()
                    .and_then(|bound| redirect::of(group, number, bound, &url))
                    .map(|Redirect { scheme, host, port }| {
                        Arc::new(Elsewhere { scheme: scheme.into(), host: host.into(), port })
                    }),
                ..socket.kind().clone()
            });
            listening.push((Some(number), socket));
            urls.push(url);
        }
        let local = local_kind(args, config, reload);
        Ok(Listeners { listening, kinds, local, urls, addresses: Arc::clone(addresses) })
    }

    /// Binds the local socket.
    fn bind_local(&mut self, args: &RunArgs, config: &Config) -> Result<(), RunError> {
        let socket = listen_locally(args, config, self.local.clone())?;
        self.listening.push((None, socket));
        Ok(())
    }

    /// Lets clients in, until the tasks are ended.
    fn accept(self, entrance: &Entrance) -> JoinSet<()> {
        let mut accepting = JoinSet::new();
        for (number, listening) in self.listening {
            accepting.spawn(Arc::clone(&entrance.reception).serve(number, listening));
        }
        accepting
    }
}

/// What admits clients, and what makes the status.
struct Entrance {
    reception: Arc<Reception<Serving>>,
    serving: Arc<Serving>,
    view: Arc<View>,
}

fn start_links(
    args: &RunArgs,
    (config, group): (&Config, &GroupConfig),
    opened: &Arc<OpenReplica>,
    admission: &Arc<Admission>,
    (listeners, sockets): (&Listeners, &InheritedSockets),
    reload: &Reload,
) -> Result<Entrance, RunError> {
    let driver = &opened.driver;
    let wrong = |why: String| RunError::Config { file: args.config.clone(), error: why.into() };
    let (this, own) = group.own().map_err(wrong)?;
    let address = &own.address;
    let listener = link::bind(address, |addresses| sockets.take(addresses))
        .and_then(|socket| sockets.keep(&socket).map(|()| socket))
        .map_err(|error| RunError::Listen { address: address.clone(), error })?;
    let builds = Arc::new(parking_lot::Mutex::new(vec![String::new(); group.member.len()]));
    let (clients, seen) = (Arc::new(OnceLock::new()), Arc::new(OnceLock::new()));
    let host = GroupHost {
        opened: Arc::clone(opened),
        clients: Arc::clone(&clients),
        builds: Arc::clone(&builds),
        view: Arc::clone(&seen),
        addresses: Arc::clone(&listeners.addresses),
    };
    let inbox = GroupInbox { driver: Arc::clone(driver), host };
    let terms = agreement::terms(config, group, opened.extent_bytes);
    let settings = LinkSettings::of(&args.name, group, terms, this, Some(listener));
    let links = Links::start(settings, Arc::new(inbox));
    let links = Arc::new(links.map_err(|error| RunError::Tls(error.to_string()))?);
    reload.of_group(&links);
    let serving = Serving::new(driver, &listeners.addresses, opened.clock);
    let serving = Arc::new(serving.map_err(RunError::System)?);
    let reception = Reception::new(
        Arc::clone(&links),
        driver.whereabouts(),
        Arc::clone(&serving),
        Arc::clone(admission),
    );
    let (kinds, local) = (listeners.kinds.clone(), listeners.local.clone());
    let (host, runtime) = (Arc::clone(&reception), links.streams().clone());
    let take = Box::new(move |peer, purpose: StreamPurpose, stream| {
        let StreamPurpose::Relay { listener, client } = purpose else { return };
        let (host, kinds, local) = (Arc::clone(&host), kinds.clone(), local.clone());
        runtime.spawn(async move {
            host.relayed(&kinds, &local, peer, (listener, client), stream).await;
        });
    });
    let taken: Result<(), Box<super::host::TakeClient>> = clients.set(take);
    assert!(taken.is_ok(), "clients are taken in one place");
    driver.set_links(links);
    let addresses = Arc::clone(&listeners.addresses);
    let view =
        Arc::new(View::new(Arc::clone(driver), opened.clock, group.clone(), builds, addresses));
    assert!(seen.set(Arc::clone(&view)).is_ok(), "a status is made in one place");
    Ok(Entrance { reception, serving, view })
}

fn start_threads(
    args: &RunArgs,
    (config, group): (&Config, &GroupConfig),
    opened: &Arc<OpenReplica>,
    (entrance, reload, urls): (&Entrance, &Arc<Reload>, Vec<String>),
    events: UnboundedSender<Event>,
) -> Result<(), RunError> {
    let (elected, serving) = (Arc::clone(opened), Arc::clone(&entrance.serving));
    let view: Arc<dyn GroupView> = entrance.view.clone();
    let (name, of_elected, reload) = (args.name.clone(), config.clone(), Arc::clone(reload));
    let runtime = tokio::runtime::Handle::current();
    let on_elected = move |restart, tail| {
        let (of, back, about) = ((name.as_str(), &of_elected), (restart, tail), (urls, view));
        let made = active::open_door(of, &elected, back, (&serving, &reload), about, &runtime);
        let event = match made {
            Ok(running) => Event::Active(running),
            Err(error) => Event::Failed(error),
        };
        // The receiver is gone when the process ends anyway.
        events.send(event).ok();
    };
    threads::start(opened, (config, group), on_elected).map_err(RunError::System)
}

fn serve_as_active(
    tasks: &mut JoinSet<()>,
    config: &Config,
    opened: &Arc<OpenReplica>,
    view: &Arc<View>,
) {
    threads::serve_as_active(tasks, config, opened);
    let (opened, view) = (Arc::clone(opened), Arc::clone(view));
    tasks.spawn(async move {
        let mut interval = tokio::time::interval(TELL_INTERVAL);
        loop {
            interval.tick().await;
            forget_old_places(&opened.driver);
            view.tell();
        }
    });
}
