//! The connection that this side dials while it is the one that ships: kept, and dialled again.
//!
//! In one try the addresses are dialled in order, until one takes the connection: an instance that
//! cannot be reached, is not trusted, or refuses (because it is not the relay) leaves the turn to
//! the next one. After a connection ended, and after each pause, the first address is tried first.
//!
//! Not here: how long the pauses are (`retry`), what goes over the connection (`connection`).

use std::io;
use std::sync::Arc;
use std::time::Duration;

use bytes::BytesMut;
use rustls::pki_types::{ServerName, UnixTime};
use tokio::net::TcpStream;
use tokio::sync::watch;
use tokio::time::{Instant, timeout};
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;
use towline_admin::catalogue::REGION_UNREACHABLE;
use towline_logging::log;
use towline_tls::in_date;

use super::connection::{LinkOver, NewLink, serve};
use super::hello::{self, RegionGreeting, RegionHello, RegionMatter};
use super::retry::{self, NextTry, RetryPhase, RetrySchedule};
use super::{Condition, RegionShared, connection};
use crate::names::{self, own_certificate};
use crate::socket::{HANDSHAKE_MAX, bound_unsent, tune};
use crate::stream::LinkStream;
use crate::text::{in_words, printable};

/// Why a connection ends when this side stops dialling.
const NO_LONGER: &str = "this group no longer ships its log";

/// Dials while [`super::RegionLinks::dial`] says so.
pub(super) async fn keep(shared: Arc<RegionShared>) {
    let mut dialling = shared.dialling.subscribe();
    let mut schedule = RetrySchedule::new(shared.settings.retries);
    loop {
        if !*dialling.borrow_and_update() {
            set_phase(&shared, RetryPhase::Off);
            shared.condition.lock().trouble.clear();
            if wait_for(&mut dialling, true).await.is_err() {
                return;
            }
            schedule.reset();
            set_phase(&shared, RetryPhase::First);
        }
        let tried = tokio::select! {
            biased;
            _ = wait_for(&mut dialling, false) => continue,
            tried = try_all(&shared) => tried,
        };
        let length = match tried {
            Ok(new) => {
                let address = Arc::clone(&new.address);
                connected(&shared, &address);
                let began = Instant::now();
                let mut dialling = dialling.clone();
                let LinkOver { why, is_refused } = serve(&shared, new, async move {
                    wait_for(&mut dialling, false).await.ok();
                    NO_LONGER
                })
                .await;
                let next = schedule.ended(began.elapsed(), is_refused);
                ended(&shared, (next, is_refused), format!("{address}: {why}"))
            }
            Err(why) => failed(&shared, &mut schedule, why),
        };
        let short_timer = shared.settings.retries.short_timer;
        tokio::select! {
            biased;
            _ = wait_for(&mut dialling, false) => {}
            ordered = retry::pause(&shared.kicks, length, short_timer) => {
                if ordered {
                    schedule.reset();
                }
            }
        }
    }
}

/// Waits until this side dials, or does no longer.
async fn wait_for(
    dialling: &mut watch::Receiver<bool>,
    wanted: bool,
) -> Result<(), watch::error::RecvError> {
    dialling.wait_for(|dials| *dials == wanted).await.map(drop)
}

fn set_phase(shared: &RegionShared, phase: RetryPhase) {
    shared.condition.lock().phase = phase;
}

fn connected(shared: &RegionShared, address: &Arc<str>) {
    let mut condition = shared.condition.lock();
    condition.phase = RetryPhase::Connected;
    condition.address = Arc::clone(address);
    condition.trouble.clear();
}

/// A connection ended, which is logged, unless it was refused as the one before: how long to wait
/// is returned.
fn ended(shared: &RegionShared, (next, is_refused): (NextTry, bool), why: String) -> Duration {
    if is_refused && next.begins && next.phase == RetryPhase::Long {
        says_unreachable(shared, next, &why);
    }
    let mut condition = shared.condition.lock();
    *condition = Condition { phase: next.phase, address: Arc::from(""), trouble: why };
    next.pause
}

/// A try failed: how long to wait is returned.
fn failed(shared: &RegionShared, schedule: &mut RetrySchedule, why: String) -> Duration {
    let next = schedule.failed();
    let settings = &shared.settings;
    if next.is_reported(settings.report_each_try) {
        says_unreachable(shared, next, &why);
    }
    let mut condition = shared.condition.lock();
    condition.phase = next.phase;
    condition.trouble = why;
    next.pause
}

fn says_unreachable(shared: &RegionShared, next: NextTry, why: &str) {
    let seconds = next.pause.as_secs_f64().to_string();
    let group = &shared.settings.other_group;
    log(&REGION_UNREACHABLE, &[group, why, &seconds, next.phase.name()]);
}

/// A connection for frames to the first address that takes it.
///
/// # Errors
/// The reason of each address.
async fn try_all(shared: &RegionShared) -> Result<NewLink, String> {
    let mut reasons = Vec::new();
    for (at, address) in shared.settings.addresses.iter().enumerate() {
        match connect(shared, at, address, RegionMatter::Frames).await {
            Ok(dialled) => {
                let DialledRegion { stream, hello } = dialled;
                let address = Arc::clone(address);
                let input = BytesMut::new();
                return Ok(NewLink {
                    stream: stream.into(),
                    input,
                    incoming: false,
                    address,
                    hello,
                });
            }
            Err(error) => reasons.push(format!("{address}: {error}")),
        }
    }
    Err(reasons.join("; "))
}

