//! Asks the other instances of a group in the name of one that does not run: how they are, because
//! an operator wants to know before its log is replaced or its vote forced; for batches, because
//! its log is damaged and it cannot start ([`Asker`]).
//!
//! Meanwhile it gives others that are in the same need what it has ([`Asker::listen`]).
//!
//! Not here: what follows from the answers (the command). Invariants: no connection for frames is
//! made, nor taken, so nothing is reported to any member; no answer is waited for longer than
//! [`ANSWER_MAX`], and all of them together no longer than the caller wants.

use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use tokio::io::AsyncReadExt;
use tokio::runtime::Runtime;
use tokio::time::timeout;
use towline_group::Start;
use towline_types::{FORMAT_LEVEL, FormatLevels};

use super::hello::{Greeting, Standing, StreamPurpose};
use super::rotation::RotatingIdentity;
use super::settings::bind;
use super::stream::LinkStream;
use super::terms::Terms;
use super::throttle::Throttle;
use super::{Inbox, Lane, LinkSettings, Peer, Shared, StartsReport, dial, handshakes, threads};
use towline_config::GroupConfig;

/// Until the answer of one instance is there.
const ANSWER_MAX: Duration = Duration::from_secs(5);
/// The longest answer.
const ANSWER_BYTES_MAX: u64 = 1 << 20;

/// The answer of one member.
pub struct MemberAnswer {
    /// Its name.
    pub name: String,
    /// What it said, or why it did not.
    pub said: Result<Vec<u8>, String>,
}

/// Asks all members but `this`, one after the other, within `longest`.
///
/// # Errors
/// When the certificates of `this` cannot be used.
pub fn ask(
    queue_manager: &str,
    config: &GroupConfig,
    this: Peer,
    longest: Duration,
) -> Result<Vec<MemberAnswer>, String> {
    let asker = Asker::new(queue_manager, config, this)?;
    let began = Instant::now();
    let others: Vec<Peer> = (0..config.member.len()).filter(|peer| *peer != this).collect();
    let still_to_ask = (1..=u32::try_from(others.len()).unwrap_or(u32::MAX)).rev();
    let answers = others.into_iter().zip(still_to_ask).map(|(peer, still_to_ask)| {
        // One that hangs leaves the next one its share.
        let share = longest.saturating_sub(began.elapsed()) / still_to_ask;
        let answer = asker.runtime.block_on(async {
            let late = || io::Error::new(io::ErrorKind::TimedOut, "no answer in time");
            let answer = timeout(share.min(ANSWER_MAX), answer(&asker, peer));
            answer.await.unwrap_or_else(|_| Err(late()))
        });
        let name = asker.shared.settings.name(peer).to_owned();
        MemberAnswer { name, said: answer.map_err(|error| error.to_string()) }
    });
    Ok(answers.collect())
}

/// What opens streams in the name of an instance that does not run.
pub struct Asker {
    shared: Shared,
    runtime: Runtime,
}

impl Asker {
    /// Of the instance `this`.
    ///
    /// # Errors
    /// When its certificates cannot be used.
    pub fn new(queue_manager: &str, config: &GroupConfig, this: Peer) -> Result<Asker, String> {
        let runtime = threads::runtime().map_err(|error| error.to_string())?;
        let asking = Asking { gives: None };
        let shared = shared(queue_manager, config, this, asking, &runtime)?;
        Ok(Asker { shared, runtime })
    }

    /// Lets peers ask this instance for batches, while it is polled; `give` gets their streams.
    /// Whatever else they want is refused.
    ///
    /// # Errors
    /// When the address is taken, or certificates cannot be used.
    pub fn listen(
        &self,
        queue_manager: &str,
        config: &GroupConfig,
        this: Peer,
        give: Give,
    ) -> Result<(), String> {
        let asking = Asking { gives: Some(give) };
        let shared = shared(queue_manager, config, this, asking, &self.runtime)?;
        let address = shared.settings.address(this);
        let listener = bind(address, |_| None).map_err(|error| error.to_string())?;
        self.runtime.spawn(handshakes::accept(Arc::new(shared), listener));
        Ok(())
    }

    /// Opens a stream to a peer.
    ///
    /// # Errors
    /// When the peer cannot be reached, is not trusted, or does not take it.
    pub async fn stream(&self, peer: Peer, purpose: &StreamPurpose) -> io::Result<LinkStream> {
        dial::stream(&self.shared, peer, purpose).await
    }

    /// Where it is to be polled.
    pub fn runtime(&self) -> &Runtime {
        &self.runtime
    }
}

/// Gets the stream of a peer that asks for a batch, on the thread of the runtime.
pub(crate) type Give = Box<dyn Fn(Peer, LinkStream) + Send + Sync>;

fn shared(
    queue_manager: &str,
    config: &GroupConfig,
    this: Peer,
    asking: Asking,
    runtime: &Runtime,
) -> Result<Shared, String> {
    let settings = LinkSettings::of(queue_manager, config, Terms::default(), this, None);
    let names = settings.names(settings.this);
    let identity = RotatingIdentity::read(settings.identity.clone(), names)?;
    let lanes = settings.members.iter().map(|_| Lane::default()).collect();
    Ok(Shared {
        settings,
        inbox: Arc::new(asking),
        identity: Arc::new(identity),
        lanes,
        began: Instant::now(),
        refusals: Throttle::default(),
        streams: runtime.handle().clone(),
    })
}

async fn answer(asker: &Asker, peer: Peer) -> io::Result<Vec<u8>> {
    let stream = asker.stream(peer, &StreamPurpose::Status).await?;
    let mut answer = Vec::new();
    stream.take(ANSWER_BYTES_MAX).read_to_end(&mut answer).await?;
    Ok(answer)
}

/// What is reported to peers that need more.
const REPAIRS: &str = "its log is damaged, and it waits for an instance that has what it lacks";

/// A peer that only asks receives nothing, except for the same question.
struct Asking {
    gives: Option<Give>,
}

impl Inbox for Asking {
    fn standing(&self) -> Standing {
        Standing { blank: true, ..Standing::default() }
    }

    fn levels(&self) -> FormatLevels {
        FormatLevels { read: FORMAT_LEVEL, ..FormatLevels::default() }
    }

    fn known(&self, _peer: Peer) -> StartsReport {
        StartsReport::default()
    }

    fn greets(&self, _peer: Peer, _greeting: &Greeting) -> Result<(), String> {
        Err(REPAIRS.into())
    }

    fn declared(&self, _peer: Peer, _start: Start) -> Result<(), String> {
        Ok(())
    }

    fn opened(&self, _peer: Peer, _incoming: bool, _greeting: &Greeting) {}

    fn closed(&self, _peer: Peer, _incoming: bool) {}

    fn frame(&self, _peer: Peer, _kind: u8, _body: Bytes) -> Result<(), String> {
        Ok(())
    }

    fn admits(&self, _peer: Peer, purpose: &StreamPurpose) -> Result<(), String> {
        match purpose {
            StreamPurpose::Batch if self.gives.is_some() => Ok(()),
            StreamPurpose::Batch
            | StreamPurpose::Relay { .. }
            | StreamPurpose::Copy
            | StreamPurpose::Status => Err(REPAIRS.into()),
        }
    }

    fn stream(&self, peer: Peer, _purpose: StreamPurpose, stream: LinkStream) {
        if let Some(give) = &self.gives {
            give(peer, stream);
        }
    }
}
