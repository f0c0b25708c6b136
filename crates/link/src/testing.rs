//! Links over loopback, with real TLS: a group's addresses and certificates, and an inbox that
//! records. For the tests of this crate, and with the feature `testing` for those of others.

pub mod region;

use std::fs;
use std::future::Future;
use std::net::TcpListener;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use bytes::Bytes;
use parking_lot::{Condvar, Mutex};
use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
    KeyUsagePurpose,
};
use tempfile::TempDir;
use towline_config::RegionCiphers;
use towline_group::Start;
use towline_types::FormatLevels;

use crate::identity::IdentityFiles;
use crate::settings::{LinkSettings, Member};
use crate::{Greeting, Inbox, LinkStream, Links, Peer, Standing, StartsReport, StreamPurpose};

/// Far beyond what anything here takes.
pub const LONG: Duration = Duration::from_secs(60);
/// Of the members.
pub const NAMES: [&str; 3] = ["a", "b", "c"];
/// A frame that the inbox does not believe.
pub const FORGED: &[u8] = b"forged";

/// What an inbox received.
#[derive(Clone, Debug, PartialEq)]
pub enum Observation {
    Opened(Peer, bool, Greeting),
    Closed(Peer, bool),
    Declared(Peer, Start),
    Frame(Peer, u8, Bytes),
    Stream(Peer, StreamPurpose),
}

/// An inbox that keeps what it received.
pub struct Recorder {
    pub standing: Standing,
    pub observed: Mutex<Vec<Observation>>,
    pub streams: Mutex<Vec<LinkStream>>,
    pub changed: Condvar,
    /// While it is set, frames are not taken.
    pub stopped: Mutex<bool>,
    pub go_on: Condvar,
    /// Why streams are not taken.
    pub refusal: Mutex<Option<String>>,
    /// Why no connection for frames may stand.
    pub no_greeting: Mutex<Option<String>>,
}

impl Recorder {
    pub fn new(last_index: u64) -> Arc<Recorder> {
        Arc::new(Recorder {
            standing: Standing {
                blank: last_index == 0,
                last_index,
                last_term: 1,
                term: 4,
                log: 0,
            },
            observed: Mutex::default(),
            streams: Mutex::default(),
            changed: Condvar::new(),
            stopped: Mutex::new(false),
            go_on: Condvar::new(),
            refusal: Mutex::default(),
            no_greeting: Mutex::default(),
        })
    }

    pub fn tell(&self, what: Observation) {
        self.observed.lock().push(what);
        self.changed.notify_all();
    }

    pub fn stop(&self, stopped: bool) {
        *self.stopped.lock() = stopped;
        self.go_on.notify_all();
    }

    /// Waits until `found` gives something for what was received so far.
    pub fn until<T>(&self, what: &str, mut found: impl FnMut(&[Observation]) -> Option<T>) -> T {
        let deadline = Instant::now() + LONG;
        let mut observed = self.observed.lock();
        loop {
            if let Some(found) = found(&observed) {
                return found;
            }
            let late = self.changed.wait_until(&mut observed, deadline).timed_out();
            assert!(!late, "waited for {what}; observed were {} things", observed.len());
        }
    }

    /// Waits until something was received so many times.
    pub fn count(&self, what: &str, times: usize, fits: impl Fn(&Observation) -> bool) {
        self.until(what, |observed| {
            (observed.iter().filter(|observed| fits(observed)).count() >= times).then_some(())
        });
    }

    /// Waits for connections both ways with a peer, the `times`th.
    pub fn linked(&self, peer: Peer, times: usize) {
        for incoming in [false, true] {
            let fits = |observed: &Observation| matches!(observed, Observation::Opened(p, i, _) if (*p, *i) == (peer, incoming));
            self.count(&format!("a link with {peer}, incoming {incoming}"), times, fits);
        }
    }

    /// Kinds of the frames that came from a peer.
    pub fn kinds(&self, peer: Peer) -> Vec<u8> {
        let observed = self.observed.lock();
        let kinds = observed.iter().filter_map(|observed| match observed {
            Observation::Frame(from, kind, _) if *from == peer => Some(*kind),
            _ => None,
        });
        kinds.collect()
    }
}

