//! Whatever frames a logged-in client writes, in whatever order and however late it is answered,
//! they break no invariant: those are asserted, and a broken one would end the process for all.
//!
//! Not here: bytes that are no frames (`fuzz_frame` and its siblings in `towline-amqp`); real
//! sockets (`hostile_frames` of the end-to-end tests).

use towline_amqp::sections;
use towline_amqp::types::{CoordinatorCommand, Declare, Discharge, TxnId};
use towline_types::SeededRandom;

use super::rig::{AnyPeer, Rig, Seen};
use super::text::message;

/// Frames of one connection at most.
const FRAMES: u64 = 120;
/// Connections of one seed.
const CONNECTIONS: u64 = 10;

/// What the peer itself has sent, so that most of its frames are plausible.
struct Script {
    dice: SeededRandom,
    /// Next transfer and delivery, by channel.
    next: [u32; CHANNELS],
    sessions: [Session; CHANNELS],
    /// Links that it believes to be attached, by channel and handle.
    links: [[Option<Link>; HANDLES]; CHANNELS],
    names: u64,
}

#[derive(Clone, Copy, PartialEq)]
enum Session {
    Closed,
    Open,
    /// The peer sent its end, and waits for the server's.
    Ending,
    /// The server sent its end, and waits for the peer's.
    Ended,
}

#[derive(Clone, Copy, PartialEq)]
struct Link {
    kind: Kind,
    name: u64,
    /// The server's number for it.
    theirs: Option<u32>,
    /// Deliveries that it has sent, and may have sent, in all.
    sent: u32,
    limit: u32,
}

#[derive(Clone, Copy, PartialEq)]
enum Kind {
    Putting,
    Coordinating,
    Getting,
}

const CHANNELS: usize = 3;
const HANDLES: usize = 5;

impl Script {
    fn new(dice: SeededRandom) -> Script {
        Script {
            dice,
            next: [0; CHANNELS],
            sessions: [Session::Closed; CHANNELS],
            links: [[None; HANDLES]; CHANNELS],
            names: 0,
        }
    }

