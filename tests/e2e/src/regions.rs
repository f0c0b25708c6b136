//! Two groups of one queue manager as child processes on loopback, of one or of three instances
//! each, with a slow network between them: `west` begins as the live one, `east` as recovery.
//!
//! Each instance of east is reached by west through a proxy of its own, and the other way round.
//! Not here: clients, judgement.

use std::net::SocketAddr;
use std::process::Command;
use std::time::Duration;

use serde_json::Value;

use crate::daemon::{Daemon, Site, said};
use crate::group::LINKS_PORT;
use crate::group::lease::Lease;
use crate::slow_net::SlowNet;
use crate::slow_net::command::Command as Order;
use crate::{Try, fail, paths, require, wait};

/// Position of the group that begins as the live one.
pub const WEST: usize = 0;
/// Position of the other one.
pub const EAST: usize = 1;
/// Longer than anything takes on a busy machine.
pub const LONG: Duration = Duration::from_secs(60);
const GROUPS: [&str; 2] = ["WEST", "EAST"];
const NAMES: [&str; 3] = ["a", "b", "c"];
const CLIENTS_PORT: u16 = 5672;
const REGION_PORT: u16 = 5800;

/// What both groups are made of.
#[derive(Clone, Debug, Default)]
pub struct RegionsDesign {
    /// Instances of each group: 1 or 3.
    pub size: usize,
    /// More of the configuration, before `[group]`.
    pub config: String,
    /// More of `[group.recovery]`.
    pub recovery: String,
    /// Whether each instance has the address of its clients in the configuration.
    pub has_clients: bool,
}

/// See the module.
pub struct Regions {
    sites: [Vec<Site>; 2],
    daemons: [Vec<Option<Daemon>>; 2],
    /// In front of the instances of each group.
    nets: [Vec<SlowNet>; 2],
    _leases: [Lease; 2],
}

impl Regions {
    /// Both groups, of which nothing runs.
    ///
    /// # Errors
    /// When their files cannot be made.
    pub fn plan(design: &RegionsDesign) -> Try<Regions> {
        let size = design.size;
        let leases = [Lease::take()?, Lease::take()?];
        let mut sites = [Vec::new(), Vec::new()];
        let mut nets = [Vec::new(), Vec::new()];
        for group in [WEST, EAST] {
            for at in 0..size {
                sites[group].push(Site::open()?);
                let behind = format!("{}:{REGION_PORT}", leases[group].address(at));
                let front = SocketAddr::from((leases[group].address(10 + at), REGION_PORT));
                nets[group].push(SlowNet::start(front, &behind)?);
            }
            let papers = sites[group][0].scratch().join("papers");
            let mut command = Command::new(paths::towline()?);
            command.args(["group", "certificates", "--name", "QM1", "--group", GROUPS[group]]);
            command.args(["--instances", &NAMES[..size].join(","), "--out"]);
            let output = command.arg(&papers).output()?;
            require!(output.status.success(), "certificates: {}", said(&output));
        }
        let papers = [WEST, EAST].map(|group| sites[group][0].scratch().join("papers"));
        for group in [WEST, EAST] {
            for at in 0..size {
                let [own, other] = [group, 1 - group].map(|of| papers[of].display().to_string());
                let name = NAMES[at];
                let mut text = format!(
                    "{}\n[group]\nname = \"{}\"\ninstance = \"{name}\"\nrole = \"{}\"\n\
                     heartbeat_interval_ms = 100\nheartbeat_timeout_ms = 1500\n\
                     certificate = \"{own}/{name}.pem\"\nprivate_key = \"{own}/{name}-key.pem\"\n\
                     authorities = \"{own}/authority.pem\"\n\
                     region_authorities = \"{other}/authority.pem\"\n",
                    design.config,
                    GROUPS[group],
                    if group == WEST { "live" } else { "recovery" },
                );
                for (member, name) in NAMES.iter().enumerate().take(size) {
                    let address = leases[group].address(member);
                    text += &format!(
                        "\n[[group.member]]\nname = \"{name}\"\naddress = \"{address}:{LINKS_PORT}\"\n\
                         region_address = \"{address}:{REGION_PORT}\"\n"
                    );
                    if design.has_clients {
                        text += &format!("clients = [\"{address}:{CLIENTS_PORT}\"]\n");
                    }
                }
                let fronts: Vec<String> =
                    nets[1 - group].iter().map(|net| format!("\"{}\"", net.address())).collect();
                text += &format!(
                    "\n[group.recovery]\nname = \"{}\"\naddresses = [{}]\n\
                     short_retry_timer_ms = 100\nshort_retry_count = 1000000\n{}\n",
                    GROUPS[1 - group],
                    fronts.join(", "),
                    design.recovery
                );
                sites[group][at].listen = format!("{}:{CLIENTS_PORT}", leases[group].address(at));
                sites[group][at].config = text;
            }
        }
        let none = || (0..size).map(|_| None).collect();
        Ok(Regions { sites, daemons: [none(), none()], nets, _leases: leases })
    }

