//! Live: a copy of this log for a recovery group that lacks log which is not there any more, over
//! a stream of the link between regions, on a thread of its own.
//!
//! It is read from the log's own files, an image first, and takes half of the time of a disk at
//! most: it rests as long as it has read. Nothing waits for it. What was given stays known, with
//! its log and its pages, until the other group has it: a stream that breaks, and a taker that
//! starts again, go on behind what the taker has on its disk.
//!
//! Not here: the bytes of a copy (`towline_backup`), which instance needs one (`region_position`),
//! the taker (`region_taking`). Invariants: what is given is committed; what was read counts only
//! while the log is held; this instance's own log goes first: a copy is given up when the log is
//! tight; the log behind a copy is held until the other group reports it.

use std::io::{self, Write};
use std::sync::Arc;
use std::time::Duration;

use tokio::io::AsyncReadExt;
use towline_admin::catalogue::{
    REBASE_GIVEN, REBASE_GIVEN_UP, REBASE_GIVES, REBASE_INTERRUPTED, REBASE_PROGRESS,
};
use towline_backup::{BackupError, CopyHead, CopyPoint, Gift, Progress};
use towline_link::{RegionDialler, RegionHello};
use towline_log::{Hold, Space};
use towline_logging::log as say;
use towline_os::sync::{Condvar, Mutex};
use towline_os::task::timeout;
use towline_os::time::Instant;
use towline_types::{Lsn, Time, limits};

use crate::copy::{CHECK_MAX, CopySource, Patient, STILL_MAX};
use crate::driver::Driver;
use crate::rebase_progress::{RebaseProgress, RebaseView};
use crate::rebase_wire::{ANSWER_BYTES, RebaseAnswer};
use crate::region_shipping::ShippingView;

/// An instance that needs a copy gets none before: of three, another one may need none.
const SETTLE: Duration = Duration::from_secs(1);
/// Between two tries, at first and at most.
const PAUSES: [Duration; 2] = [Duration::from_secs(1), Duration::from_secs(30)];
/// Log is held for a copy that does not move for so long.
const KEPT_MAX: Duration = Duration::from_secs(600);
/// Log that is held for a copy, at most: as of a copy within a group.
const HELD_BYTES_MAX: u64 = 16 << 30;
/// How long the end of a copy may take to be committed.
const COMMIT_MAX: Duration = Duration::from_secs(10);
/// The longest rest after a read.
const REST_MAX: Duration = Duration::from_millis(200);
/// How often the thread looks whether there is something to do.
const LOOK_INTERVAL: Duration = Duration::from_millis(500);
/// How often the other group is dialled while it restarts with a copy.
const DIAL_INTERVAL: Duration = Duration::from_secs(2);

/// Whether an instance that says this of itself needs a copy of this log.
type NeedsCopy = dyn Fn(&RegionHello) -> Result<bool, String> + Send + Sync;

/// What the giver needs of its instance.
pub(crate) struct GivingHost {
    /// Opens a stream to an instance that takes a copy. Blocks.
    pub(crate) open: Box<dyn Fn() -> Result<(RegionHello, Patient), String> + Send + Sync>,
    /// Whether an instance that says this of itself needs a copy of this log.
    pub(crate) is_needed: Box<NeedsCopy>,
    /// Has the log begin its first history; an error until it has.
    pub(crate) has_history: Box<dyn Fn() -> Result<(), String> + Send + Sync>,
    /// Dials for frames at once.
    pub(crate) dial: Box<dyn Fn() + Send + Sync>,
    /// What the log is made of.
    pub(crate) source: Arc<dyn CopySource>,
}

/// See the module.
pub(crate) struct Giving {
    driver: Arc<Driver>,
    /// Name of the other group.
    group: String,
    host: GivingHost,
    state: Mutex<GivingState>,
    news: Condvar,
}

#[derive(Default)]
struct GivingState {
    needed_since: Option<Time>,
    /// The log that is held for a copy.
    held: Option<HeldLog>,
    /// While a stream stands.
    progress: Option<RebaseProgress>,
    /// Why it does not go on.
    trouble: Option<String>,
    ending: bool,
}

