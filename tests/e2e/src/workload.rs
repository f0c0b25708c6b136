//! Producers and a mover that work in transactions until the daemon is gone, noting what they
//! were told. The client is fe2o3-amqp, which shares no code with the product.
//!
//! Not here: the faults, and the judgement (history.rs). Invariant: a fate is noted as unknown
//! before the commit is sent, and as committed only after its answer.

use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use fe2o3_amqp::link::receiver::CreditMode;
use fe2o3_amqp::sasl_profile::SaslProfile;
use fe2o3_amqp::session::SessionHandle;
use fe2o3_amqp::transaction::{
    Controller, Transaction, TransactionDischarge, TransactionPosting, TransactionRetirement,
};
use fe2o3_amqp::types::messaging::{Header, Message, Outcome};
use fe2o3_amqp::{Connection, Receiver, Sender, Session};
use tokio::time::timeout;

use crate::chance::Chance;
use crate::daemon::Daemon;
use crate::history::{Fate, Found, History, Id, Queue, Unit};
use crate::peer::Peer;
use crate::{Try, fail, require};

/// No answer takes this long while the daemon lives.
const PATIENCE: Duration = Duration::from_secs(20);
/// How long the mover waits for a further message before it commits what it has.
const NO_MORE: Duration = Duration::from_millis(20);
/// Producers in units of work.
const PRODUCERS: u32 = 3;

type Shared = Arc<Mutex<History>>;

/// Clients at work in one round, on a thread of their own.
pub struct Workload {
    thread: JoinHandle<Vec<String>>,
    history: Shared,
}

impl Workload {
    /// Connects all clients and lets them work.
    #[must_use]
    pub fn start(daemon: &Daemon, round: u32, chance: &mut Chance) -> Self {
        let history = Shared::default();
        let (address, noted) = (daemon.url(), Arc::clone(&history));
        let seeds: Vec<u64> = (0..=PRODUCERS + 1).map(|_| chance.bits()).collect();
        let thread = thread::spawn(move || work(&address, round, &seeds, &noted));
        Self { thread, history }
    }

    /// Waits until every client has noticed that the daemon is gone; gives back what they noted.
    ///
    /// # Errors
    /// When a client was refused something before the daemon was gone.
    pub fn end(self) -> Try<History> {
        let Ok(complaints) = self.thread.join() else { fail!("a client panicked") };
        require!(complaints.is_empty(), "clients complain: {complaints:?}");
        let history = self.history.lock().unwrap_or_else(PoisonError::into_inner);
        Ok(history.clone())
    }

    /// Units begun so far.
    #[must_use]
    pub fn units_begun(&self) -> usize {
        self.history.lock().unwrap_or_else(PoisonError::into_inner).count()
    }
}

/// Takes everything out of the round's queues.
///
/// # Errors
/// When a queue cannot be read.
pub fn drain_all(daemon: &Daemon) -> Try<Found> {
    let mut found = Found::new();
    for queue in Queue::ALL {
        let mut peer = Peer::begun(daemon.address())?;
        let bodies = peer.drain(queue.name())?;
        let ids = bodies.iter().map(|body| Id::read(body).ok_or_else(|| body.clone()));
        let ids = ids.collect::<Result<Vec<_>, _>>();
        found.insert(queue, ids.map_err(|body| format!("what is this? {body:?}"))?);
    }
    Ok(found)
}

fn work(address: &str, round: u32, seeds: &[u64], history: &Shared) -> Vec<String> {
    let Ok(runtime) = tokio::runtime::Builder::new_current_thread().enable_all().build() else {
        return vec!["no runtime".into()];
    };
    runtime.block_on(async {
        let mut tasks = tokio::task::JoinSet::new();
        for (at, seed) in (0..).zip(seeds) {
            let client = Client {
                address: address.into(),
                id: Id { round, producer: at, number: 0 },
                chance: Chance::of(*seed),
                history: Arc::clone(history),
            };
            tasks.spawn(client.run());
        }
        let mut complaints = Vec::new();
        while let Some(ended) = tasks.join_next().await {
            match ended {
                Ok(Complaint(None)) => {}
                Ok(Complaint(Some(text))) => complaints.push(text),
                Err(error) => complaints.push(error.to_string()),
            }
        }
        complaints
    })
}

/// What a client has to say at the end; nothing when the daemon was simply gone.
struct Complaint(Option<String>);

struct Client {
    address: String,
    id: Id,
    chance: Chance,
    history: Shared,
}

impl Client {
    async fn run(mut self) -> Complaint {
        let producer = self.id.producer;
        let worked = match producer {
            0 => self.move_messages().await,
            at if at <= PRODUCERS => self.produce_units().await,
            _ => self.produce_singly().await,
        };
        match worked {
            Ok(()) => Complaint(Some(format!("client {producer} stopped by itself"))),
            Err(error) => {
                let text = error.to_string();
                let refused = text.contains("REFUSED") || text.contains("deadline");
                Complaint(refused.then(|| format!("client {producer}: {text}")))
            }
        }
    }

