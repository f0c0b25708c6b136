//! One process of a group of one instance: what the daemon is, without sockets and signals. It
//! opens the data folder, is elected without a question, serves, and ends in order.
//!
//! Not here: anything of that itself: it is the product's code (`towline_replica` and below).
//! Invariant: it never loses leadership, and never wants a copy: there is no other instance.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use towline_config::{Config, GroupConfig};
use towline_engine::{GroupView, RunningInstance, StartOptions};
use towline_node::Restart;
use towline_os::task::{Handle, JoinSet, interval, sleep};
use towline_process::Clock;
use towline_replica::active::ElectedInstance;
use towline_replica::replica::forget_old_places;
use towline_replica::{OpenReplica, open, threads};
use towline_replication::lifecycle::EndReason;
use towline_types::BatchPlace;

use super::process::{AloneArgs, ProcessVerdict, jobs, until_applied};
use crate::served::look;
use crate::served::no_view::NoView;

/// Between two looks at what may be forgotten.
const FORGET_INTERVAL: Duration = Duration::from_millis(500);
/// Before an instance with a full log re-executes.
const FULL_PAUSE: Duration = Duration::from_secs(2);

enum OneEvent {
    Active(RunningInstance),
    Ends(EndReason),
    Stop,
}

const GROUP: &str = "[group]\nname = 'G'\ninstance = 'a'\ncertificate = ''\nprivate_key = ''\n\
                     authorities = ''\n[[group.member]]\nname = 'a'\naddress = 'a:1'\n";

/// The group of which it is the only instance.
fn group() -> GroupConfig {
    let config = Config::parse(GROUP).ok().and_then(|config| config.group);
    let Some(group) = config else { unreachable!("a configuration of this program") };
    group
}

/// Runs a process to its end.
pub(super) fn run(args: &AloneArgs) {
    args.board.ends(serve(args, &group()));
}

/// Serves as the only instance of `group`; yields how it ended. An error: the start was refused.
fn serve(args: &AloneArgs, group: &GroupConfig) -> Result<ProcessVerdict, String> {
    let config = &args.config;
    let start = (Clock::start(), None);
    let opened = open("QMS", &args.data, (config, group, 0), StartOptions::default(), start);
    let opened = Arc::new(opened.map_err(|error| error.to_string())?);
    let votes = opened.driver.group().may_vote;
    assert!(votes, "its log has all that was committed, whatever became of its hard state");
    let (events, happened) = unbounded_channel();
    let of_end = events.clone();
    opened.driver.set_on_end(move |why| drop(of_end.send(OneEvent::Ends(why))));
    let started = threads::start(&opened, (config, group), on_elected(args, &opened, &events));
    assert!(started.is_ok(), "a coroutine costs nothing");
    let mut tasks = JoinSet::new();
    let (wanted, to_stop) = (Arc::clone(&args.board), events);
    tasks.spawn(async move {
        wanted.stop.notified().await;
        to_stop.send(OneEvent::Stop).ok();
    });
    Ok(attend(args, &opened, happened, tasks))
}

fn attend(
    args: &AloneArgs,
    opened: &Arc<OpenReplica>,
    mut happened: UnboundedReceiver<OneEvent>,
    mut tasks: JoinSet<()>,
) -> ProcessVerdict {
    let handle = Handle::current();
    let mut running: Option<RunningInstance> = None;
    loop {
        let Some(event) = handle.block_on(happened.recv()) else { return ProcessVerdict::Stopped };
        match event {
            OneEvent::Active(active) => {
                threads::serve_as_active(&mut tasks, &args.config, opened);
                let forgets = Arc::clone(opened);
                tasks.spawn(async move {
                    let mut ticks = interval(FORGET_INTERVAL);
                    loop {
                        ticks.tick().await;
                        forget_old_places(&forgets.driver);
                    }
                });
                running = Some(active);
            }
            OneEvent::Ends(why) => {
                assert_eq!(why, EndReason::LogFull, "there is no other instance");
                handle.block_on(sleep(FULL_PAUSE));
                return ProcessVerdict::Stopped;
            }
            OneEvent::Stop => {
                leave(opened, running);
                return ProcessVerdict::Stopped;
            }
        }
    }
}

fn on_elected(
    args: &AloneArgs,
    opened: &Arc<OpenReplica>,
    events: &UnboundedSender<OneEvent>,
) -> impl FnOnce(Restart, BatchPlace) + Send + 'static {
    let (elected, config, board) =
        (Arc::clone(opened), args.config.clone(), Arc::clone(&args.board));
    let (events, queues, number) = (events.clone(), args.queues.clone(), args.number);
    move |restart, tail| {
        let about: (Vec<String>, Arc<dyn GroupView>) = (Vec::new(), Arc::new(NoView));
        let instance = ElectedInstance::of(&config, &elected, (restart, tail), about);
        let door = Arc::clone(instance.door());
        let Ok(running) = instance.serve(&config, jobs(), &Handle::current()) else { return };
        look::define(&door, &queues);
        *board.served.lock() = Some((door, number));
        events.send(OneEvent::Active(running)).ok();
    }
}

/// An end in order, as an operator wants it.
fn leave(opened: &OpenReplica, running: Option<RunningInstance>) {
    let driver = &opened.driver;
    if let Some(door) = opened.door() {
        until_applied(door);
    }
    if let Some(mut running) = running {
        running.stop_housekeeping();
    }
    driver.end();
    let image = match opened.door() {
        Some(door) => opened.images.take_last(door.as_ref()),
        None => opened.images.take_last(opened.replica.as_ref()),
    };
    // The next start reads a longer tail without it.
    drop(image);
    driver.note_committed().ok();
    driver.shutdown();
}