struct HeldLog {
    hold: Arc<Hold>,
    /// End of the copy.
    end: Lsn,
    /// The instance that has all of it.
    given_to: Option<Arc<str>>,
    moved_at: Time,
    dialled_at: Time,
}

/// A copy that is given, until the other group has it.
struct OwnedGift<'a> {
    gift: Gift,
    hold: Arc<Hold>,
    /// Until the taker has all of them.
    pages: Option<Box<dyn Send + 'a>>,
    /// So much of it a taker has had: what only that needs is not held any more.
    had: u64,
}

impl OwnedGift<'_> {
    /// Whether all that is behind a point of it is held. Of another instance, which has less than
    /// the one before, it may not be.
    fn is_held_from(&self, done: u64) -> bool {
        let head = self.gift.head();
        let pages = self.pages.is_some() || done >= head.pages_end();
        pages && head.needs_from(done) >= head.needs_from(self.had)
    }
}

/// How one stream ended.
enum GivingEnd {
    /// The taker has all of it.
    Given,
    /// No copy is needed.
    NotNeeded,
}

/// Why a stream ended early.
enum GivingFailure {
    /// The copy can go on.
    Broken(String),
    /// The next one begins anew.
    GivenUp(String),
}

impl Giving {
    pub(crate) fn new(driver: Arc<Driver>, group: String, host: GivingHost) -> Giving {
        Giving { driver, group, host, state: Mutex::default(), news: Condvar::new() }
    }

    /// This instance of the other group lacks log that is not there any more.
    pub(crate) fn needs(&self, instance: &str) {
        let now = self.driver.now();
        let mut state = self.state.lock();
        let given_to = state.held.as_ref().and_then(|held| held.given_to.as_deref());
        // The others get it from the one that has it.
        if given_to.is_none_or(|has| has == instance) {
            state.needed_since.get_or_insert(now);
        }
    }

    /// The log goes on at an instance of the other group.
    pub(crate) fn is_not_needed(&self) {
        let mut state = self.state.lock();
        (state.needed_since, state.trouble) = (None, None);
    }

    /// Ends [`Giving::run`] after the stream that stands.
    pub(crate) fn end(&self) {
        self.state.lock().ending = true;
        self.news.notify_all();
    }

    /// How far it is, while it is given.
    pub(crate) fn view(&self) -> Option<RebaseView> {
        let now = self.driver.now();
        self.state.lock().progress.map(|progress| progress.view(now))
    }

    /// Why none is given although one is needed.
    pub(crate) fn trouble(&self) -> Option<String> {
        self.state.lock().trouble.clone()
    }

    /// Whether one has come, and the other group has not said yet that it goes on with it.
    pub(crate) fn is_awaited(&self) -> bool {
        let state = self.state.lock();
        state.held.as_ref().is_some_and(|held| held.given_to.is_some())
    }

    /// From here on the log is held for a copy, or behind it.
    pub(crate) fn held_end(&self) -> Option<Lsn> {
        self.state.lock().held.as_ref().map(|held| held.end)
    }

    /// Looks whether the log may still be held, and whether the other group has the copy.
    /// `percent`: the part of the log that is in use.
    pub(crate) fn watch(&self, shipping: &ShippingView, percent: u64) {
        let (now, log) = (self.driver.now(), self.driver.log());
        let mut state = self.state.lock();
        let is_moving = state.progress.is_some();
        let Some(held) = &mut state.held else { return };
        if is_moving || (held.given_to.is_some() && shipping.connected) {
            held.moved_at = now;
        }
        let arrived =
            held.given_to.is_some() && shipping.is_known && shipping.point.place.end >= held.end;
        let bytes = held.hold.from().map(|from| log.bytes_held_back(from));
        let is_tight = percent >= limits::LOG_HOLD_PERCENT || log.space() != Space::Ample;
        let why = match bytes {
            _ if arrived => None,
            None => Some("the log was let go".to_owned()),
            Some(bytes) if bytes > 0 && is_tight => {
                Some(format!("the log is {percent} % full, and goes on"))
            }
            Some(bytes) if bytes > HELD_BYTES_MAX => {
                Some(format!("{bytes} bytes of log are kept for it"))
            }
            Some(_) if now.since(held.moved_at) >= KEPT_MAX => {
                Some(format!("nothing moved for {} s", KEPT_MAX.as_secs()))
            }
            Some(_) => {
                let dials = held.given_to.is_some() && !shipping.connected;
                if dials && now.since(held.dialled_at) >= DIAL_INTERVAL {
                    held.dialled_at = now;
                    drop(state);
                    (self.host.dial)();
                }
                return;
            }
        };
        held.hold.let_go();
        state.held = None;
        drop(state);
        if let Some(why) = why {
            say(&REBASE_GIVEN_UP, &[&self.group, &why]);
        }
    }

