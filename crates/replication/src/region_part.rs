//! This instance's part in the traffic between two regions: what comes over the link goes to the
//! thread that ships (on the live group's active instance) or to the one that receives (on a
//! recovery instance), and what both find out is kept for the status.
//!
//! Reading order: [`RegionPart::start`], [`RegionPart::serve_as_live`] (this instance became
//! active), `inbox` (the link), `region_watch` (what is looked at as time passes).
//!
//! Not here: whether two groups fit (`region_meeting`), connections (`towline_link`), what is done
//! with batches (`region_shipping`, `region_receiving`), changes of roles (`region_hand_over`: the
//! last batch of a group that was live).
//!
//! Invariants: nothing is shipped, or taken, on a link whose two ends did not find that one log is
//! the beginning of the other; live ships only a log that has a history; nothing here waits for the
//! other region.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use towline_config::{Config, GroupConfig, RecoveryConfig};
use towline_group::Mode;
use towline_link::{RegionDialler, RegionLink, RegionLinkState};
use towline_os::sync::{Mutex, OnceLock};
use towline_os::thread::Builder;
use towline_region::ReportPolicy;
pub use towline_region::{CountedLog, Counts, RecoveryPoint, SyncPolicy, SyncState};
use towline_types::{BatchPlace, Histories, History, HistoryId, Lsn, Time};

use crate::batch_marks::BatchMarks;
use crate::copy::CopySource;
use crate::driver::{Driver, RegionEvents};
use crate::rebase_progress::RebaseView;
use crate::region_agreement::{RegionAgreement, RegionMoment};
use crate::region_clients::GroupClients;
use crate::region_condition::RegionConditions;
use crate::region_differences::RegionDifference;
use crate::region_giving::Giving;
use crate::region_meeting::RegionSaid;
use crate::region_position::ShippedLog;
pub use crate::region_receiving::ReceivingView;
use crate::region_receiving::{Receiving, ReceivingHost};
use crate::region_shipping::Shipping;
pub use crate::region_shipping::ShippingView;
use crate::region_taking::Taking;
pub use crate::region_watch::UNKNOWN_S_MAX;
use crate::region_watch::{RegionWatch, WatchedRegion};
use crate::return_order::KnownFork;
use before::SaidBefore;
use comparing::Comparing;
pub use other_said::OtherRole;
use other_said::OtherSaid;

/// The log of this instance, as only its queues know it.
pub trait RegionHost: Send + Sync + 'static {
    /// The histories of the log, as applied.
    fn histories(&self) -> Histories;

    /// Persistent messages ever put and removed, as applied, and up to where. Called often: it must
    /// not wait.
    fn counted(&self) -> CountedLog;

    /// Has the active instance begin the first history of its log. It has begun when
    /// [`RegionHost::histories`] has it.
    ///
    /// # Errors
    /// Why not, or not yet.
    fn begin_first_history(&self, cause: &str) -> Result<(), String>;

    /// The part of the log that is in use, in percent of what puts may fill.
    fn percent_full(&self) -> u64;

    /// What a copy of the log is made of.
    fn copy_source(&self) -> Arc<dyn CopySource>;

    /// When the log was at least so long, if that is known.
    fn time_at(&self, position: Lsn) -> Option<Time>;

    /// Whether the log began before that time, as far as its objects say: one of them was defined
    /// then. `None`: that is not known at this moment.
    fn is_log_older_than(&self, time: Time) -> Option<bool>;
    /// When what is behind a position was committed, at the latest, by the time of day; `None`:
    /// that is not known.
    fn time_behind(&self, position: Lsn) -> Option<Time>;

    /// Whether the log has anything behind a position that would be missed: of messages, or of
    /// objects. Reads the log.
    ///
    /// # Errors
    /// Why that is not known.
    fn has_changes_behind(&self, position: Lsn) -> Result<bool, String>;

    /// Whether the first batch with content behind the fork of a history, committed or not, has the
    /// record with which that begins. May read the log.
    fn has_record(&self, history: &History) -> bool;

    /// A random number.
    fn drawn(&self) -> u64;
    /// The time of day.
    fn wall(&self) -> Time;
}

/// What is configured of both regions.
pub struct RegionTerms {
    /// Name of the queue manager.
    pub queue_manager: String,
    /// The configuration of this instance.
    pub config: Config,
    /// Its group.
    pub group: GroupConfig,
    /// The other region.
    pub recovery: RecoveryConfig,
    /// Bytes of an extent, as the log has it.
    pub extent_bytes: u64,
}