    fn one<'a>(&mut self, of: &[&'a str]) -> &'a str {
        of[self.dice.index(of.len())]
    }

    fn flag(&mut self, per_mille: u64, flag: &'static str) -> &'static str {
        if self.dice.chance(per_mille) { flag } else { "" }
    }

    /// A channel, most often one with a session. Channel 0 is that of the login's client.
    fn channel(&mut self) -> usize {
        1 + self.dice.index(CHANNELS - 1)
    }

    /// A link of one of these kinds, with credit if it sends; now and then any number.
    fn handle(&mut self, channel: usize, wanted: &[Kind]) -> Option<usize> {
        let fits = |at: &usize| {
            let link = self.links[channel][*at];
            link.is_some_and(|it| wanted.contains(&it.kind))
        };
        let fitting: Vec<usize> = (0..HANDLES).filter(fits).collect();
        if self.dice.chance(5) {
            return Some(self.dice.index(HANDLES));
        }
        fitting.get(self.dice.index(fitting.len())).copied()
    }

    /// Takes in what the server said of links and sessions.
    fn see(&mut self, peer: &mut AnyPeer) {
        for (channel, seen) in peer.seen.drain(..) {
            let channel = usize::from(channel);
            let Some(links) = self.links.get_mut(channel) else { continue };
            match seen {
                Seen::Attached { name, theirs } => {
                    let named = |it: &&mut Link| *format!("n{}", it.name) == *name;
                    if let Some(link) = links.iter_mut().flatten().find(named) {
                        link.theirs = Some(theirs);
                    }
                }
                Seen::Credit { theirs, limit } => {
                    if let Some(Some(link)) = of(links, theirs) {
                        link.limit = limit;
                    }
                }
                Seen::Detached { theirs } => {
                    // Now and then the peer has not noticed.
                    if let Some(link) = of(links, theirs)
                        && self.dice.chance(995)
                    {
                        *link = None;
                    }
                }
                Seen::Ended => {
                    let session = &mut self.sessions[channel];
                    let is_answer = *session == Session::Ending;
                    *session = if is_answer { Session::Closed } else { Session::Ended };
                }
            }
        }
    }

    fn frame(&mut self, peer: &mut AnyPeer) -> (String, Vec<u8>) {
        self.see(peer);
        let channel = self.channel();
        if !self.dice.chance(3) {
            match self.sessions[channel] {
                Session::Closed => return (self.begin(channel), Vec::new()),
                Session::Ending => return ("empty".into(), Vec::new()),
                Session::Ended => return (self.end(channel), Vec::new()),
                Session::Open => {}
            }
        }
        let attached = self.links[channel].iter().flatten().count();
        let line = match self.dice.below(100) {
            _ if attached == 0 => self.attach(channel),
            0..=9 => self.attach(channel),
            10..=49 => return self.transfer(channel, peer),
            50..=64 => self.flow(channel, peer),
            65..=89 => self.disposition(channel, peer),
            90..=96 => self.detach(channel),
            97 => self.end(channel),
            98 if self.dice.chance(100) => "close".into(),
            _ => "empty".into(),
        };
        (line, Vec::new())
    }

    fn begin(&mut self, channel: usize) -> String {
        self.sessions[channel] = Session::Open;
        self.next[channel] = 0;
        self.links[channel] = [None; HANDLES];
        let window = [0, 1, 3, 50, 1_000, 1_000][self.dice.index(6)];
        format!("@{channel} begin incoming-window={window} outgoing-window=1000")
    }

    fn end(&mut self, channel: usize) -> String {
        let is_answer = self.sessions[channel] == Session::Ended;
        self.sessions[channel] = if is_answer { Session::Closed } else { Session::Ending };
        format!("@{channel} end")
    }

    fn attach(&mut self, channel: usize) -> String {
        let handle = self.dice.index(HANDLES);
        if self.links[channel][handle].is_some() && !self.dice.chance(5) {
            return "empty".into();
        }
        self.names += 1;
        // The name of an earlier link too: it is taken over, or resumed.
        let name = if self.dice.chance(200) { self.dice.below(self.names) } else { self.names };
        let kind = [Kind::Putting, Kind::Coordinating, Kind::Getting, Kind::Getting];
        let kind = kind[self.dice.index(4)];
        self.links[channel][handle] = Some(Link { kind, name, theirs: None, sent: 0, limit: 0 });
        let snd = self.one(&["unsettled", "settled", "mixed"]);
        let rcv = self.one(&["first", "first", "first", "second"]);
        let modes = format!("snd-settle-mode={snd} rcv-settle-mode={rcv}");
        let queue = if self.dice.chance(40) { "NONE" } else { self.one(&["Q", "Q", "R"]) };
        let ends = match kind {
            Kind::Putting => format!("role=sender source=s target={queue}"),
            Kind::Coordinating => "role=sender source=s target=$coordinator".into(),
            Kind::Getting => {
                let copy = self.flag(200, "copy");
                format!("role=receiver source={queue} target=t {copy}")
            }
        };
        let count = if kind == Kind::Getting { "" } else { "initial-delivery-count=0" };
        format!("@{channel} attach name=n{name} handle={handle} {ends} {modes} {count}")
    }

    fn detach(&mut self, channel: usize) -> String {
        let kinds = [Kind::Putting, Kind::Coordinating, Kind::Getting];
        let Some(handle) = self.handle(channel, &kinds) else { return "empty".into() };
        self.links[channel][handle] = None;
        let closed = self.flag(600, "closed");
        format!("@{channel} detach handle={handle} {closed}")
    }

    fn flow(&mut self, channel: usize, peer: &AnyPeer) -> String {
        let window = [0, 1, 5, 1_000, 1_000, 1_000][self.dice.index(6)];
        let next = self.next[channel];
        let came = peer.delivered.get(&u16::try_from(channel).unwrap()).copied();
        let next_incoming = came.map_or(0, |came| came.wrapping_add(1));
        let session = format!(
            "@{channel} flow incoming-window={window} next-outgoing-id={next} outgoing-window=1000 \
             next-incoming-id={next_incoming}"
        );
        if self.dice.chance(100) {
            return session;
        }
        let Some(handle) = self.handle(channel, &[Kind::Getting]) else { return session };
        let credit = [0, 1, 2, 10, 100][self.dice.index(5)];
        let recent = u64::from(next_incoming).min(self.dice.below(4));
        let count = u64::from(next_incoming) - recent;
        let (drain, echo) = (self.flag(250, "drain"), self.flag(200, "echo"));
        let unit = self.flag(20, "txn-id");
        format!(
            "{session} handle={handle} delivery-count={count} link-credit={credit} {drain} {echo} \
             {unit}"
        )
    }

    fn transfer(&mut self, channel: usize, peer: &AnyPeer) -> (String, Vec<u8>) {
        let Some(handle) = self.handle(channel, &[Kind::Putting, Kind::Coordinating]) else {
            return (self.attach(channel), Vec::new());
        };
        match &mut self.links[channel][handle] {
            Some(link) if link.sent < link.limit => link.sent += 1,
            _ if self.dice.chance(5) => {}
            _ => return (self.flow(channel, peer), Vec::new()),
        }
        let unit = self.unit(peer);
        let number = self.next[channel];
        self.next[channel] = number.wrapping_add(1);
        let kind = self.links[channel][handle].map(|link| link.kind);
        let coordinates = kind == Some(Kind::Coordinating);
        let payload = match self.dice.below(20) {
            0 => b"\x00\x53\x77\xff".to_vec(),
            1 => Vec::new(),
            _ if coordinates => self.command(unit),
            _ => {
                let text = message("any");
                let text = if self.dice.chance(500) { text.durable() } else { text };
                text.encode().to_contiguous().to_vec()
            }
        };
        let state = match unit.filter(|_| !coordinates && self.dice.chance(500)) {
            Some(unit) => format!("state=@{}", text_of(&unit)),
            None => self.flag(20, "state=accepted").to_owned(),
        };
        let (settled, more) = (self.flag(200, "settled"), self.flag(60, "more"));
        let (aborted, resume) = (self.flag(20, "aborted"), self.flag(10, "resume"));
        let line = format!(
            "@{channel} transfer handle={handle} delivery-id={number} tag=t{number} {settled} \
             {more} {aborted} {resume} {state}"
        );
        (line, payload)
    }

    fn unit(&mut self, peer: &AnyPeer) -> Option<TxnId> {
        if peer.units.is_empty() || self.dice.chance(20) {
            return self.dice.chance(100).then(|| TxnId::from_number(self.dice.below(9)));
        }
        // Most often a recent one, which may be open.
        let recent = peer.units.len().saturating_sub(3);
        let from = if self.dice.chance(800) { recent } else { 0 };
        Some(peer.units[from + self.dice.index(peer.units.len() - from)])
    }

    fn command(&mut self, unit: Option<TxnId>) -> Vec<u8> {
        let command = match unit.filter(|_| self.dice.chance(500)) {
            Some(txn_id) => {
                let fail = self.dice.chance(300);
                CoordinatorCommand::Discharge(Discharge { txn_id, fail })
            }
            None => CoordinatorCommand::Declare(Declare),
        };
        let mut out = bytes::BytesMut::new();
        sections::encode_value_body(&mut out, |out| command.encode(out));
        out.to_vec()
    }

    fn disposition(&mut self, channel: usize, peer: &AnyPeer) -> String {
        let came = peer.delivered.get(&u16::try_from(channel).unwrap()).copied().unwrap_or(0);
        let recent = u64::from(came).min(self.dice.below(8));
        let first = came - u32::try_from(recent).unwrap();
        let last = first.saturating_add(u32::try_from(self.dice.below(5)).unwrap());
        let outcomes = ["accepted", "accepted", "released", "rejected", "modified", "received", ""];
        let outcome = self.one(&outcomes);
        let state = match self.unit(peer).filter(|_| self.dice.chance(400)) {
            Some(unit) => format!("state={outcome}@{}", text_of(&unit)),
            None if outcome.is_empty() => String::new(),
            None => format!("state={outcome}"),
        };
        let settled = self.flag(700, "settled");
        let role = self.one(&["receiver", "receiver", "receiver", "receiver", "sender"]);
        format!("@{channel} disposition role={role} first={first} last={last} {settled} {state}")
    }
}

