//! What is asked on the control socket, and what is answered: JSON in, JSON out.
//!
//! `{"do":"process"}`, `{"do":"status"}`, `{"do":"stop","force":false}`, `{"do":"reload"}`,
//! `{"do":"restart"}`, `{"do":"switch","to":"NAME"}`, and, with `"dry_run"`, `"by"` and
//! `"timeout_ms"`, `{"do":"region_switch"}`, `{"do":"region_failover"}` and, with `"discard"`,
//! `{"do":"region_rejoin"}`, `{"do":"region_unfence"}` and, with `"reason"`,
//! `{"do":"region_fence"}`; `{"do":"region_report","report":{...}}`; and
//! `{"do":"region_rehearse"}`, after which the connection stays. The answer is `{"ok":...}` or
//! `{"error":"..."}`.

use std::os::unix::net::UnixStream;
use std::sync::{Arc, OnceLock};

use parking_lot::Mutex;
use serde::Deserialize;
use serde_json::{Value, json};
use towline_admin::status::{GroupStatus, ProcessMode, ProcessPhase, ProcessReport, Status};
use towline_process::Clock;

use crate::reload::Reload;
use crate::signals::{LocalEvent, LocalEvents, Promise};

#[derive(Debug, Deserialize)]
#[serde(rename_all = "snake_case", tag = "do", deny_unknown_fields)]
enum Request {
    /// What this process is doing. Never waits for the instance.
    Process,
    /// The same, and what the instance in it knows.
    Status,
    Stop {
        #[serde(default)]
        force: bool,
    },
    Reload,
    /// To execute the program again.
    Restart,
    Switch {
        #[serde(default)]
        to: Option<String>,
    },
    /// The other region is to be live, without loss.
    RegionSwitch(RegionOrder),
    /// This region is to be live, whatever the other one has.
    RegionFailover(RegionOrder),
    /// This region, which was live, is to follow the other one.
    RegionRejoin(RegionOrder),
    /// This region, which is live, is to serve nobody.
    RegionFence(RegionOrder),
    /// It is to serve again.
    RegionUnfence(RegionOrder),
    /// To keep a report of a change of roles that the command completed.
    RegionReport {
        report: Value,
    },
    /// Another process reads the log of this recovery instance, as long as the connection stands.
    RegionRehearse(RehearsalOrder),
}

/// How a rehearsal is ordered.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct RehearsalOrder {
    /// Bytes that it may write.
    pub(crate) room_bytes: u64,
    /// The user that orders it.
    #[serde(default)]
    pub(crate) by: String,
}

/// How a change of roles is ordered.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct RegionOrder {
    /// Nothing is changed: what is to be expected is answered.
    #[serde(default)]
    pub(crate) dry_run: bool,
    /// The user that orders it.
    #[serde(default)]
    pub(crate) by: String,
    /// How long it may take.
    #[serde(default)]
    pub(crate) timeout_ms: u64,
    /// A switch: it is a drill, and the other group switches back after so many seconds.
    #[serde(default)]
    pub(crate) back_after_s: Option<u64>,
    /// A fail-over: although the live group ships to this one.
    #[serde(default)]
    pub(crate) force: bool,
    /// A return: what is behind the fork may go without an export.
    #[serde(default)]
    pub(crate) discard: bool,
    /// A fence: why.
    #[serde(default)]
    pub(crate) reason: String,
}

/// What is to happen once an answer is written, or could not be.
pub(crate) type Afterwards = Box<dyn FnOnce() + Send>;

/// What goes on on a connection once its answer is written, until it ends.
pub(crate) type Beside = Box<dyn FnOnce(&UnixStream) + Send>;

/// What is to happen when an answer is written.
pub(super) enum AfterAnswer {
    /// The process ends, or executes its program again.
    Promise(Promise),
    /// Also when it is not read.
    Afterwards(Afterwards),
    /// The connection is for nothing else from then on.
    Beside(Beside),
}

const NO_REGION: &str = "this queue manager is in no group, and has no other region";

/// What an instance reports of itself.
pub(crate) struct InstanceReport {
    /// The group, when it is an instance of one.
    pub(crate) group: Option<GroupStatus>,
    /// The queue manager, where it is active.
    pub(crate) status: Option<Status>,
}

