//! Two groups on loopback with certificates of one authority, and an inbox of the link between
//! regions that records.

use std::net::TcpListener;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use parking_lot::{Condvar, Mutex};
use tempfile::TempDir;

use super::{Authority, FORGED, LONG, NAMES};
use crate::identity::IdentityFiles;
use crate::{
    FrameCost, Intake, LinkId, LinkStream, RegionHello, RegionInbox, RegionLink, RegionLinks,
    RegionSections, RegionSettings, Retries,
};

/// Of the groups; each has instances of [`NAMES`].
pub const GROUPS: [&str; 2] = ["WEST", "EAST"];
/// The live group.
pub const WEST: usize = 0;
/// The recovery group.
pub const EAST: usize = 1;

/// What an inbox of a region received.
#[derive(Clone, Debug, PartialEq)]
pub enum RegionEvent {
    Greeted(bool, RegionHello),
    Opened(LinkId, bool, RegionHello),
    Frame(LinkId, u8, Bytes),
    Writable(LinkId),
    Closed(LinkId, String),
    Stream(RegionHello),
}

/// An inbox of a region that keeps what it received.
#[derive(Default)]
pub struct RegionRecorder {
    pub sections: Mutex<RegionSections>,
    pub events: Mutex<Vec<RegionEvent>>,
    pub changed: Condvar,
    pub links: Mutex<Vec<RegionLink>>,
    pub streams: Mutex<Vec<LinkStream>>,
    pub costs: Mutex<Vec<FrameCost>>,
    /// Why no connection for frames may stand, if the instance is this one.
    pub refusal: Mutex<Option<(String, String)>>,
    /// What the other end said with a refusal.
    pub refusals: Mutex<Vec<RegionHello>>,
    /// Why no stream is taken.
    pub no_stream: Mutex<Option<String>>,
    /// While it is set, it is full after each frame.
    pub full: Mutex<bool>,
}

impl RegionRecorder {
    pub fn tell(&self, event: RegionEvent) {
        self.events.lock().push(event);
        self.changed.notify_all();
    }

    /// Waits until `found` gives something for what was received so far.
    pub fn until<T>(&self, what: &str, mut found: impl FnMut(&[RegionEvent]) -> Option<T>) -> T {
        let deadline = Instant::now() + LONG;
        let mut events = self.events.lock();
        loop {
            if let Some(found) = found(&events) {
                return found;
            }
            let late = self.changed.wait_until(&mut events, deadline).timed_out();
            assert!(!late, "waited for {what}; there were {:?}", in_short(&events));
        }
    }

    /// Waits until something was received so many times.
    pub fn count(&self, what: &str, times: usize, fits: impl Fn(&RegionEvent) -> bool) {
        self.until(what, |events| {
            (events.iter().filter(|event| fits(event)).count() >= times).then_some(())
        });
    }

    /// Waits for the `times`th connection, and gives its handle.
    pub fn link(&self, times: usize) -> RegionLink {
        self.count("a link", times, |event| matches!(event, RegionEvent::Opened(..)));
        Arc::clone(&self.links.lock()[times - 1])
    }

    /// Waits for the end of the `times`th connection that ends, and gives the reason.
    pub fn end(&self, times: usize) -> String {
        self.until("the end of a link", |events| {
            let ends = events.iter().filter_map(|event| match event {
                RegionEvent::Closed(_, why) => Some(why.clone()),
                _ => None,
            });
            ends.into_iter().nth(times - 1)
        })
    }

    /// Waits for so many frames: kind and body of each.
    pub fn frames(&self, count: usize) -> Vec<(u8, Bytes)> {
        self.until("frames", |events| {
            let frames = events.iter().filter_map(|event| match event {
                RegionEvent::Frame(_, kind, body) => Some((*kind, body.clone())),
                _ => None,
            });
            let frames: Vec<_> = frames.collect();
            (frames.len() >= count).then_some(frames)
        })
    }

    /// Whether a connection or stream ever stood.
    pub fn let_in(&self) -> bool {
        let is_entry =
            |event: &RegionEvent| matches!(event, RegionEvent::Opened(..) | RegionEvent::Stream(_));
        self.events.lock().iter().any(is_entry)
    }
}

/// Only for a test that fails: to write out frames of a megabyte takes longer than to send them.
fn in_short(events: &[RegionEvent]) -> Vec<String> {
    let short = |event: &RegionEvent| match event {
        RegionEvent::Frame(link, kind, body) => {
            format!("frame {kind} on {link:?}, {} bytes", body.len())
        }
        other => format!("{other:?}").chars().take(90).collect(),
    };
    events.iter().map(short).collect()
}

impl RegionInbox for RegionRecorder {
    fn hello(&self) -> RegionSections {
        self.sections.lock().clone()
    }

    fn greets(&self, incoming: bool, hello: &RegionHello) -> Result<(), String> {
        self.tell(RegionEvent::Greeted(incoming, hello.clone()));
        match &*self.refusal.lock() {
            Some((instance, why)) if **instance == *hello.instance || instance.is_empty() => {
                Err(why.clone())
            }
            _ => Ok(()),
        }
    }