/// A stream for a copy.
///
/// # Errors
/// The reason of each address that was tried.
pub(super) async fn stream(shared: &RegionShared) -> io::Result<(RegionHello, LinkStream)> {
    let connected = Arc::clone(&shared.condition.lock().address);
    let addresses = shared.settings.addresses.iter().enumerate();
    let wanted = |address: &Arc<str>| connected.is_empty() || *address == connected;
    let mut reasons = Vec::new();
    let mut kind = io::ErrorKind::NotConnected;
    for (at, address) in addresses.filter(|(_, address)| wanted(address)) {
        match connect(shared, at, address, RegionMatter::Copy).await {
            Ok(DialledRegion { stream, hello }) => return Ok((hello, LinkStream::new(stream))),
            Err(error) => {
                kind = error.kind();
                reasons.push(format!("{address}: {error}"));
            }
        }
    }
    Err(io::Error::new(kind, reasons.join("; ")))
}

/// A connection on which TLS and hello are done.
pub(super) struct DialledRegion {
    pub(super) stream: TlsStream<TcpStream>,
    hello: RegionHello,
}

/// Dials one address.
///
/// # Errors
/// When it cannot be reached, is not trusted, or does not take the connection.
pub(super) async fn connect(
    shared: &RegionShared,
    at: usize,
    address: &str,
    matter: RegionMatter,
) -> io::Result<DialledRegion> {
    let late = |what: &str| io::Error::new(io::ErrorKind::TimedOut, what.to_owned());
    let longest = shared.settings.heartbeat_timeout.min(HANDSHAKE_MAX);
    let socket = timeout(longest, TcpStream::connect(address));
    let socket = socket.await.map_err(|_| late("no answer"))??;
    tune(&socket, None)?;
    if matter == RegionMatter::Frames {
        bound_unsent(&socket)?;
    }
    let greeted = timeout(HANDSHAKE_MAX, greet(shared, at, socket, matter));
    greeted.await.map_err(|_| late("no answer to the handshake"))?
}

async fn greet(
    shared: &RegionShared,
    at: usize,
    socket: TcpStream,
    matter: RegionMatter,
) -> io::Result<DialledRegion> {
    let settings = &shared.settings;
    let identity = shared.identity.in_force();
    let for_frames = matter == RegionMatter::Frames;
    let config = if for_frames { &identity.client_frames } else { &identity.client_stream };
    // Not sent: the certificate is checked for the instance's name below. Tickets are kept by it.
    let name = format!("region-{at}.towline.invalid");
    let name = ServerName::try_from(name).map_err(io::Error::other)?;
    let connector = TlsConnector::from(Arc::clone(config));
    let mut stream = connector.connect(name, socket).await.map_err(in_words)?;
    let refused = |why: String| io::Error::new(io::ErrorKind::PermissionDenied, why);
    let shown = stream.get_ref().1.peer_certificates();
    let certificate = own_certificate(shown);
    let certificate = certificate.ok_or_else(|| refused("it showed no certificate".into()))?;
    // What this side says of itself is for instances of the other group alone.
    let certificate = certificate.clone();
    names::of_group(&certificate, &settings.queue_manager, &settings.other_group)
        .map_err(refused)?;
    in_date(shown, UnixTime::now()).map_err(refused)?;
    let greeting = RegionGreeting::of(settings, matter, shared.inbox.hello());
    let greeting = greeting.encode().map_err(refused)?;
    // When it fails the reason can still be read, and is a better one.
    hello::say(&mut stream, &greeting).await.ok();
    let answer = hello::hear(&mut stream, true).await.map_err(in_words)?;
    if let RegionMatter::Refused(why) = &answer.matter {
        let why = refused(format!("it refused: {}", printable(why)));
        let said = judge(shared, answer, &certificate).ok().filter(|it| !it.sections.is_empty());
        said.iter().for_each(|hello| shared.inbox.refused(hello));
        return Err(why);
    }
    let judged = judge(shared, answer, &certificate).and_then(|hello| {
        if for_frames {
            shared.inbox.greets(false, &hello)?;
        }
        Ok(hello)
    });
    if for_frames {
        connection::confirm(&mut stream, judged.as_ref().err()).await?;
    }
    let hello = judged.map_err(|why| refused(format!("refused here: {why}")))?;
    Ok(DialledRegion { stream, hello })
}

/// What the other end says of itself, if that is an instance of the other group.
fn judge(
    shared: &RegionShared,
    answer: RegionGreeting,
    certificate: &rustls::pki_types::CertificateDer<'_>,
) -> Result<RegionHello, String> {
    let version = answer.version()?;
    answer.agrees(&shared.settings)?;
    names::belongs(certificate, &shared.settings.other_names(&answer.instance))?;
    Ok(answer.into_hello(version))
}