/// What is known of the other region, for status and metrics.
#[derive(Clone, Debug, Default)]
pub struct RegionView {
    /// The link.
    pub link: RegionLinkState,
    /// This instance ships to it.
    pub shipping: Option<ShippingView>,
    /// What it ships to this instance.
    pub receiving: ReceivingView,
    /// What the other group said last that it is.
    pub other_role: OtherRole,
    /// Why the logs of both are not one: an operator must decide.
    pub partition: Option<String>,
    /// Why nothing is shipped otherwise.
    pub trouble: Option<String>,
    /// It lacks log that is not there any more.
    pub needs_copy: bool,
    /// A copy goes there, or comes from there.
    pub rebase: Option<RebaseView>,
    /// A copy went there, and it has not said yet that it goes on with it.
    pub awaits_rebased: bool,
    /// Why a copy does not go on.
    pub rebase_trouble: Option<String>,
    /// In recovery: what this group can be promoted with, and when the log was there.
    pub promotable: (RecoveryPoint, Option<Time>),
    /// More is at risk than the objective allows.
    pub misses_rpo: bool,
    /// What differs in the configurations, as of the last connection.
    pub differences: Vec<RegionDifference>,
}

/// See the module.
pub struct RegionPart {
    pub(crate) driver: Arc<Driver>,
    pub(crate) host: Arc<dyn RegionHost>,
    pub(crate) terms: RegionTerms,
    receiving: OnceLock<Receiving>,
    pub(crate) shipping: Mutex<ShippingSeat>,
    giving: OnceLock<Arc<Giving>>,
    taking: Arc<Taking>,
    links: OnceLock<Arc<dyn RegionDialler>>,
    pub(crate) known: Mutex<KnownRegion>,
    /// Taken under no other lock, and none of this module is taken under it.
    comparing: Mutex<Comparing>,
    /// What the active instance before this one said of the other region.
    said_before: Mutex<Option<SaidBefore>>,
    conditions: RegionConditions,
    /// When this process took it up.
    began: Time,
    /// More is at risk than the objective allows.
    misses_rpo: AtomicBool,
}

/// What ships from this instance.
#[derive(Default)]
pub(crate) struct ShippingSeat {
    pub(crate) shipping: Option<Arc<Shipping>>,
    /// It is no live instance's: see `region_hand_over`.
    pub(crate) hands_over: bool,
}

#[derive(Default)]
pub(crate) struct KnownRegion {
    pub(crate) partition: Option<String>,
    /// That is what both said of themselves, and not what became of a batch.
    partition_is_said: bool,
    /// The log of the other group is full, and a copy of this one fits: an instance of it that ends
    /// before this batch gets one; since when.
    full_before: Option<(u64, Time)>,
    /// The words that were logged last. They are news again once a link has stayed.
    partition_told: Option<String>,
    /// When the newest link was opened.
    link_since: Option<Time>,
    /// What the other group said last.
    other: Option<OtherSaid>,
    pub(crate) trouble: Option<String>,
    needs_copy: bool,
    differences: Vec<RegionDifference>,
    /// Where clients find the other group, as it said when it was connected last.
    clients: Option<Arc<GroupClients>>,
    /// A link on which nothing is shipped before the log has a history.
    awaits_history: Option<RegionLink>,
    /// Where the other group went on from without this one.
    fork: Option<KnownFork>,
    /// The history in which the other group is known to have taken over.
    pub(crate) taken_over_in: Option<HistoryId>,
}

impl RegionPart {
    /// The part of this instance, which is in no region's traffic yet.
    ///
    /// # Errors
    /// What is remembered of copies cannot be read.
    pub fn new(
        driver: Arc<Driver>,
        host: Arc<dyn RegionHost>,
        terms: RegionTerms,
    ) -> std::io::Result<Arc<RegionPart>> {
        let (of_log, of_queues) = (Arc::clone(&driver), Arc::clone(&host));
        let point = Box::new(move || committed_point(&of_log, of_queues.as_ref()));
        let taking = Taking::new(Arc::clone(&driver), terms.recovery.name.clone(), point)?;
        let taking = Arc::new(taking);
        let began = driver.now();
        let part = Arc::new(RegionPart {
            began,
            driver: Arc::clone(&driver),
            host: Arc::clone(&host),
            terms,
            receiving: OnceLock::new(),
            shipping: Mutex::default(),
            giving: OnceLock::new(),
            taking: Arc::clone(&taking),
            links: OnceLock::new(),
            known: Mutex::default(),
            comparing: Mutex::default(),
            said_before: Mutex::default(),
            conditions: RegionConditions::default(),
            misses_rpo: AtomicBool::new(false),
        });
        let policy = ReportPolicy {
            interval: part.terms.recovery.status_interval(),
            threshold_bytes: part.terms.recovery.status_commit_threshold_bytes,
            is_awaited: false,
        };
        let (of_link, of_refusal) = (Arc::downgrade(&part), Arc::downgrade(&part));
        let receiving = ReceivingHost {
            counts: Box::new(move || host.counted()),
            round_trip: Box::new(move || {
                let state = of_link.upgrade()?.links.get()?.state();
                state.link.round_trip_us.map(Duration::from_micros)
            }),
            refused: Box::new(move |why| {
                if let Some(part) = of_refusal.upgrade() {
                    part.refuses(why);
                }
            }),
            before: {
                let taking = Arc::clone(&taking);
                Box::new(move |majority| taking.before(majority))
            },
            rebases: Box::new(move || taking.begun()),
        };
        let receiving = Receiving::new(driver, policy, receiving);
        assert!(part.receiving.set(receiving).is_ok(), "it receives in one place");
        Ok(part)
    }