fn of(links: &mut [Option<Link>], theirs: u32) -> Option<&mut Option<Link>> {
    links.iter_mut().find(|link| link.is_some_and(|link| link.theirs == Some(theirs)))
}

/// As the frames of `peer::text` take it.
fn text_of(unit: &TxnId) -> String {
    String::from_utf8(unit.as_bytes().to_vec()).unwrap_or_default()
}

/// Several connections, one after the other in turns of a few frames, and MQSC between them.
fn run(seed: u64, reached: &mut std::collections::BTreeMap<&'static str, u64>) {
    let mut dice = SeededRandom::mixed(seed);
    let mut rig = Rig::new();
    rig.define("Q");
    rig.define("R");
    for _ in 0..CONNECTIONS {
        let mut peers: Vec<(AnyPeer, Script)> = (0..dice.between(1, 3))
            .map(|_| (rig.any_peer(), Script::new(SeededRandom::mixed(dice.next_u64()))))
            .collect();
        for _ in 0..FRAMES {
            let at = dice.index(peers.len());
            let (peer, script) = &mut peers[at];
            let (line, payload) = script.frame(peer);
            rig.says(peer, &line, &payload);
            if dice.chance(600) {
                rig.decide(peer);
            }
            if dice.chance(600) {
                let bytes = if dice.chance(500) { usize::MAX } else { 64 };
                rig.answers(peer, dice.index(12), bytes);
            }
            if rig.is_over(peer) {
                *peer = rig.any_peer();
                *script = Script::new(SeededRandom::mixed(dice.next_u64()));
            }
            match dice.below(120) {
                0 => rig.passes(&mut peers[at].0, 2_000_000),
                1 => rig.log.held.set(true),
                2 | 3 => rig.release_log(&mut []),
                4 => rig.fill_log(true),
                5 | 6 => rig.fill_log(false),
                // Only then they are answered at once, as `Rig::mqsc` expects.
                7..=20 if rig.log.held.get() || rig.log.full.get() => {}
                7 => rig.mqsc("ALTER QLOCAL('R') PUT(DISABLED)"),
                17..=20 => rig.mqsc("ALTER QLOCAL('R') PUT(ENABLED)"),
                9 => rig.mqsc("ALTER QLOCAL('Q') GET(DISABLED)"),
                10..=16 => rig.mqsc("ALTER QLOCAL('Q') GET(ENABLED)"),
                _ => {}
            }
        }
        rig.fill_log(false);
        rig.release_log(&mut []);
        for (mut peer, _) in peers {
            peer.came.iter().for_each(|(name, count)| *reached.entry(name).or_default() += count);
            rig.loses(&mut peer);
        }
    }
}

#[test]
fn no_order_of_frames_breaks_an_invariant() {
    let given = std::env::var("TOWLINE_SEED").ok().and_then(|seed| seed.parse().ok());
    let count = std::env::var("TOWLINE_SEEDS").ok().and_then(|count| count.parse().ok());
    let seeds = given.map_or(1..=count.unwrap_or(12), |seed: u64| seed..=seed);
    let mut reached = std::collections::BTreeMap::new();
    for seed in seeds {
        println!("TOWLINE_SEED={seed}");
        run(seed, &mut reached);
    }
    println!("{reached:?}");
    // A script that the server refuses at once would prove nothing.
    for name in ["attach", "flow", "transfer", "disposition", "detach"] {
        assert!(reached.get(name).is_some_and(|count| *count > 20), "{name}: {reached:?}");
    }
}