    /// Gives copies until [`Giving::end`].
    pub(crate) fn run(&self) {
        let mut gift: Option<OwnedGift<'_>> = None;
        let [mut pause, longest] = PAUSES;
        let (mut not_before, mut began_at) = (Time::ZERO, 0);
        while let Some(is_due) = self.awaits(not_before) {
            gift = gift.filter(|gift| gift.hold.from().is_some());
            if !is_due {
                continue;
            }
            let given = self.give(&mut gift);
            let progress = self.state.lock().progress.take();
            match given {
                Ok(GivingEnd::Given | GivingEnd::NotNeeded) => {
                    (pause, not_before) = (PAUSES[0], self.driver.now() + PAUSES[0]);
                    continue;
                }
                Err(GivingFailure::Broken(why)) => self.fails(&why),
                Err(GivingFailure::GivenUp(why)) => {
                    self.lets_go(&mut gift);
                    self.fails(&why);
                }
            }
            // Of what came last the taker says no more than where it goes on.
            let has_moved = progress.is_some_and(|it| it.has_moved() || it.from() > began_at);
            began_at = progress.map_or(began_at, |it| it.from());
            pause = if has_moved { PAUSES[0] } else { (pause * 2).min(longest) };
            not_before = self.driver.now() + pause;
        }
    }

    fn fails(&self, why: &str) {
        say(&REBASE_INTERRUPTED, &[&self.group, why]);
        self.state.lock().trouble = Some(why.to_owned());
    }

    fn lets_go(&self, gift: &mut Option<OwnedGift<'_>>) {
        if let Some(gift) = gift.take() {
            gift.hold.let_go();
            self.state.lock().held.take_if(|held| Arc::ptr_eq(&held.hold, &gift.hold));
        }
    }

    /// Waits; whether a copy is to be given now. `None`: it ends.
    fn awaits(&self, not_before: Time) -> Option<bool> {
        let mut state = self.state.lock();
        if !state.ending {
            self.news.wait_for(&mut state, LOOK_INTERVAL);
        }
        let now = self.driver.now();
        let is_needed = state.needed_since.is_some_and(|since| now.since(since) >= SETTLE);
        (!state.ending).then_some(is_needed && now >= not_before)
    }