    /// Connects the member and the links, and starts the thread that receives.
    ///
    /// # Errors
    /// There is no thread.
    pub fn start(self: &Arc<Self>, links: Arc<dyn RegionDialler>) -> std::io::Result<()> {
        assert!(self.links.set(links).is_ok(), "the links to the other region are set once");
        let events = Arc::clone(self) as Arc<dyn RegionEvents>;
        self.driver.set_region(&events);
        let receives = Arc::clone(self);
        let body = move || receives.receiving().run();
        Builder::new().name("region-receive".into()).spawn(body)?;
        let hands_over = Arc::clone(self);
        let body = move || hands_over.watch_hand_over();
        Builder::new().name("region-hand-over".into()).spawn(body).map(drop)
    }

    /// This instance became active in a group that is live: it ships, if that is configured.
    ///
    /// # Errors
    /// There is no thread.
    pub fn serve_as_live(self: &Arc<Self>) -> std::io::Result<()> {
        if !self.terms.recovery.enabled {
            return Ok(());
        }
        self.waits_for_first_word()?;
        let shipping = self.start_shipping()?;
        shipping.waits_by(self.sync_gate());
        self.takes_over_point(&shipping);
        let shipping = Some(shipping);
        let mut seat = self.shipping.lock();
        assert!(seat.shipping.is_none() || seat.hands_over, "it becomes active once");
        let before = std::mem::replace(&mut *seat, ShippingSeat { shipping, hands_over: false });
        self.links().dial(true);
        drop(seat);
        if let Some(before) = before.shipping {
            before.retire("this group is live again");
            self.links().kick();
        }
        let giving = Arc::new(self.giver());
        assert!(self.giving.set(Arc::clone(&giving)).is_ok(), "it becomes active once");
        Builder::new().name("region-rebase".into()).spawn(move || giving.run()).map(drop)
    }

    /// Starts the thread that ships. Not under the lock of the seat, which is taken under that
    /// of the driver.
    ///
    /// # Errors
    /// There is no thread.
    pub(crate) fn start_shipping(self: &Arc<Self>) -> std::io::Result<Arc<Shipping>> {
        let log: Arc<Driver> = Arc::clone(&self.driver);
        // What the other region has is not known before it says so.
        let known = (self.host.counted().counts, BatchPlace::default());
        let window = self.terms.recovery.window_bytes;
        let shipping = Shipping::new(log, window, known, self.driver.now());
        let shipping = Arc::new(shipping.with_times(self.times_behind()));
        let (ships, mut watch) = (Arc::clone(self), RegionWatch::new(&self.driver));
        let runs = Arc::clone(&shipping);
        let body = move || {
            // A reply that waits for the other region would wait for this moment too.
            let gathers = !ships.terms.recovery.sync_replication;
            let gather = |moment| {
                if gathers {
                    ships.driver.pause(moment)
                }
            };
            runs.run(gather, || ships.look(&mut watch, &runs));
        };
        Builder::new().name("region-ship".into()).spawn(body)?;
        Ok(shipping)
    }

    /// What ships from this instance, if anything does.
    pub(crate) fn shipping(&self) -> Option<Arc<Shipping>> {
        self.shipping.lock().shipping.clone()
    }

    /// Called at each turn of the thread that ships.
    fn look(&self, watch: &mut RegionWatch, shipping: &Shipping) {
        let seen = watch.look(&WatchedRegion {
            driver: &self.driver,
            shipping,
            recovery: &self.terms.recovery,
            log: &self.terms.config.log,
            counts: &|| self.host.counted().counts,
            percent_full: &|| self.host.percent_full(),
            copied: self.giving.get().and_then(|giving| giving.held_end()),
            misses_rpo: &self.misses_rpo,
        });
        if let Some(view) = seen {
            self.begin_history_if_due();
            self.helps_full_log(shipping, &view);
            self.watch_gate(shipping);
            if let Some(giving) = self.giving.get() {
                giving.watch(&view, self.host.percent_full());
            }
            if let Some(end) = view.ended {
                self.keep_end(&end);
            }
        }
    }

