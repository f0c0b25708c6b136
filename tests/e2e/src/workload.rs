//! Producers and a mover that work in transactions until the daemon is gone, or, with a list of
//! addresses, until they are stopped, recording the answers that they get. The client is
//! fe2o3-amqp, which shares no code with the product.
//!
//! Not here: the faults, and the judgement (history.rs). Invariant: a fate is noted as unknown
//! before the commit is sent, and as committed only after its answer.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use fe2o3_amqp::link::receiver::CreditMode;
use fe2o3_amqp::sasl_profile::SaslProfile;
use fe2o3_amqp::session::SessionHandle;
use fe2o3_amqp::transaction::{
    Controller, Transaction, TransactionDischarge, TransactionPosting, TransactionRetirement,
};
use fe2o3_amqp::types::messaging::{Header, Message, Outcome, Properties};
use fe2o3_amqp::{Connection, Receiver, Sender, Session};
use tokio::sync::oneshot;
use tokio::task::JoinSet;
use tokio::time::timeout;

use crate::chance::Chance;
use crate::daemon::Daemon;
use crate::history::{Contents, Fate, GIVEN_MAX, History, Id, Queue, Unit};
use crate::peer::Peer;
use crate::{Try, fail, require};

/// No answer takes this long while the daemon lives.
const PATIENCE: Duration = Duration::from_secs(20);
/// A client with a list of addresses tries the next one when an answer takes so long.
const PATIENCE_WITH_LIST: Duration = Duration::from_secs(5);
/// Before it tries the next one.
const BEFORE_NEXT: Duration = Duration::from_millis(50);
/// Between units of a client with a list, which works for as long as faults last: what it puts must
/// fit on small disks.
const BETWEEN_UNITS: Duration = Duration::from_millis(40);
/// How many of a hundred messages have a body of several chunks.
const LARGE_PERCENT: u64 = 3;
/// The same for clients with a list.
const LARGE_PERCENT_WITH_LIST: u64 = 1;
/// What is under way ends in this time, or is left as it is.
const END_MAX: Duration = Duration::from_secs(15);
/// How long the mover waits for a further message before it commits what it has.
const NO_MORE: Duration = Duration::from_millis(20);
/// How long it waits for the first one, between looks whether it shall end.
const LOOK_UP: Duration = Duration::from_millis(200);
/// Messages that the mover is sent before it takes them.
const CREDIT: u32 = 20;
// And those of its unit of work.
const _: () = assert!(CREDIT as usize + 4 < GIVEN_MAX);
/// Producers in units of work.
const PRODUCERS: u32 = 3;

type Shared = Arc<Mutex<History>>;

/// Clients at work in one round, on a thread of their own.
pub struct Workload {
    thread: JoinHandle<Vec<String>>,
    history: Shared,
    gone: oneshot::Sender<()>,
    ending: Arc<AtomicBool>,
}

/// What the clients of a round have in common.
#[derive(Clone)]
struct Round {
    /// One, or a fail-over list.
    addresses: Vec<String>,
    /// Whether a client that loses its connection goes on with the next address.
    returns: bool,
    number: u32,
    history: Shared,
    /// Set: no unit is begun any more.
    ending: Arc<AtomicBool>,
}

impl Workload {
    /// Connects all clients and lets them work.
    #[must_use]
    pub fn start(daemon: &Daemon, round: u32, chance: &mut Chance) -> Self {
        Self::begin(vec![daemon.url()], false, round, chance)
    }

    /// The same with a fail-over list: clients that lose their connection, or that are refused
    /// something, go on elsewhere.
    #[must_use]
    pub fn start_returning(addresses: Vec<String>, round: u32, chance: &mut Chance) -> Self {
        Self::begin(addresses, true, round, chance)
    }

    fn begin(addresses: Vec<String>, returns: bool, number: u32, chance: &mut Chance) -> Self {
        let (history, ending) = (Shared::default(), Arc::default());
        let round = Round { addresses, returns, number, history, ending };
        let (history, ending) = (Arc::clone(&round.history), Arc::clone(&round.ending));
        let seeds: Vec<u64> = (0..=PRODUCERS + 1).map(|_| chance.bits()).collect();
        let (gone, notice) = oneshot::channel();
        let thread = thread::spawn(move || work(&round, &seeds, notice));
        Self { thread, history, gone, ending }
    }

