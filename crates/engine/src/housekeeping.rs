//! Work without a request: time passes for the instance, images are taken when they are due,
//! extents without live messages are reclaimed, and the time index is written.
//!
//! Not here: how an image is taken (`images`), how old messages are relocated (`relocation`), and
//! which extents are live (`towline_node`).

use std::sync::Arc;
use std::time::Duration;
use towline_os::time::Instant;

use towline_admin::catalogue::{HOUSEKEEPING_FAILED, UNIT_ENDED_FOR_LOG};
use towline_log::{Log, LogError, Space, Stats};
use towline_os::task::{Handle, JoinSet, sleep, spawn_blocking, timeout};
use towline_types::{Lsn, limits};

use crate::door::Door;
use crate::images::{ImageSource, Images};
use crate::relocation::{LastRelocation, PART_BETWEEN_LOOKS, relocate_if_due};
use towline_config::Config;
use towline_logging::log as say;

/// How often it is checked whether the wall clock was set, or the machine slept: the timer of a
/// tick that is due later does not notice that. Two reads of a clock, without a lock.
const CLOCK_INTERVAL: Duration = Duration::from_secs(1);
/// How often the instance is stepped with the time, while runs wait for space in the log or slices
/// of work are left, which a thread of their own does.
const TICK_UNFINISHED: Duration = Duration::from_millis(10);
/// How often the log is checked while units of work are in it: they grow as fast as the disk
/// writes.
const PRESSURE_INTERVAL: Duration = Duration::from_millis(50);
/// How often the log is checked otherwise, while it grows or free space is short, and how long
/// after a failure it is not checked.
const RECLAIM_INTERVAL: Duration = Duration::from_secs(1);

/// The log is checked sooner when so much was logged that an image is due, or that messages which
/// no client gets may have to be relocated while there is free space for them; but not more often
/// than this. After a check that failed it is not until the next regular one: each try may write an
/// image, on a disk that is full or broken.
const LOOK_INTERVAL_MIN: Duration = Duration::from_millis(20);

/// Starts all tasks of an active instance on `runtime`; they end when the set is dropped.
pub(crate) fn start(
    door: &Arc<Door>,
    images: &Arc<Images>,
    config: &Config,
    runtime: &Handle,
) -> JoinSet<()> {
    let mut tasks = JoinSet::new();
    let policy = ImagePolicy::of(config, door.extent_bytes());
    tasks.spawn_on(tick(Arc::clone(door)), runtime);
    tasks.spawn_on(relieve(Arc::clone(door), config.log.reserve_bytes), runtime);
    let reserve_bytes = config.log.reserve_bytes;
    tasks.spawn_on(reclaim(Arc::clone(door), Arc::clone(images), policy, reserve_bytes), runtime);
    tasks
}

/// Steps the instance as time passes, until dropped.
async fn tick(door: Arc<Door>) {
    loop {
        door.follow_clock();
        if door.tick_is_due() {
            door.tick();
        }
        if door.tick_is_due() {
            sleep(TICK_UNFINISHED).await;
        } else {
            let wake_ups = door.wake_ups();
            let rest = wake_ups.plan_tick(door.clock().wall(), CLOCK_INTERVAL);
            timeout(rest, wake_ups.tick_comes_sooner()).await.ok();
        }
    }
}

/// Ends units of work that fill the log, until dropped.
async fn relieve(door: Arc<Door>, reserve_bytes: u64) {
    let mut pressure = Pressure { reserve_bytes, waits_for: Lsn::ZERO };
    loop {
        door.wake_ups().bodies_ahead().await;
        // First: a large message has its body ahead for a moment, and is no unit of work.
        sleep(PRESSURE_INTERVAL).await;
        pressure.relieve(&door);
    }
}

/// Prevents open units of work from filling the log.
struct Pressure {
    /// Bytes of the log that puts never get.
    reserve_bytes: u64,
    /// The effect of the last unit that was ended is known when the log is durable up to here.
    waits_for: Lsn,
}