    /// Both groups run, and all that was committed so far has arrived.
    ///
    /// # Errors
    /// When that does not come about.
    pub fn towed(design: &RegionsDesign) -> Try<Regions> {
        let mut regions = Regions::plan(design)?;
        for group in [EAST, WEST] {
            for at in 0..design.size {
                regions.start(group, at)?;
            }
        }
        regions.until_towed()?;
        Ok(regions)
    }

    /// Starts an instance.
    ///
    /// # Errors
    /// When it does not start.
    pub fn start(&mut self, group: usize, at: usize) -> Try {
        require!(self.daemons[group][at].is_none(), "it runs");
        self.daemons[group][at] = Some(self.sites[group][at].start()?);
        Ok(())
    }

    /// kill -9.
    ///
    /// # Errors
    /// When it does not run, or had ended by itself.
    pub fn kill(&mut self, group: usize, at: usize) -> Try {
        match self.daemons[group][at].take() {
            Some(daemon) => daemon.kill(),
            None => fail!("it does not run"),
        }
    }

    /// SIGTERM; waits for an end in order.
    ///
    /// # Errors
    /// When it does not end so.
    pub fn stop(&mut self, group: usize, at: usize) -> Try {
        match self.daemons[group][at].take() {
            Some(daemon) => daemon.stop(),
            None => fail!("it does not run"),
        }
    }

    /// Stops all that runs, the live group first.
    ///
    /// # Errors
    /// When one does not end in order.
    pub fn stop_all(&mut self) -> Try {
        for group in [WEST, EAST] {
            for at in 0..self.daemons[group].len() {
                let Some(daemon) = self.daemons[group][at].take() else { continue };
                daemon.terminate()?;
                self.daemons[group][at] = Some(daemon);
            }
            for at in 0..self.daemons[group].len() {
                let Some(mut daemon) = self.daemons[group][at].take() else { continue };
                daemon.await_end(LONG)?;
            }
        }
        Ok(())
    }

    /// Where an instance is.
    #[must_use]
    pub fn site(&self, group: usize, at: usize) -> &Site {
        &self.sites[group][at]
    }

    /// The same, to be changed.
    pub fn site_mut(&mut self, group: usize, at: usize) -> &mut Site {
        &mut self.sites[group][at]
    }

    /// The process of an instance.
    ///
    /// # Errors
    /// When it does not run.
    pub fn daemon(&self, group: usize, at: usize) -> Try<&Daemon> {
        self.daemons[group][at].as_ref().ok_or_else(|| "it does not run".into())
    }

    /// Where clients of all instances of both groups come in, those of west first.
    #[must_use]
    pub fn urls(&self) -> Vec<String> {
        self.sites.iter().flatten().map(|site| format!("amqp://{}", site.listen)).collect()
    }

    /// Gives an order to the network in front of all instances of a group.
    pub fn order(&self, group: usize, order: Order) {
        for net in &self.nets[group] {
            let _done = net.order(order);
        }
    }

    /// The group in the status of an instance, and in it the other region.
    ///
    /// # Errors
    /// When it does not answer.
    pub fn group_status(&self, group: usize, at: usize) -> Try<Value> {
        let status = self.sites[group][at].status()?;
        Ok(match status.get("group") {
            Some(of_group) => of_group.clone(),
            None => status,
        })
    }

    /// The instance of west that is active.
    #[must_use]
    pub fn active(&self) -> Option<usize> {
        self.active_of(WEST)
    }

    /// The instance of a group that is active.
    #[must_use]
    pub fn active_of(&self, group: usize) -> Option<usize> {
        (0..self.sites[group].len()).find(|at| {
            let runs = self.daemons[group][*at].is_some();
            runs && self
                .group_status(group, *at)
                .is_ok_and(|status| status["role"] == "active" && status["group_role"] == "live")
        })
    }