    /// Gives one, or what lacks of it, over one stream.
    fn give<'a>(&'a self, owned: &mut Option<OwnedGift<'a>>) -> Result<GivingEnd, GivingFailure> {
        let broken = GivingFailure::Broken;
        (self.host.has_history)().map_err(broken)?;
        let (hello, mut stream) = (self.host.open)().map_err(broken)?;
        if !(self.host.is_needed)(&hello).map_err(broken)? {
            self.is_not_needed();
            (self.host.dial)();
            return Ok(GivingEnd::NotNeeded);
        }
        let gift = match owned {
            Some(gift) => gift,
            None => owned.insert(self.begin().map_err(broken)?),
        };
        let head = gift.gift.head();
        let from = match self.offer(&head, &mut stream)? {
            point if gift.gift.knows(point) => point,
            _ => CopyPoint::default(),
        };
        if !gift.is_held_from(from.done) {
            let why =
                "an instance takes it that has less of it than the one before: a new one begins";
            return Err(GivingFailure::GivenUp(why.to_owned()));
        }
        let now = self.driver.now();
        {
            let mut state = self.state.lock();
            state.progress = Some(RebaseProgress::begin(from.done, head.bytes(), now));
            state.trouble = None;
        }
        let told = [head.bytes(), from.done].map(|bytes| bytes.to_string());
        say(&REBASE_GIVES, &[&hello.instance, &self.group, &told[0], &told[1]]);
        self.give_behind(gift, from, &mut stream)?;
        let mut state = self.state.lock();
        state.needed_since = None;
        if let Some(held) = &mut state.held {
            (held.given_to, held.moved_at) = (Some(Arc::clone(&hello.instance)), now);
        }
        drop(state);
        say(&REBASE_GIVEN, &[&hello.instance, &self.group, &head.bytes().to_string()]);
        Ok(GivingEnd::Given)
    }

    /// Says which copy it is, and hears how much of it is there.
    fn offer(&self, head: &CopyHead, stream: &mut Patient) -> Result<CopyPoint, GivingFailure> {
        let broken = |error: io::Error| GivingFailure::Broken(error.to_string());
        stream.write_all(&head.encode()).and_then(|()| stream.flush()).map_err(broken)?;
        let mut bytes = [0; ANSWER_BYTES];
        let heard = stream.wait(CHECK_MAX, async |stream| stream.read_exact(&mut bytes).await);
        heard.map_err(broken)?;
        match RebaseAnswer::decode(bytes).map_err(broken)? {
            RebaseAnswer::HasBegun(point) => Ok(point),
            RebaseAnswer::NoRoom { needed, free } => {
                let why = BackupError::NoRoom { needed, free }.to_string();
                Err(GivingFailure::Broken(format!("group '{}' refuses it: {why}", self.group)))
            }
            RebaseAnswer::HasMore => {
                Err(GivingFailure::GivenUp("the other group has more than this copy".into()))
            }
            RebaseAnswer::Keeps(_) | RebaseAnswer::Whole => {
                Err(GivingFailure::Broken("it answered what it was not asked".into()))
            }
        }
    }

    /// A copy of the log as it is now.
    fn begin(&self) -> Result<OwnedGift<'_>, String> {
        let (driver, source) = (&self.driver, &self.host.source);
        let log = driver.log();
        // Before the image is taken: what it refers to must not go meanwhile.
        let (hold, pages) = (Arc::new(log.hold(Lsn::ZERO)), source.hold_pages());
        let (found, used) = source.source(log)?;
        hold.only_from(found.first());
        let end = found.end();
        // The other group must have nothing that this one might not have decided.
        if !driver.wait_until(COMMIT_MAX, || driver.committed_end() >= end) {
            return Err("the end of the log is not committed yet".into());
        }
        let gift = Gift::new(found, used, &source.times()).map_err(|error| error.to_string())?;
        let (now, held) = (driver.now(), Arc::clone(&hold));
        let given_to = None;
        let held = HeldLog { hold: held, end, given_to, moved_at: now, dialled_at: now };
        if let Some(before) = self.state.lock().held.replace(held) {
            before.hold.let_go();
        }
        Ok(OwnedGift { gift, hold, pages: Some(pages), had: 0 })
    }

    fn give_behind(
        &self,
        owned: &mut OwnedGift<'_>,
        from: CopyPoint,
        stream: &mut Patient,
    ) -> Result<(), GivingFailure> {
        let OwnedGift { gift, hold, pages, had } = owned;
        let hold: &Hold = hold;
        let broken = |error: io::Error| GivingFailure::Broken(error.to_string());
        stream.write_all(&from.done.to_le_bytes()).map_err(broken)?;
        let head = gift.head();
        let mut has = |done: u64| {
            hold.only_from(head.needs_from(done));
            if done >= head.pages_end() {
                pages.take();
            }
            *had = done.max(*had);
            self.keeps(done);
        };
        has(from.done);
        let wrote_at = Instant::now();
        let (driver, heard) = (&*self.driver, Vec::new());
        let mut out = GivenStream { driver, stream, wrote_at, heard, is_whole: false, has };
        let of_pages = self.host.source.pages();
        let mut progress = |_: Progress| {};
        match gift.give_behind(from, of_pages, hold, &mut out, &mut progress) {
            Ok(()) => {}
            Err(BackupError::Page(error)) => self.host.source.page_damaged(&error.to_string()),
            Err(error @ BackupError::Stream(_)) => {
                return Err(GivingFailure::Broken(error.to_string()));
            }
            Err(error) => return Err(GivingFailure::GivenUp(error.to_string())),
        }
        out.await_whole().map_err(broken)
    }

    /// The taker has so much on its disk.
    fn keeps(&self, done: u64) {
        let now = self.driver.now();
        let mut state = self.state.lock();
        let Some(progress) = &mut state.progress else { return };
        progress.has(done, now);
        if progress.is_to_tell(now) {
            let view = progress.view(now);
            drop(state);
            tell(&self.group, &view);
        }
    }
}