impl Pressure {
    /// When the log needs more than a part of its space, ends the unit of work that holds its
    /// oldest position: one, then the next one only if that did not help.
    fn relieve(&mut self, door: &Door) {
        let (oldest, keep_from, waits) = door.look(|instance| {
            let waits = instance.waits_for_log() || instance.gives_log_back();
            (instance.oldest_of_units(), instance.keep_from(), waits)
        });
        // The end of a unit would wait as well, or that of the last one has given back a part only:
        // one after the other went for nothing.
        let Some(oldest) = oldest.filter(|_| !waits) else { return };
        let log = door.log();
        let tail = log.tail();
        if log.durable() < self.waits_for {
            return;
        }
        let needed = tail.0.saturating_sub(keep_from.0);
        let percent = percent_full(needed, &log.stats(), self.reserve_bytes);
        if percent >= limits::LOG_PRESSURE_PERCENT {
            say(&UNIT_ENDED_FOR_LOG, &[&percent.to_string(), &oldest.to_string()]);
            door.log_pressed(percent);
            self.waits_for = log.tail();
        }
    }
}

/// `needed` bytes of log as a part of all that puts may fill. Extents that can be reused at once
/// are free space.
#[must_use]
pub fn percent_full(needed: u64, stats: &Stats, reserve_bytes: u64) -> u64 {
    let for_puts = bytes_for_puts(stats, reserve_bytes);
    let percent = u128::from(needed) * 100 / u128::from(for_puts.max(1));
    u64::try_from(percent).unwrap_or(u64::MAX)
}

/// All that puts may fill, in bytes: of `log_bytes_max`, or of the disk where that has less.
fn bytes_for_puts(stats: &Stats, reserve_bytes: u64) -> u64 {
    let allocated = stats.bytes_in_use.saturating_add(stats.bytes_reusable);
    let disk_free = match stats.file_system_bytes_max {
        0 => u64::MAX,
        all => all.saturating_sub(stats.file_system_bytes_in_use),
    };
    let most = allocated.saturating_add(disk_free).min(stats.bytes_max);
    most.saturating_sub(reserve_bytes)
}

/// When images are due.
#[derive(Clone, Copy, Debug)]
pub struct ImagePolicy {
    /// IMGLOGLN in bytes of log.
    log_bytes: u64,
    /// IMGINTVL.
    interval: Duration,
}

impl ImagePolicy {
    /// The policy of a configuration, for a log with extents of this size.
    #[must_use]
    pub fn of(config: &Config, extent_bytes: u64) -> ImagePolicy {
        let manager = &config.queue_manager;
        let megabytes = |of: u64| of.saturating_mul(1024 * 1024);
        let log_bytes = match manager.imglogln {
            0 => u64::MAX,
            // Extents are reclaimed when two images lie behind them: with small extents, images
            // are taken sooner.
            length => megabytes(length).min(extent_bytes.saturating_mul(EXTENTS_PER_IMAGE)),
        };
        let interval = match manager.imgintvl {
            0 => Duration::MAX,
            minutes => Duration::from_secs(minutes.saturating_mul(60)),
        };
        ImagePolicy { log_bytes, interval }
    }
}

/// Extents of log after which an image is due in any case.
const EXTENTS_PER_IMAGE: u64 = 2;

/// Takes images when they are due, and reclaims extents, until dropped.
async fn reclaim(door: Arc<Door>, images: Arc<Images>, policy: ImagePolicy, reserve_bytes: u64) {
    let mut last = LastImage::at_start(&door.log());
    let mut look = LastLook::at_start(door.log().durable());
    let (mut relocated, mut complaint) = (LastRelocation::default(), Complaint::default());
    loop {
        let (now, durable) = (Instant::now(), door.log().durable());
        look.is_restless = door.log().space() != Space::Ample || images.owes_rebuilt();
        if let NextLook::Later { when, beyond } = look.next(now, durable, &last, policy) {
            // A fast disk writes more in a second than the distance at which an image is due.
            door.wake_ups().plan_look(beyond, || door.log().durable());
            let comes = door.wake_ups().look();
            match when {
                Some(when) => drop(timeout(when.duration_since(now), comes).await),
                None => comes.await,
            }
            continue;
        }
        (look.when, look.durable) = (now, durable);
        let (worker, taker) = (Arc::clone(&door), Arc::clone(&images));
        let done = spawn_blocking(move || {
            let usable = bytes_for_puts(&worker.log().stats(), reserve_bytes);
            let relocated = relocate_if_due(&worker, &taker, usable, relocated);
            note_time(&worker, &taker);
            (usable, relocated, image_if_due(worker.as_ref(), &taker, policy, last))
        });
        match done.await {
            Ok((for_puts, upto, taken)) => {
                (look.usable, relocated) = (for_puts, upto);
                last.update(taken, &mut complaint);
            }
            Err(error) => last.fails(&error.to_string(), &mut complaint),
        }
        sleep(LOOK_INTERVAL_MIN).await;
    }
}