impl Inbox for Recorder {
    fn standing(&self) -> Standing {
        self.standing
    }

    fn levels(&self) -> FormatLevels {
        FormatLevels::default()
    }

    fn known(&self, _peer: Peer) -> StartsReport {
        let start = Start { number: 1, nonce: self.standing.last_index + 1 };
        StartsReport { start, ..StartsReport::default() }
    }

    fn greets(&self, _peer: Peer, _greeting: &Greeting) -> Result<(), String> {
        self.no_greeting.lock().clone().map_or(Ok(()), Err)
    }

    fn declared(&self, peer: Peer, start: Start) -> Result<(), String> {
        self.tell(Observation::Declared(peer, start));
        Ok(())
    }

    fn opened(&self, peer: Peer, incoming: bool, greeting: &Greeting) {
        self.tell(Observation::Opened(peer, incoming, greeting.clone()));
    }

    fn closed(&self, peer: Peer, incoming: bool) {
        self.tell(Observation::Closed(peer, incoming));
    }

    fn frame(&self, peer: Peer, kind: u8, body: Bytes) -> Result<(), String> {
        if body == FORGED {
            return Err("it is not of that peer".into());
        }
        self.tell(Observation::Frame(peer, kind, body));
        let mut stopped = self.stopped.lock();
        while *stopped {
            self.go_on.wait(&mut stopped);
        }
        Ok(())
    }

    fn admits(&self, _peer: Peer, _purpose: &StreamPurpose) -> Result<(), String> {
        self.refusal.lock().clone().map_or(Ok(()), Err)
    }

    fn stream(&self, peer: Peer, purpose: StreamPurpose, stream: LinkStream) {
        self.streams.lock().push(stream);
        self.tell(Observation::Stream(peer, purpose));
    }
}

/// The authority that signs certificates.
pub struct Authority {
    pub issuer: Issuer<'static, KeyPair>,
    pub pem: String,
}

impl Authority {
    #[expect(clippy::new_without_default, reason = "only tests use it")]
    pub fn new() -> Authority {
        let mut params = CertificateParams::new(vec![]).unwrap();
        params.distinguished_name.push(DnType::CommonName, "Authority of a test");
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign];
        let key = KeyPair::generate().unwrap();
        let pem = params.self_signed(&key).unwrap().pem();
        Authority { issuer: Issuer::new(params, key), pem }
    }

    /// Where the identity files with this name are.
    pub fn files(folder: &Path, name: &str) -> IdentityFiles {
        IdentityFiles {
            certificate: folder.join(format!("{name}.pem")),
            private_key: folder.join(format!("{name}-key.pem")),
            authorities: folder.join(format!("{name}-authorities.pem")),
            ciphers: RegionCiphers::Any,
        }
    }

    /// Writes the identity files of the instance `name` of group G of QM1, valid for so many days.
    pub fn issue(&self, folder: &Path, name: &str, days: i64) -> IdentityFiles {
        self.issue_as(folder, name, &format!("QM1.G.{name}"), days)
    }

    /// Writes identity files with this name, and that common name in the certificate.
    pub fn issue_as(&self, folder: &Path, name: &str, common: &str, days: i64) -> IdentityFiles {
        let mut params = CertificateParams::new(vec![]).unwrap();
        params.distinguished_name.push(DnType::CommonName, common);
        params.extended_key_usages =
            vec![ExtendedKeyUsagePurpose::ServerAuth, ExtendedKeyUsagePurpose::ClientAuth];
        let day = Duration::from_secs(86_400);
        params.not_before = (SystemTime::now() - 1_000 * day).into();
        let end = day * u32::try_from(days.abs()).unwrap();
        let now = SystemTime::now();
        params.not_after = if days < 0 { now - end } else { now + end }.into();
        let key = KeyPair::generate().unwrap();
        let files = Authority::files(folder, name);
        let pem = params.signed_by(&key, &self.issuer).unwrap().pem();
        // Each file is replaced whole: a reader finds the old one or the new one meanwhile.
        for (path, text) in [
            (&files.certificate, pem),
            (&files.private_key, key.serialize_pem()),
            (&files.authorities, self.pem.clone()),
        ] {
            let beside = path.with_extension("new");
            fs::write(&beside, text).unwrap();
            fs::rename(&beside, path).unwrap();
        }
        files
    }
}