    /// The process ends, or this instance is not active any more.
    pub fn end(&self) {
        self.receiving().end();
        if let Some(shipping) = self.shipping() {
            shipping.end();
        }
        if let Some(giving) = self.giving.get() {
            giving.end();
        }
        if let Some(links) = self.links.get() {
            links.stop();
        }
    }

    /// What is known of the other region.
    pub fn view(&self) -> RegionView {
        let now = self.driver.now();
        let giving = self.giving.get();
        let (gives, takes) = (giving.and_then(|it| it.view()), self.taking.view());
        let promotable = self.promotable();
        let promotable = (promotable, self.host.time_at(promotable.place.end));
        let shipping = self.shipping();
        if let Some(shipping) = &shipping {
            // The thread that ships counts now and then only. A view shows what is at risk at this
            // moment.
            shipping.committed(self.host.counted().counts, now);
        }
        let shipping = shipping.map(|shipping| shipping.view(now));
        self.settle_partition();
        let known = self.known.lock();
        RegionView {
            link: self.links.get().map(|links| links.state()).unwrap_or_default(),
            receiving: self.receiving().view(),
            other_role: known.other.as_ref().map(|other| other.role).unwrap_or_default(),
            partition: known.partition.clone(),
            trouble: known.trouble.clone(),
            needs_copy: known.needs_copy,
            rebase: gives.or(takes),
            awaits_rebased: giving.is_some_and(|it| it.is_awaited()),
            rebase_trouble: giving.and_then(|it| it.trouble()).or_else(|| self.taking.trouble()),
            promotable,
            // As it was logged: who sees that an alarm is over finds that in the log.
            misses_rpo: self.misses_rpo.load(Ordering::Relaxed),
            shipping,
            differences: known.differences.clone(),
        }
    }

    pub(crate) fn receiving(&self) -> &Receiving {
        self.receiving.wait()
    }

    pub(crate) fn links(&self) -> &Arc<dyn RegionDialler> {
        self.links.wait()
    }

    /// What this group can be promoted with, if it is in recovery.
    fn promotable(&self) -> RecoveryPoint {
        let now = committed_point(&self.driver, self.host.as_ref());
        let before = self.taking.before_now().unwrap_or(now);
        RecoveryPoint { rebases: self.taking.begun(), ..before }
    }

    /// Whether this group is live, with these histories; `None`: it is being promoted.
    fn is_live(&self, histories: &Histories) -> Option<bool> {
        match self.driver.mode() {
            // The last batch of a live group says that the other one is.
            Mode::Voting => Some(!self.names_other(histories)),
            Mode::Recovery => Some(false),
            Mode::Promoting => None,
        }
    }

    /// The histories that this instance says, and whether its group is live.
    fn role_now(&self) -> (Histories, bool) {
        let histories = self.host.histories();
        let is_live = self.is_live(&histories) == Some(true);
        (self.driver.histories_said(histories), is_live)
    }

    /// What this instance says of itself.
    fn said(&self) -> RegionSaid {
        let histories = self.host.histories();
        let is_live = self.is_live(&histories);
        let RegionTerms { queue_manager, config, group, recovery, extent_bytes } = &self.terms;
        let moment = RegionMoment {
            queue_manager,
            levels: self.driver.levels(),
            extent_bytes: *extent_bytes,
            is_live,
        };
        let (position, sums) = self.driver.region_position();
        // What comes meanwhile is in neither of both.
        let said = self.driver.histories_said(histories).up_to(position.last.end);
        self.batches_said(RegionSaid {
            agreement: RegionAgreement::of(config, group, recovery, &moment),
            position,
            sums,
            histories: said,
            log_id: self.driver.log().id(),
            point: (is_live == Some(false)).then(|| self.promotable()),
            batches: BatchMarks::default(),
            asked: Vec::new(),
        })
    }
}

/// What is committed here, and so what a promotion keeps.
fn committed_point(driver: &Driver, host: &dyn RegionHost) -> RecoveryPoint {
    // Counted first: what is counted is no more than what is there.
    let counts = host.counted().counts;
    let place = ShippedLog::committed(driver);
    RecoveryPoint { place, received: place.end, counts, ..RecoveryPoint::default() }
}

mod before;
mod beside;
mod comparing;
mod inbox;
mod lost_log;
mod other_said;
mod rebase;
mod returning;
mod synchronous;