/// Says how far a copy is.
pub(crate) fn tell(group: &str, view: &RebaseView) {
    let numbers = [view.done, view.all, view.percent(), view.bytes_per_second, view.rest_s];
    let [done, all, percent, rate, rest] = numbers.map(|number| number.to_string());
    say(&REBASE_PROGRESS, &[group, &done, &all, &percent, &rate, &rest]);
}

/// A stream that a copy is written to, with rests, and on which the taker says how far it is.
struct GivenStream<'a, F> {
    driver: &'a Driver,
    stream: &'a mut Patient,
    wrote_at: Instant,
    /// Part of an answer.
    heard: Vec<u8>,
    is_whole: bool,
    has: F,
}

impl<F: FnMut(u64)> GivenStream<'_, F> {
    /// Takes what has come of answers; waits for it if `most` is not zero.
    fn hear(&mut self, most: Duration) -> io::Result<()> {
        let mut bytes = [0; 16 * ANSWER_BYTES];
        let stream = &mut self.stream.stream;
        let reading = async { timeout(most, stream.read(&mut bytes)).await };
        let count = match self.stream.handle.block_on(reading) {
            // Nothing has come yet.
            Err(_) if most.is_zero() => return Ok(()),
            Err(_) => return Err(io::ErrorKind::TimedOut.into()),
            Ok(count) => count?,
        };
        if count == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        self.heard.extend_from_slice(bytes.get(..count).unwrap_or_default());
        while let Some((answer, rest)) = self.heard.split_first_chunk::<ANSWER_BYTES>() {
            let (answer, rest) = (RebaseAnswer::decode(*answer)?, rest.to_vec());
            self.heard = rest;
            match answer {
                RebaseAnswer::Keeps(done) => (self.has)(done),
                RebaseAnswer::Whole => self.is_whole = true,
                RebaseAnswer::HasBegun(_) | RebaseAnswer::NoRoom { .. } | RebaseAnswer::HasMore => {
                    let why = "it answered what it was not asked";
                    return Err(io::Error::new(io::ErrorKind::InvalidData, why));
                }
            }
        }
        Ok(())
    }

    /// All of it was sent: waits until the taker has checked it.
    fn await_whole(&mut self) -> io::Result<()> {
        while !self.is_whole {
            self.hear(CHECK_MAX)?;
        }
        Ok(())
    }
}

impl<F: FnMut(u64)> Write for GivenStream<'_, F> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        // What came between was reading: half of the disk's time is left to the log.
        self.driver.pause(self.wrote_at.elapsed().min(REST_MAX));
        self.hear(Duration::ZERO)?;
        let count = self.stream.write(bytes)?;
        self.wrote_at = Instant::now();
        Ok(count)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.stream.flush()
    }
}

/// Opens a stream with patience.
///
/// # Errors
/// Why not, in words.
pub(crate) fn open(links: &dyn RegionDialler) -> Result<(RegionHello, Patient), String> {
    let handle = links.streams();
    let opening = links.open_stream();
    let opened = handle.block_on(async { timeout(STILL_MAX, opening).await });
    let opened = opened.map_err(|_| "it does not answer".to_owned())?;
    let (hello, stream) = opened.map_err(|error| error.to_string())?;
    Ok((hello, Patient { stream, handle }))
}