    async fn session(
        &self,
    ) -> Try<(fe2o3_amqp::connection::ConnectionHandle<()>, SessionHandle<()>)> {
        let container = format!("crash-{}-{}", self.id.round, self.id.producer);
        let opening = Connection::builder()
            .container_id(container)
            .sasl_profile(SaslProfile::Anonymous)
            .open(self.address.as_str());
        let mut connection = timeout(PATIENCE, opening).await??;
        let session = timeout(PATIENCE, Session::begin(&mut connection)).await??;
        Ok((connection, session))
    }

    async fn produce_units(&mut self) -> Try {
        let (_connection, mut session) = self.session().await?;
        let mut from =
            timeout(PATIENCE, Sender::attach(&mut session, "from", Queue::From.name())).await??;
        let mut beside =
            timeout(PATIENCE, Sender::attach(&mut session, "beside", Queue::Beside.name()))
                .await??;
        let control = timeout(PATIENCE, Controller::attach(&mut session, "control")).await??;
        loop {
            let plan: Vec<(Queue, Id)> = (0..self.chance.within(1, 6))
                .map(|_| {
                    let queue = if self.chance.percent(50) { Queue::From } else { Queue::Beside };
                    (queue, self.next_id())
                })
                .collect();
            let unit = self.note(Unit::Put(Fate::NotCommitted, plan.clone()));
            let mut work = timeout(PATIENCE, Transaction::declare(&control, None)).await??;
            work.set_rollback_on_drop_trials(0);
            for (queue, id) in plan {
                let sender = if queue == Queue::From { &mut from } else { &mut beside };
                let posting = work.post(sender, self.message(id));
                accepted(&timeout(PATIENCE, posting).await??)?;
            }
            if self.chance.percent(10) {
                timeout(PATIENCE, work.rollback()).await??;
            } else {
                self.commit(unit, work).await?;
            }
        }
    }

    async fn produce_singly(&mut self) -> Try {
        let (_connection, mut session) = self.session().await?;
        let attaching = Sender::attach(&mut session, "single", Queue::Beside.name());
        let mut sender = timeout(PATIENCE, attaching).await??;
        loop {
            let id = self.next_id();
            let unit = self.note(Unit::Put(Fate::Unknown, vec![(Queue::Beside, id)]));
            let sending = sender.send(self.message(id));
            accepted(&timeout(PATIENCE, sending).await??)?;
            self.set_fate(unit, Fate::Committed);
        }
    }

    async fn move_messages(&mut self) -> Try {
        let (_connection, mut session) = self.session().await?;
        let attaching = Receiver::builder()
            .name("from")
            .source(Queue::From.name())
            .credit_mode(CreditMode::Auto(20))
            .attach(&mut session);
        let mut from = timeout(PATIENCE, attaching).await??;
        let mut to =
            timeout(PATIENCE, Sender::attach(&mut session, "to", Queue::To.name())).await??;
        let control = timeout(PATIENCE, Controller::attach(&mut session, "control")).await??;
        loop {
            let mut got = vec![timeout(PATIENCE, from.recv::<String>()).await??];
            for _ in 1..self.chance.within(1, 5) {
                let Ok(next) = timeout(NO_MORE, from.recv::<String>()).await else { break };
                got.push(next?);
            }
            let ids = got.iter().map(|delivery| Id::read(delivery.body()));
            let Some(ids) = ids.collect::<Option<Vec<Id>>>() else { fail!("REFUSED: no id") };
            let unit = self.note(Unit::Move(Fate::NotCommitted, ids.clone()));
            let mut work = timeout(PATIENCE, Transaction::declare(&control, None)).await??;
            work.set_rollback_on_drop_trials(0);
            for (delivery, id) in got.iter().zip(ids) {
                timeout(PATIENCE, work.accept(&mut from, delivery)).await??;
                accepted(&timeout(PATIENCE, work.post(&mut to, self.message(id))).await??)?;
            }
            self.commit(unit, work).await?;
        }
    }

    async fn commit(&mut self, unit: usize, work: Transaction<'_>) -> Try {
        self.set_fate(unit, Fate::Unknown);
        timeout(PATIENCE, work.commit()).await??;
        self.set_fate(unit, Fate::Committed);
        Ok(())
    }

    fn next_id(&mut self) -> Id {
        let id = self.id;
        self.id.number += 1;
        id
    }

    fn message(&mut self, id: Id) -> Message<fe2o3_amqp::types::messaging::AmqpValue<String>> {
        let padding = "x".repeat(self.chance.index(3000));
        let header = Header { durable: true, ..Header::default() };
        Message::builder().header(header).value(format!("{id} {padding}")).build()
    }

    fn note(&self, unit: Unit) -> usize {
        self.history.lock().unwrap_or_else(PoisonError::into_inner).begin(unit)
    }

    fn set_fate(&self, unit: usize, fate: Fate) {
        self.history.lock().unwrap_or_else(PoisonError::into_inner).set_fate(unit, fate);
    }
}

fn accepted(outcome: &Outcome) -> Try {
    require!(matches!(outcome, Outcome::Accepted(_)), "REFUSED: {outcome:?}");
    Ok(())
}