    /// The daemon is gone: stops every client where it is, and gives back what they noted.
    ///
    /// # Errors
    /// When a client was refused something before the daemon was gone.
    pub fn end(self) -> Try<History> {
        // The clients' thread waits for the other half; it may have ended already, with every
        // client.
        drop(self.gone);
        let Ok(complaints) = self.thread.join() else { fail!("a client panicked") };
        require!(complaints.is_empty(), "clients complain: {complaints:?}");
        let history = self.history.lock().unwrap_or_else(PoisonError::into_inner);
        Ok(history.clone())
    }

    /// Lets every client end its unit and close its connection, and gives back what they noted.
    ///
    /// # Errors
    /// When a client panicked.
    pub fn finish(self) -> Try<History> {
        self.ending.store(true, Ordering::SeqCst);
        let Ok(complaints) = self.thread.join() else { fail!("a client panicked") };
        require!(complaints.is_empty(), "clients complain: {complaints:?}");
        let history = self.history.lock().unwrap_or_else(PoisonError::into_inner);
        Ok(history.clone())
    }

    /// Units with an answered commit so far.
    #[must_use]
    pub fn units_committed(&self) -> usize {
        self.history.lock().unwrap_or_else(PoisonError::into_inner).committed()
    }

    /// Units begun so far.
    #[must_use]
    pub fn units_begun(&self) -> usize {
        self.history.lock().unwrap_or_else(PoisonError::into_inner).count()
    }
}

/// Takes everything out of the round's queues, for good: no answer says that what was got is
/// removed on the disk, and on a busy machine a kill or a cut may come before that. So a put
/// follows, whose answer says it of all that stands before it in the log.
///
/// # Errors
/// When a queue cannot be read.
pub fn drain_all(daemon: &Daemon) -> Try<Contents> {
    let found = drain_at(daemon.address())?;
    let mut peer = Peer::begun(daemon.address())?;
    peer.attach_sender(0, "DRAINED")?;
    peer.put(0, 0, b"what was got before is gone")?;
    Ok(found)
}

/// The same at an address, host and port.
///
/// # Errors
/// When a queue cannot be read.
pub fn drain_at(address: &str) -> Try<Contents> {
    contents(|queue| Peer::begun(address)?.drain(queue.name()))
}

/// What is in the queues, which stays there. `each` is called after each message, with its number
/// in its queue.
///
/// # Errors
/// When a queue cannot be read.
pub fn browse_at(address: &str, each: &mut dyn FnMut(Queue, usize) -> Try) -> Try<Contents> {
    contents(|queue| Peer::begun(address)?.browse(queue.name(), &mut |number| each(queue, number)))
}

fn contents(mut read: impl FnMut(Queue) -> Try<Vec<String>>) -> Try<Contents> {
    let mut found = Contents::new();
    for queue in Queue::ALL {
        let bodies = read(queue)?;
        let ids = bodies.iter().map(|body| Id::read(body).ok_or_else(|| body.clone()));
        let ids = ids.collect::<Result<Vec<_>, _>>();
        found.insert(queue, ids.map_err(|body| format!("what is this? {body:?}"))?);
    }
    Ok(found)
}

fn work(round: &Round, seeds: &[u64], gone: oneshot::Receiver<()>) -> Vec<String> {
    let Ok(runtime) = tokio::runtime::Builder::new_current_thread().enable_all().build() else {
        return vec!["no runtime".into()];
    };
    runtime.block_on(async {
        let mut tasks = JoinSet::new();
        for (at, seed) in (0..).zip(seeds) {
            let client = Client {
                round: round.clone(),
                id: Id { round: round.number, producer: at, number: 0 },
                chance: Chance::of(*seed),
            };
            tasks.spawn(client.run());
        }
        let mut complaints = Vec::new();
        tokio::select! {
            _ = gone => {}
            () = overdue(round) => {}
            () = listen(&mut tasks, &mut complaints) => {}
        }
        // The client library does not always notice a connection that is gone; no thread waits for
        // it.
        tasks.abort_all();
        complaints
    })
}

/// Comes when clients were stopped, and have had the time to end.
async fn overdue(round: &Round) {
    while !round.is_ending() {
        tokio::time::sleep(BEFORE_NEXT).await;
    }
    tokio::time::sleep(END_MAX).await;
}