    /// Waits until an instance of a group is active.
    ///
    /// # Errors
    /// When none gets so.
    pub fn until_active(&self, group: usize) -> Try<usize> {
        wait::until("an active instance", LONG, || self.active_of(group))
            .map_err(|error| self.explained(&error.to_string()))
    }

    /// The instance of east to which west ships.
    #[must_use]
    pub fn relay(&self) -> Option<usize> {
        self.relay_of(EAST)
    }

    /// The instance of a recovery group to which the live one ships.
    #[must_use]
    pub fn relay_of(&self, group: usize) -> Option<usize> {
        (0..self.sites[group].len()).find(|at| {
            let runs = self.daemons[group][*at].is_some();
            runs && self.group_status(group, *at).is_ok_and(|status| {
                // The others say what they heard of it.
                let other = &status["other_region"];
                other["connected"] == true && other["heard_from"] == ""
            })
        })
    }

    /// The instance of a group that was live and serves no client which leads that group.
    #[must_use]
    pub fn leader_of_fenced(&self, group: usize) -> Option<usize> {
        (0..self.sites[group].len()).find(|at| {
            let runs = self.daemons[group][*at].is_some();
            runs && self
                .group_status(group, *at)
                .is_ok_and(|status| status["role"] == "active" && status["group_role"] == "fenced")
        })
    }

    /// Waits until each instance of a group that runs says that it is fenced, and one leads.
    ///
    /// # Errors
    /// When that does not come about.
    pub fn until_fenced(&self, group: usize) -> Try<usize> {
        let is_fenced = |at: usize| {
            self.daemons[group][at].is_none()
                || self.group_status(group, at).is_ok_and(|status| {
                    status["group_role"] == "fenced" && status["serving"] == false
                })
        };
        wait::until("a fenced group", LONG, || {
            let leads = self.leader_of_fenced(group)?;
            (0..self.sites[group].len()).all(is_fenced).then_some(leads)
        })
        .map_err(|error| self.explained(&error.to_string()))
    }

    /// What the active instance of west says of east.
    ///
    /// # Errors
    /// When there is none.
    pub fn east_as_seen(&self) -> Try<Value> {
        self.other_as_seen(WEST)
    }

    /// What the active instance of a group says of the other one.
    ///
    /// # Errors
    /// When there is none.
    pub fn other_as_seen(&self, live: usize) -> Try<Value> {
        let Some(active) = self.active_of(live) else {
            fail!("no instance of {} is active", GROUPS[live])
        };
        Ok(self.group_status(live, active)?["other_region"].clone())
    }

    /// Waits until east has all that west committed.
    ///
    /// # Errors
    /// When it does not get there.
    pub fn until_towed(&self) -> Try<Value> {
        self.until_towed_by(WEST)
    }

    /// Waits until the other group has all that the live one committed.
    ///
    /// # Errors
    /// When it does not get there.
    pub fn until_towed_by(&self, live: usize) -> Try<Value> {
        let mut last = Value::Null;
        let towed = wait::until("the backlog to be gone", LONG, || {
            last = self.other_as_seen(live).unwrap_or_else(|error| error.to_string().into());
            (last["in_sync"] == true && last["connected"] == true).then(|| last.clone())
        });
        towed.map_err(|error| {
            let live = GROUPS[live];
            self.explained(&format!("{error}; the other group as seen from {live}: {last}"))
        })
    }

    /// Waits until east, a group of one, said of itself that it is in sync, as it does twice a
    /// second. Before that a switch is refused before it begins.
    ///
    /// # Errors
    /// When it does not say it.
    pub fn until_east_says_that_it_is_in_sync(&self) -> Try {
        wait::until_true("east to say that it is in sync", LONG, || {
            self.east_as_seen().is_ok_and(|seen| seen["there"]["in_sync_count"] == 1)
        })
    }

    /// The reason, and the end of what each instance said.
    #[must_use]
    pub fn explained(&self, reason: &str) -> Box<dyn std::error::Error + Send + Sync> {
        let mut text = reason.to_owned();
        for group in [WEST, EAST] {
            for (at, site) in self.sites[group].iter().enumerate() {
                let log = site.log();
                let lines: Vec<&str> = log.lines().collect();
                let end = lines.split_at(lines.len().saturating_sub(25)).1.join("\n");
                text += &format!("\n--- {}.{} says\n{end}", GROUPS[group], NAMES[at]);
            }
        }
        text.into()
    }
}