/// What an open instance adds to the answers of its process.
pub(crate) trait ControlledInstance: Send + Sync {
    /// Its part of a status.
    fn report(&self) -> InstanceReport;

    /// Why it should not stop now, if so; `--force` stops it all the same.
    fn objection_to_stop(&self) -> Option<String>;

    /// Makes another instance of the group active.
    ///
    /// # Errors
    /// Why not.
    fn switch(&self, to: Option<&str>) -> Result<Value, String>;

    /// Has the other region become live; what is answered, and what follows.
    ///
    /// # Errors
    /// Why not.
    fn region_switch(&self, _order: &RegionOrder) -> Result<(Value, Option<Afterwards>), String> {
        Err(NO_REGION.to_owned())
    }

    /// Has this region become live.
    ///
    /// # Errors
    /// Why not.
    fn region_failover(&self, _order: &RegionOrder) -> Result<Value, String> {
        Err(NO_REGION.to_owned())
    }

    /// Has this region, which was live, follow the other one; what is answered, and what follows.
    ///
    /// # Errors
    /// Why not.
    fn region_rejoin(&self, _order: &RegionOrder) -> Result<(Value, Option<Afterwards>), String> {
        Err(NO_REGION.to_owned())
    }

    /// Holds the log of this instance for a rehearsal; what is answered, and what goes on.
    ///
    /// # Errors
    /// Why not.
    fn region_rehearse(&self, _order: &RehearsalOrder) -> Result<(Value, Beside), String> {
        Err(NO_REGION.to_owned())
    }

    /// Has this region, which is live, serve nobody, or again.
    ///
    /// # Errors
    /// Why not.
    fn region_fence(&self, _order: &RegionOrder, _is_on: bool) -> Result<Value, String> {
        Err(NO_REGION.to_owned())
    }

    /// Keeps a report of a change of roles.
    ///
    /// # Errors
    /// Why not.
    fn region_report(&self, _report: Value) -> Result<Value, String> {
        Err(NO_REGION.to_owned())
    }

    /// Whether this process can execute its program again.
    ///
    /// # Errors
    /// Why not.
    fn can_restart(&self) -> Result<(), String>;
}

/// What the control socket answers from.
pub(crate) struct ControlDesk {
    /// What never changes; the times and the phase are filled in.
    process: ProcessReport,
    clock: Clock,
    /// What it is doing, and the process that a standby waits for.
    phase: Mutex<(ProcessPhase, String)>,
    reload: Arc<Reload>,
    events: LocalEvents,
    instance: OnceLock<Arc<dyn ControlledInstance>>,
}

impl ControlDesk {
    /// Of a process that starts; `instance` is its name: in multi-instance mode host:pid.
    pub(crate) fn new(
        queue_manager: &str,
        (mode, instance): (ProcessMode, String),
        clock: Clock,
        reload: Arc<Reload>,
        events: LocalEvents,
    ) -> ControlDesk {
        let process = ProcessReport {
            queue_manager: queue_manager.to_owned(),
            pid: std::process::id(),
            version: towline_types::program_version().to_owned(),
            mode,
            instance,
            config: reload.file().map(|file| file.display().to_string()).unwrap_or_default(),
            folder: std::env::current_dir().unwrap_or_default().display().to_string(),
            ..ProcessReport::default()
        };
        let phase = Mutex::new((ProcessPhase::Starting, String::new()));
        ControlDesk { process, clock, phase, reload, events, instance: OnceLock::new() }
    }

    /// The name of this process on a shared data folder.
    pub(crate) fn shared_name(&self) -> Option<&str> {
        (self.process.mode == ProcessMode::MultiInstance).then_some(&*self.process.instance)
    }

    /// It stands by for the process `active`.
    pub(crate) fn stands_by(&self, active: &str) {
        *self.phase.lock() = (ProcessPhase::Standby, active.to_owned());
    }

    /// It stands by no more.
    pub(crate) fn takes_over(&self) {
        *self.phase.lock() = (ProcessPhase::Starting, String::new());
    }

    /// The instance is open.
    pub(crate) fn runs(&self, instance: Arc<dyn ControlledInstance>) {
        assert!(self.instance.set(instance).is_ok(), "a process opens one instance");
        *self.phase.lock() = (ProcessPhase::Running, String::new());
    }

    /// It ends, or executes its program again.
    pub(crate) fn ends(&self) {
        self.phase.lock().0 = ProcessPhase::Ending;
    }