/// Waits for clients that end, and notes what they complain about.
async fn listen(tasks: &mut JoinSet<Complaint>, complaints: &mut Vec<String>) {
    while let Some(ended) = tasks.join_next().await {
        match ended {
            Ok(Complaint(None)) => {}
            Ok(Complaint(Some(text))) => complaints.push(text),
            Err(error) => complaints.push(error.to_string()),
        }
    }
}

/// What a client has to say at the end; nothing when the daemon was simply gone.
struct Complaint(Option<String>);

struct Client {
    round: Round,
    id: Id,
    chance: Chance,
}

impl Round {
    fn is_ending(&self) -> bool {
        self.ending.load(Ordering::SeqCst)
    }

    async fn rest(&self) {
        if self.returns {
            tokio::time::sleep(BETWEEN_UNITS).await;
        }
    }

    fn patience(&self) -> Duration {
        if self.returns { PATIENCE_WITH_LIST } else { PATIENCE }
    }
}

impl Client {
    async fn run(mut self) -> Complaint {
        let producer = self.id.producer;
        // Not all at the first address: any instance of a group takes clients.
        let mut next = producer as usize;
        loop {
            let addresses = &self.round.addresses;
            let address = addresses[next % addresses.len()].clone();
            let worked = self.work_at(&address).await;
            if self.round.returns {
                if self.round.is_ending() {
                    return Complaint(None);
                }
                next += 1;
                if producer == 0 {
                    self.history().mover_returns();
                }
                tokio::time::sleep(BEFORE_NEXT).await;
                continue;
            }
            return match worked {
                Ok(()) => Complaint(Some(format!("client {producer} stopped by itself"))),
                Err(error) => {
                    let text = error.to_string();
                    let refused = text.contains("REFUSED") || text.contains("deadline");
                    Complaint(refused.then(|| format!("client {producer}: {text}")))
                }
            };
        }
    }

    /// Works over one connection, until it is lost or the client is stopped.
    async fn work_at(&mut self, address: &str) -> Try {
        let (mut connection, mut session) = self.session(address).await?;
        let patience = self.round.patience();
        // The library does not always report to a waiting caller that no answer can come any more.
        tokio::select! {
            biased;
            worked = self.work_in(&mut session) => worked?,
            closed = connection.on_close() => fail!("the connection ended: {closed:?}"),
        }
        timeout(patience, session.end()).await??;
        timeout(patience, connection.close()).await??;
        Ok(())
    }

    async fn work_in(&mut self, session: &mut SessionHandle<()>) -> Try {
        match self.id.producer {
            0 => self.move_messages(session).await,
            at if at <= PRODUCERS => self.produce_units(session).await,
            _ => self.produce_singly(session).await,
        }
    }

    async fn session(
        &self,
        address: &str,
    ) -> Try<(fe2o3_amqp::connection::ConnectionHandle<()>, SessionHandle<()>)> {
        let container = format!("crash-{}-{}", self.id.round, self.id.producer);
        let patience = self.round.patience();
        let opening = Connection::builder()
            .container_id(container)
            .sasl_profile(SaslProfile::Anonymous)
            .open(address);
        let mut connection = timeout(patience, opening).await??;
        let session = timeout(patience, Session::begin(&mut connection)).await??;
        Ok((connection, session))
    }

    async fn produce_units(&mut self, session: &mut SessionHandle<()>) -> Try {
        let patience = self.round.patience();
        let mut from =
            timeout(patience, Sender::attach(session, "from", Queue::From.name())).await??;
        let mut beside =
            timeout(patience, Sender::attach(session, "beside", Queue::Beside.name())).await??;
        let control = timeout(patience, Controller::attach(session, "control")).await??;
        while !self.round.is_ending() {
            self.round.rest().await;
            let plan: Vec<(Queue, Id)> = (0..self.chance.within(1, 6))
                .map(|_| {
                    let queue = if self.chance.percent(50) { Queue::From } else { Queue::Beside };
                    (queue, self.next_id())
                })
                .collect();
            let unit = self.note(Unit::Put(Fate::NotCommitted, plan.clone()));
            let mut work = timeout(patience, Transaction::declare(&control, None)).await??;
            work.set_rollback_on_drop_trials(0);
            for (queue, id) in plan {
                let sender = if queue == Queue::From { &mut from } else { &mut beside };
                let posting = work.post(sender, self.message(id));
                accepted(&timeout(patience, posting).await??)?;
            }
            if self.chance.percent(10) {
                timeout(patience, work.rollback()).await??;
            } else {
                self.commit(unit, work).await?;
            }
        }
        Ok(())
    }