/// The last check of the log.
#[derive(Clone, Copy, Debug)]
struct LastLook {
    when: Instant,
    /// How far the log was durable.
    durable: Lsn,
    /// Bytes that puts may fill. Known after the first look.
    usable: u64,
    /// There is something to do although the log does not grow.
    is_restless: bool,
}

/// When the log is to be checked next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum NextLook {
    Now,
    /// At this time, if ever; sooner when it is durable beyond this position.
    Later {
        when: Option<Instant>,
        beyond: Lsn,
    },
}

impl LastLook {
    fn at_start(durable: Lsn) -> LastLook {
        LastLook { when: Instant::now(), durable, usable: u64::MAX, is_restless: true }
    }

    /// When the next one is due; the log is durable up to `durable` now.
    fn next(&self, now: Instant, durable: Lsn, last: &LastImage, policy: ImagePolicy) -> NextLook {
        if !last.may_be_followed(now) {
            let when = last.failed.map(|failed| failed + RECLAIM_INTERVAL);
            return NextLook::Later { when, beyond: Lsn(u64::MAX) };
        }
        let image_at = last.at.0.saturating_add(policy.log_bytes);
        // Without free space for puts there is none to relocate messages into either.
        let part = self.usable / PART_BETWEEN_LOOKS;
        let part_at = if part > 0 { self.durable.0.saturating_add(part) } else { u64::MAX };
        let soon_at = image_at.min(part_at);
        let goes_on = durable > self.durable || self.is_restless || last.owes;
        let regular = self.when + RECLAIM_INTERVAL;
        let when = if goes_on {
            Some(regular)
        } else if durable > last.at {
            last.taken.checked_add(policy.interval).map(|by_age| by_age.max(regular))
        } else {
            None
        };
        if durable.0 >= soon_at || when.is_some_and(|when| when <= now) {
            return NextLook::Now;
        }
        // What is logged after a quiet time is looked at as soon as there is some.
        let beyond = if goes_on { Lsn(soon_at.saturating_sub(1)) } else { self.durable };
        NextLook::Later { when, beyond }
    }
}

/// How often a failure that lasts is reported: it is retried at [`RECLAIM_INTERVAL`].
const REPORT_INTERVAL: Duration = Duration::from_secs(600);

/// Reports that housekeeping fails: at the first failure, and now and then while it lasts.
#[derive(Debug, Default)]
pub struct Complaint {
    reported: Option<Instant>,
}

impl Complaint {
    fn report(&mut self, why: &str) {
        if self.is_due(Instant::now()) {
            say(&HOUSEKEEPING_FAILED, &[why]);
        }
    }

    fn is_due(&mut self, now: Instant) -> bool {
        let is_due =
            self.reported.is_none_or(|reported| now.duration_since(reported) >= REPORT_INTERVAL);
        if is_due {
            self.reported = Some(now);
        }
        is_due
    }
}

/// Writes the length of the log into the time index, for a restore to a time of day: of what is
/// answered, because what only this instance of a group has may be cut off, and then other work
/// stands there.
pub(crate) fn note_time(door: &Door, images: &Images) {
    let applied = door.look(|instance| instance.applied());
    // The position is read before the clock: it was durable at that time.
    let now = door.clock().wall();
    let written = images.time_index().map_or(Ok(()), |index| index.note(now, applied));
    if let Err(error) = written {
        tracing::debug!(%error, "a time is not written into the time index");
    }
}

/// The newest image, as the task that takes images knows it.
#[derive(Clone, Copy, Debug)]
pub struct LastImage {
    at: Lsn,
    taken: Instant,
    /// There may be extents that could not be reclaimed: by the last call, or by the process
    /// before.
    owes: bool,
    /// When the last call failed, if it did.
    failed: Option<Instant>,
}