    fn refused(&self, hello: &RegionHello) {
        self.refusals.lock().push(hello.clone());
    }

    fn opened(&self, incoming: bool, hello: &RegionHello, link: RegionLink) {
        let id = link.id();
        self.links.lock().push(link);
        self.tell(RegionEvent::Opened(id, incoming, hello.clone()));
    }

    fn frame(
        &self,
        link: LinkId,
        kind: u8,
        body: Bytes,
        cost: FrameCost,
    ) -> Result<Intake, String> {
        if body == FORGED {
            return Err("it is not of that group".into());
        }
        self.costs.lock().push(cost);
        self.tell(RegionEvent::Frame(link, kind, body));
        Ok(if *self.full.lock() { Intake::Full } else { Intake::More })
    }

    fn writable(&self, link: LinkId) {
        self.tell(RegionEvent::Writable(link));
    }

    fn closed(&self, link: LinkId, why: &str) {
        self.tell(RegionEvent::Closed(link, why.to_owned()));
    }

    fn admits(&self, _hello: &RegionHello) -> Result<(), String> {
        self.no_stream.lock().clone().map_or(Ok(()), Err)
    }

    fn stream(&self, hello: &RegionHello, stream: LinkStream) {
        self.streams.lock().push(stream);
        self.tell(RegionEvent::Stream(hello.clone()));
    }
}

/// Addresses and certificates of two groups of three; their instances are started one by one.
pub struct RegionBench {
    pub folder: TempDir,
    pub authority: Authority,
    pub listeners: [Vec<TcpListener>; 2],
    pub addresses: [Vec<Arc<str>>; 2],
}

impl RegionBench {
    #[expect(clippy::new_without_default, reason = "only tests use it")]
    pub fn new() -> RegionBench {
        let (folder, authority) = (tempfile::tempdir().unwrap(), Authority::new());
        let listeners = GROUPS.map(|group| {
            let listen = |name: &&str| {
                let full = format!("QM1.{group}.{name}");
                authority.issue_as(folder.path(), &full, &full, 100);
                crate::bind("127.0.0.1:0", |_| None).unwrap()
            };
            NAMES.iter().map(listen).collect::<Vec<_>>()
        });
        let addresses = listeners.each_ref().map(|listeners| {
            let address =
                |listener: &TcpListener| Arc::from(listener.local_addr().unwrap().to_string());
            listeners.iter().map(address).collect()
        });
        RegionBench { folder, authority, listeners, addresses }
    }

    /// Identity files of an instance.
    pub fn files(&self, group: usize, instance: usize) -> IdentityFiles {
        Authority::files(self.folder.path(), &format!("QM1.{}.{}", GROUPS[group], NAMES[instance]))
    }

    /// Of an instance that dials the first instance of the other group alone: at the addresses of
    /// those that are not started, nothing answers.
    pub fn settings(&self, group: usize, instance: usize) -> RegionSettings {
        RegionSettings {
            queue_manager: "QM1".into(),
            group: GROUPS[group].into(),
            instance: NAMES[instance].into(),
            other_group: GROUPS[1 - group].into(),
            addresses: self.addresses[1 - group][..1].to_vec(),
            identity: self.files(group, instance),
            listener: Some(self.listeners[group][instance].try_clone().unwrap()),
            heartbeat_interval: Duration::from_millis(20),
            // Nothing here may end because it took long, unless the test is about that.
            heartbeat_timeout: 2 * LONG,
            retries: Retries {
                short_timer: Duration::from_millis(5),
                short_count: u32::MAX,
                long_timer: LONG,
            },
            report_each_try: false,
            compression_threshold: 64,
        }
    }

    pub fn start(&self, group: usize, instance: usize) -> (RegionLinks, Arc<RegionRecorder>) {
        self.start_with(self.settings(group, instance))
    }

    pub fn start_with(&self, settings: RegionSettings) -> (RegionLinks, Arc<RegionRecorder>) {
        let recorder = Arc::new(RegionRecorder::default());
        let name = [&*settings.group, ".", &*settings.instance].concat();
        recorder.sections.lock().push((1, Bytes::from(name)));
        let links = RegionLinks::start(settings, recorder.clone()).unwrap();
        (links, recorder)
    }

    /// The first instances of both groups, of which the first one dialled.
    pub fn pair() -> (RegionBench, [(RegionLinks, Arc<RegionRecorder>); 2]) {
        RegionBench::pair_with(64)
    }

    /// The same, with this threshold of compression.
    pub fn pair_with(
        compression_threshold: usize,
    ) -> (RegionBench, [(RegionLinks, Arc<RegionRecorder>); 2]) {
        let bench = RegionBench::new();
        let pair = [WEST, EAST].map(|group| {
            let settings = bench.settings(group, 0);
            bench.start_with(RegionSettings { compression_threshold, ..settings })
        });
        pair[0].0.dial(true);
        pair.iter().for_each(|(_, recorder)| drop(recorder.link(1)));
        (bench, pair)
    }
}