    async fn produce_singly(&mut self, session: &mut SessionHandle<()>) -> Try {
        let patience = self.round.patience();
        let attaching = Sender::attach(session, "single", Queue::Beside.name());
        let mut sender = timeout(patience, attaching).await??;
        while !self.round.is_ending() {
            self.round.rest().await;
            let id = self.next_id();
            let unit = self.note(Unit::Put(Fate::Unknown, vec![(Queue::Beside, id)]));
            let sending = sender.send(self.message(id));
            accepted(&timeout(patience, sending).await??)?;
            self.set_fate(unit, Fate::Committed);
        }
        Ok(())
    }

    async fn move_messages(&mut self, session: &mut SessionHandle<()>) -> Try {
        let patience = self.round.patience();
        let attaching = Receiver::builder()
            .name("from")
            .source(Queue::From.name())
            .credit_mode(CreditMode::Auto(CREDIT))
            .attach(session);
        let mut from = timeout(patience, attaching).await??;
        let mut to = timeout(patience, Sender::attach(session, "to", Queue::To.name())).await??;
        let control = timeout(patience, Controller::attach(session, "control")).await??;
        while !self.round.is_ending() {
            // Not for long: when producers have ended, nothing comes any more.
            let Ok(first) = timeout(LOOK_UP, from.recv::<String>()).await else { continue };
            let mut got = vec![first?];
            for _ in 1..self.chance.within(1, 5) {
                let Ok(next) = timeout(NO_MORE, from.recv::<String>()).await else { break };
                got.push(next?);
            }
            let ids = got.iter().map(|delivery| Id::read(delivery.body()));
            let Some(ids) = ids.collect::<Option<Vec<Id>>>() else { fail!("REFUSED: no id") };
            let unit = self.note(Unit::Move(Fate::NotCommitted, ids.clone()));
            let mut work = timeout(patience, Transaction::declare(&control, None)).await??;
            work.set_rollback_on_drop_trials(0);
            for (delivery, id) in got.iter().zip(ids) {
                timeout(patience, work.accept(&mut from, delivery)).await??;
                accepted(&timeout(patience, work.post(&mut to, self.message(id))).await??)?;
            }
            self.commit(unit, work).await?;
        }
        Ok(())
    }

    async fn commit(&mut self, unit: usize, work: Transaction<'_>) -> Try {
        let patience = self.round.patience();
        self.set_fate(unit, Fate::Unknown);
        timeout(patience, work.commit()).await??;
        self.set_fate(unit, Fate::Committed);
        Ok(())
    }

    fn next_id(&mut self) -> Id {
        let id = self.id;
        self.id.number += 1;
        id
    }

    fn message(&mut self, id: Id) -> Message<fe2o3_amqp::types::messaging::AmqpValue<String>> {
        // Now and then a body of several chunks, so that a unit spans batches.
        let large = if self.round.returns { LARGE_PERCENT_WITH_LIST } else { LARGE_PERCENT };
        let most = if self.chance.percent(large) { 1_500_000 } else { 3_000 };
        let padding = "x".repeat(self.chance.index(most));
        let header = Header { durable: true, ..Header::default() };
        // As a log lists messages.
        let properties = Properties::builder().message_id(id.to_string()).build();
        let message = Message::builder().header(header).properties(properties);
        message.value(format!("{id} {padding}")).build()
    }

    fn history(&self) -> MutexGuard<'_, History> {
        self.round.history.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn note(&self, unit: Unit) -> usize {
        self.history().begin(unit)
    }

    fn set_fate(&self, unit: usize, fate: Fate) {
        self.history().set_fate(unit, fate);
    }
}

fn accepted(outcome: &Outcome) -> Try {
    require!(matches!(outcome, Outcome::Accepted(_)), "REFUSED: {outcome:?}");
    Ok(())
}