impl LastImage {
    /// Takes the result of [`image_if_due`]. A failure to take an image, or to reclaim extents, is
    /// reported, and tried again a second later.
    pub fn update(&mut self, taken: Result<LastImage, LogError>, complaint: &mut Complaint) {
        match taken {
            Ok(now) => {
                (*self, *complaint) = (LastImage { failed: None, ..now }, Complaint::default())
            }
            // The process ends in order.
            Err(LogError::Stopped) => {}
            Err(error) => self.fails(&error.to_string(), complaint),
        }
    }

    fn fails(&mut self, why: &str, complaint: &mut Complaint) {
        self.owes = true;
        self.failed = Some(Instant::now());
        complaint.report(why);
    }

    /// Whether [`image_if_due`] may be called: not soon after a call that failed, because each may
    /// write a whole image.
    #[must_use]
    pub fn may_be_followed(&self, now: Instant) -> bool {
        self.failed.is_none_or(|failed| now.duration_since(failed) >= RECLAIM_INTERVAL)
    }

    /// As it is at the start of a process.
    #[must_use]
    pub fn at_start(log: &Log) -> LastImage {
        let at = log.image_at().unwrap_or(Lsn::ZERO);
        LastImage { at, taken: Instant::now(), owes: true, failed: None }
    }
}

/// Takes an image when so much was logged, or so much time passed, or free space is short, or the
/// one that ends a rebuild could not be taken yet.
///
/// # Errors
/// The older image is still there.
pub fn image_if_due(
    door: &impl ImageSource,
    images: &Images,
    policy: ImagePolicy,
    last: LastImage,
) -> Result<LastImage, LogError> {
    let log = door.log();
    // An administrator may have requested one meanwhile.
    let at = log.image_at().unwrap_or(Lsn::ZERO).max(last.at);
    let length = log.durable().0.saturating_sub(at.0);
    let old = length > 0 && last.taken.elapsed() >= policy.interval;
    // When the log is full, an image frees space.
    let pressed = log.space() != Space::Ample;
    let due = length >= policy.log_bytes || old || (pressed && length > 0) || images.owes_rebuilt();
    let mut now = LastImage { at, owes: false, ..last };
    let taken = if due { images.take(door)? } else { None };
    match taken {
        Some(taken) => (now.at, now.taken) = (taken.at, Instant::now()),
        None if last.owes => images.reclaim(door)?,
        None => {}
    }
    if pressed && log.images().len() > 1 {
        images.keep_only_the_newest(door)?;
    }
    Ok(now)
}

#[cfg(test)]
mod tests {
    use std::path::Path;
    use std::sync::atomic::{AtomicU64, Ordering};

    use towline_os::simulated::crash;
    use towline_os::simulated::fs::{FileSystem, OperationKind, Verdict};
    use towline_os::task::timeout;
    use towline_process::Clock;
    use towline_standby::Home;

    use super::*;
    use crate::replay::StartOptions;
    use crate::running::OpenInstance;

    #[test]
    fn a_failure_that_lasts_is_reported_at_once_and_then_every_ten_minutes() {
        let (mut complaint, began) = (Complaint::default(), Instant::now());
        let reported = (0..1_800).filter(|at| complaint.is_due(began + Duration::from_secs(*at)));
        assert_eq!(reported.collect::<Vec<u64>>(), [0, 600, 1_200]);
    }

    /// How often the log is checked within five seconds in which it grows at each glance.
    fn looks(usable: u64, log_bytes: u64) -> usize {
        let policy = ImagePolicy { log_bytes, interval: Duration::MAX };
        let mut look = LastLook { usable, ..LastLook::at_start(Lsn(1 << 30)) };
        let began = look.when;
        let image = LastImage { at: Lsn::ZERO, taken: began, owes: false, failed: None };
        let glances = (0..250).map(|glance| (began + LOOK_INTERVAL_MIN * glance, glance));
        let looks = glances.filter(|(now, glance)| {
            let durable = Lsn((1 << 30) + u64::from(*glance) * 4_096);
            let is_due = look.next(*now, durable, &image, policy) == NextLook::Now;
            if is_due {
                (look.when, look.durable) = (*now, durable);
            }
            is_due
        });
        looks.count()
    }