    /// The answer to a request, and what is to happen when it is written.
    pub(super) fn answer(&self, request: &[u8]) -> (Value, Option<AfterAnswer>) {
        let request = match serde_json::from_slice(request) {
            Ok(request) => request,
            Err(error) => return (refusal(&format!("this is not understood: {error}")), None),
        };
        let promised = match request {
            Request::Process => return (done(json!(self.report())), None),
            Request::Status => return (done(self.status()), None),
            Request::Reload => return (done(json!(self.reload.now())), None),
            Request::Switch { to } => {
                let switched = self.opened().and_then(|instance| instance.switch(to.as_deref()));
                return match switched {
                    Ok(switched) => (done(switched), None),
                    Err(why) => (refusal(&why), None),
                };
            }
            Request::RegionSwitch(order) => {
                let switched = self.opened().and_then(|instance| instance.region_switch(&order));
                return with_after(switched);
            }
            Request::RegionRejoin(order) => {
                return with_after(self.opened().and_then(|it| it.region_rejoin(&order)));
            }
            Request::RegionRehearse(order) => {
                return match self.opened().and_then(|it| it.region_rehearse(&order)) {
                    Ok((answer, goes_on)) => (done(answer), Some(AfterAnswer::Beside(goes_on))),
                    Err(why) => (refusal(&why), None),
                };
            }
            Request::RegionFailover(order) => {
                let promoted = self.opened().and_then(|instance| instance.region_failover(&order));
                return (promoted.map_or_else(|why| refusal(&why), done), None);
            }
            Request::RegionFence(order) => {
                let fenced = self.opened().and_then(|it| it.region_fence(&order, true));
                return (fenced.map_or_else(|why| refusal(&why), done), None);
            }
            Request::RegionUnfence(order) => {
                let lifted = self.opened().and_then(|it| it.region_fence(&order, false));
                return (lifted.map_or_else(|why| refusal(&why), done), None);
            }
            Request::RegionReport { report } => {
                let kept = self.opened().and_then(|instance| instance.region_report(report));
                return (kept.map_or_else(|why| refusal(&why), done), None);
            }
            Request::Stop { force } => self.stop(force),
            Request::Restart => self
                .opened()
                .and_then(|instance| instance.can_restart())
                .and_then(|()| self.promise(LocalEvent::Restart)),
        };
        match promised {
            Ok(promise) => (done(json!({})), Some(AfterAnswer::Promise(promise))),
            Err(why) => (refusal(&why), None),
        }
    }

    fn stop(&self, force: bool) -> Result<Promise, String> {
        // An instance that is not open yet is none that its group counts on.
        let objection = self.instance.get().and_then(|instance| instance.objection_to_stop());
        match objection {
            Some(why) if !force => Err(why),
            Some(_) | None => self.promise(LocalEvent::Stop),
        }
    }

    fn promise(&self, event: LocalEvent) -> Result<Promise, String> {
        self.events.promise(event).ok_or_else(|| {
            "this process executes its program again at this moment; ask again".to_owned()
        })
    }

    fn opened(&self) -> Result<&Arc<dyn ControlledInstance>, String> {
        self.instance.get().ok_or_else(|| {
            let phase = self.phase.lock().0.as_str();
            format!("this process is {phase}: its instance is not open")
        })
    }

    fn report(&self) -> ProcessReport {
        let (phase, active) = self.phase.lock().clone();
        let uptime_s = self.clock.uptime().as_secs();
        ProcessReport { phase, active, uptime_s, ..self.process.clone() }
    }

    fn status(&self) -> Value {
        let report = self.instance.get().map(|instance| instance.report());
        let (group, status) =
            report.map_or((None, None), |InstanceReport { group, status }| (group, status));
        json!({ "process": self.report(), "group": group, "status": status })
    }
}

fn with_after(result: Result<(Value, Option<Afterwards>), String>) -> (Value, Option<AfterAnswer>) {
    match result {
        Ok((answer, after)) => (done(answer), after.map(AfterAnswer::Afterwards)),
        Err(why) => (refusal(&why), None),
    }
}

fn done(ok: Value) -> Value {
    json!({ "ok": ok })
}

/// The answer to what is not done.
pub(super) fn refusal(why: &str) -> Value {
    json!({ "error": why })
}