/// A group's addresses and certificates; its instances are started one by one.
pub struct Bench {
    pub folder: TempDir,
    pub authority: Authority,
    pub listeners: Vec<TcpListener>,
    pub members: Vec<Member>,
}

impl Bench {
    pub fn new(count: usize) -> Bench {
        let folder = tempfile::tempdir().unwrap();
        let authority = Authority::new();
        let mut listeners = Vec::new();
        let mut members = Vec::new();
        for name in &NAMES[..count] {
            let listener = super::bind("127.0.0.1:0", |_| None).unwrap();
            let address = listener.local_addr().unwrap().to_string();
            members.push(Member { name: Arc::from(*name), address: Arc::from(address) });
            listeners.push(listener);
            authority.issue(folder.path(), name, 100);
        }
        Bench { folder, authority, listeners, members }
    }

    pub fn files(&self, name: &str) -> IdentityFiles {
        Authority::files(self.folder.path(), name)
    }

    pub fn settings(&self, this: Peer) -> LinkSettings {
        LinkSettings {
            queue_manager: "QM1".into(),
            group: "G".into(),
            members: self.members.clone(),
            terms: super::Terms::default(),
            this,
            identity: self.files(NAMES[this]),
            listener: Some(self.listeners[this].try_clone().unwrap()),
            heartbeat_interval: Duration::from_millis(20),
            // Nothing here may end because it took long, unless the test is about that.
            heartbeat_timeout: 2 * LONG,
            retry_interval: Duration::from_millis(5),
            compression_threshold: 64,
        }
    }

    pub fn start(&self, this: Peer) -> (Links, Arc<Recorder>) {
        self.start_with(this, self.settings(this))
    }

    pub fn start_with(&self, this: Peer, settings: LinkSettings) -> (Links, Arc<Recorder>) {
        let recorder = Recorder::new(this as u64);
        let links = Links::start(settings, recorder.clone()).unwrap();
        (links, recorder)
    }

    /// Two instances that are linked.
    pub fn pair() -> (Bench, [(Links, Arc<Recorder>); 2]) {
        let bench = Bench::new(2);
        let pair = [bench.start(0), bench.start(1)];
        pair[0].1.linked(1, 1);
        pair[1].1.linked(0, 1);
        (bench, pair)
    }
}

/// Runs a test that must not take for ever.
pub fn run<T>(test: impl Future<Output = T>) -> T {
    let mut builder = tokio::runtime::Builder::new_current_thread();
    let runtime = builder.enable_all().build().unwrap();
    let whole = async { tokio::time::timeout(LONG, test).await };
    runtime.block_on(whole).expect("it took too long")
}

/// A burst of clients that nothing accepts.
pub mod burst {
    use std::net::{SocketAddr, TcpStream};
    use std::time::Duration;

    /// More than the 128 for which the standard library asks.
    const CLIENTS: usize = 300;
    /// Shorter than the second after which a client asks again that found no space.
    const PATIENCE: Duration = Duration::from_millis(700);

    /// How many of a burst of clients are connected at once, though nothing accepts them; and how
    /// many came.
    pub fn connected(address: SocketAddr) -> (usize, usize) {
        let allowed = std::fs::read_to_string("/proc/sys/net/core/somaxconn").unwrap_or_default();
        let allowed: usize = allowed.trim().parse().unwrap_or(CLIENTS);
        let clients = CLIENTS.min(allowed);
        let connect = |_| TcpStream::connect_timeout(&address, PATIENCE).ok();
        // The first one that is not connected would be followed by others that wait as long.
        let streams: Vec<TcpStream> = (0..clients).map_while(connect).collect();
        (streams.len(), clients)
    }
}