    #[test]
    fn the_log_is_checked_sooner_than_once_a_second_when_an_image_or_a_relocation_may_be_due() {
        assert_eq!(looks(u64::MAX, u64::MAX), 4);
        assert_eq!(looks(u64::MAX, 1 << 20), 250, "an image is due");
        assert_eq!(looks(1 << 16, u64::MAX), 249, "a block of 16 at each glance but the first");
        assert_eq!(looks(0, u64::MAX), 4, "no byte is free for puts");
    }

    #[test]
    fn an_image_that_cannot_be_written_is_tried_once_a_second() {
        const NO_SPACE: i32 = 28;
        let (files, tries) = (FileSystem::new(), Arc::new(AtomicU64::new(0)));
        assert!(files.make_folder("/data"));
        let counted = Arc::clone(&tries);
        files.set_faults(move |operation| {
            let is_of_image = operation.path.ends_with("log/new-image");
            if is_of_image && operation.kind == OperationKind::Create {
                counted.fetch_add(1, Ordering::Relaxed);
                return Verdict::Fails(NO_SPACE);
            }
            Verdict::Goes
        });
        let five_seconds = || {
            let (config, home) = (Config::default(), Home::single(Path::new("/data")));
            let options = StartOptions::default();
            let open = OpenInstance::open("QM1", &home, &config, options, Clock::start()).unwrap();
            open.door().define_defaults();
            let policy = ImagePolicy { log_bytes: 1, interval: Duration::MAX };
            let keeps = reclaim(Arc::clone(open.door()), Arc::clone(open.images()), policy, 0);
            Handle::current().block_on(async { timeout(Duration::from_secs(5), keeps).await.ok() });
        };
        crash::in_process(&files, 1, five_seconds).unwrap();
        let tries = tries.load(Ordering::Relaxed);
        assert!((4..=5).contains(&tries), "{tries}");
    }

    #[test]
    fn what_was_refused_is_owed_until_it_succeeds_and_reported_anew_after_that() {
        let mut complaint = Complaint::default();
        let before = LastImage { at: Lsn(7), taken: Instant::now(), owes: false, failed: None };
        let mut last = before;
        last.update(Err(LogError::Full), &mut complaint);
        assert!(last.owes && last.at == before.at && complaint.reported.is_some());
        let failed = last.failed.unwrap();
        assert!(!last.may_be_followed(failed + RECLAIM_INTERVAL / 2));
        assert!(last.may_be_followed(failed + RECLAIM_INTERVAL));
        last.update(Ok(LastImage { at: Lsn(9), ..before }), &mut complaint);
        assert!(!last.owes && last.at == Lsn(9) && complaint.reported.is_none());
        assert!(last.may_be_followed(failed));
    }

    #[test]
    fn images_are_due_by_imglogln_or_two_extents_and_by_imgintvl_and_never_with_0() {
        let policy = |text: &str| {
            let config = Config::parse(&format!("[queue_manager]\n{text}")).unwrap();
            let ImagePolicy { log_bytes, interval, .. } = ImagePolicy::of(&config, 64 << 20);
            (log_bytes, interval)
        };
        let hour = Duration::from_secs(3_600);
        assert_eq!(policy("imglogln = 100"), (100 << 20, hour));
        assert_eq!(policy("imglogln = 129"), (128 << 20, hour), "two extents are less");
        assert_eq!(policy("imglogln = 0\nimgintvl = 7"), (u64::MAX, 7 * hour / 60));
        assert_eq!(policy("imglogln = 1\nimgintvl = 0"), (1 << 20, Duration::MAX));
    }

    #[test]
    fn the_log_is_full_of_what_is_needed_and_not_of_what_can_be_reused() {
        let bounded = Stats {
            bytes_in_use: 600,
            bytes_reusable: 100,
            bytes_max: 1_050,
            file_system_bytes_in_use: 10_000,
            file_system_bytes_max: 20_000,
            ..Stats::default()
        };
        assert_eq!(percent_full(500, &bounded, 50), 50, "the log's own bound");
        let full_disk = Stats { file_system_bytes_in_use: 19_900, ..bounded };
        assert_eq!(percent_full(600, &full_disk, 50), 80, "the disk has 100 more");
        let unknown = Stats { file_system_bytes_max: 0, bytes_max: u64::MAX, ..bounded };
        assert_eq!(percent_full(600, &unknown, 50), 0);
        assert_eq!(percent_full(600, &bounded, 5_000), 60_000, "all of it is reserve");
    }
}
