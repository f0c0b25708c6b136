//! A group on three machines with a floating address, and a client on a fourth that knows only that
//! address. The active instance is switched, killed, cut off; the address must be on exactly one
//! machine afterwards, and the client is served again: the time is printed.

use std::net::{IpAddr, SocketAddr, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use rustix::thread::{CapabilitySet, remove_capability_from_bounding_set};
use towline_e2e::daemon::{Daemon, Site};
use towline_e2e::lan::Lan;
use towline_e2e::peer::{Ending, Peer};
use towline_e2e::{Try, fail, paths, require, wait};

const NAMES: [&str; 3] = ["a", "b", "c"];
const CLIENT: &str = "client";
const QUEUE: &str = "Q";
/// Seconds; the default is 5.
const LEASE: u32 = 3;
/// Seconds that do not pass in a test.
const LONG_LEASE: u32 = 3_600;
/// Far above what anything here takes.
const LIMIT: Duration = Duration::from_secs(60);

/// Three instances on three machines.
struct Group {
    // Before the machines: processes end first.
    daemons: [Option<Daemon>; 3],
    sites: Vec<Site>,
    lan: Arc<Lan>,
    address: IpAddr,
}

impl Group {
    /// Does something with a group that runs; when it fails, what the instances said is shown.
    fn with(
        (address, lease_s): (&str, u32),
        keys: &str,
        body: impl FnOnce(&mut Group) -> Try,
    ) -> Try {
        let mut group = Group::prepare((address, lease_s), keys)?;
        (0..NAMES.len()).try_for_each(|number| group.begin(number))?;
        let done = body(&mut group);
        if done.is_err() {
            for (site, name) in group.sites.iter().zip(NAMES) {
                eprintln!("--- {name}\n{}", site.log());
            }
        }
        done
    }

    /// Machines and configurations; `keys` go into `[group]`. Nothing runs yet.
    fn prepare((address, lease_s): (&str, u32), keys: &str) -> Try<Group> {
        let lan = Lan::of(&["a", "b", "c", CLIENT])?;
        let address: IpAddr = address.parse()?;
        let mut sites: Vec<Site> = Vec::new();
        for _ in NAMES {
            sites.push(Site::open()?);
        }
        let Some(first) = sites.first() else { fail!("no site") };
        let papers = first.scratch().join("papers");
        let out = std::process::Command::new(paths::towline()?)
            .args(["group", "certificates", "--name", "QM1", "--instances", "a,b,c", "--out"])
            .arg(&papers)
            .output()?;
        require!(out.status.success(), "{}", towline_e2e::daemon::said(&out));
        for (site, name) in sites.iter_mut().zip(NAMES) {
            site.config = config((address, lease_s), name, &papers.to_string_lossy(), keys);
        }
        Ok(Group { daemons: [None, None, None], sites, lan: Arc::new(lan), address })
    }

    fn begin(&mut self, number: usize) -> Try {
        let site = self.site(number);
        let daemon = self.lan.on(NAMES[number], || site.start())?;
        self.daemons[number] = Some(daemon);
        Ok(())
    }

    fn site(&self, number: usize) -> &Site {
        &self.sites[number]
    }

    fn kill(&mut self, number: usize) -> Try {
        match self.daemons[number].take() {
            Some(daemon) => daemon.kill(),
            None => fail!("{} does not run", NAMES[number]),
        }
    }

    /// The number of the active instance, as those that run say.
    fn active(&self) -> Option<usize> {
        let running = (0..NAMES.len()).filter(|number| self.daemons[*number].is_some());
        running.into_iter().find(|number| self.is(*number, "active"))
    }

    fn is(&self, number: usize, role: &str) -> bool {
        self.site(number).status().is_ok_and(|status| status["group"]["role"] == role)
    }

    fn signal(&self, number: usize, signal: Signal) -> Try {
        let daemon = self.daemons[number].as_ref().ok_or("it does not run")?;
        let pid = i32::try_from(daemon.pid()).ok().and_then(Pid::from_raw).ok_or("no pid")?;
        Ok(kill_process(pid, signal)?)
    }

    fn until_active(&self) -> Try<usize> {
        wait::until("an active instance", LIMIT, || self.active())
    }

    /// Waits until one is active that is not `before`, which may think that it still is.
    fn until_another_is_active(&self, before: usize) -> Try<usize> {
        wait::until("another active instance", LIMIT, || {
            (0..NAMES.len()).find(|number| *number != before && self.is(*number, "active"))
        })
    }

    /// Waits until this one is active.
    fn until_active_is(&self, number: usize) -> Try {
        let what = format!("{} is active", NAMES[number]);
        wait::until_true(&what, LIMIT, || self.is(number, "active"))
    }

    fn until_in_sync(&self) -> Try {
        wait::until_true("all are in sync", LIMIT, || {
            let status = self.active().and_then(|active| self.site(active).status().ok());
            status.is_some_and(|status| status["group"]["in_sync_count"] == 3)
        })
    }

    fn holders(&self) -> Try<Vec<&'static str>> {
        self.lan.holders(self.address)
    }

    /// Waits until the address is on this machine and on no other.
    fn until_only_on(&self, number: usize) -> Try<Duration> {
        let began = Instant::now();
        let what = format!("the address is on {} and nowhere else", NAMES[number]);
        wait::until_true(&what, LIMIT, || {
            self.holders().is_ok_and(|holders| holders == [NAMES[number]])
        })?;
        Ok(began.elapsed())
    }

    fn client(&self) -> Client {
        Client::start(&self.lan, SocketAddr::new(self.address, 5672))
    }

    /// What is on the queue, as the client's machine gets it from the floating address.
    fn drain(&self) -> Try<Vec<String>> {
        let address = SocketAddr::new(self.address, 5672).to_string();
        self.lan.on(CLIENT, || Peer::begun(&address)?.drain(QUEUE))
    }
}

fn config((address, lease_s): (IpAddr, u32), name: &str, papers: &str, keys: &str) -> String {
    let (listener, bits) = match address {
        IpAddr::V4(_) => (format!("{address}:5672"), 24),
        IpAddr::V6(_) => (format!("[{address}]:5672"), 64),
    };
    let mut text = format!(
        "[[listener]]\naddress = \"{listener}\"\nallow_plaintext = true\nallow_anonymous = true\n\
         mechanisms = [\"ANONYMOUS\"]\n[log]\nextent_bytes = 4194304\n\
         [group]\nname = \"QM1\"\ninstance = \"{name}\"\ncertificate = \"{papers}/{name}.pem\"\n\
         private_key = \"{papers}/{name}-key.pem\"\nauthorities = \"{papers}/authority.pem\"\n{keys}\n\
         [group.floating]\naddress = \"{address}/{bits}\"\ninterface = \"eth0\"\nlease_s = {lease_s}\n"
    );
    for (number, name) in (1..).zip(NAMES) {
        let member = format!("name = \"{name}\"\naddress = \"10.77.0.{number}:5700\"\n");
        text.push_str(&format!("[[group.member]]\n{member}"));
    }
    text
}

/// Puts one message after the other, over one connection as long as it goes.
struct Client {
    thread: JoinHandle<Try>,
    done: Arc<Mutex<Done>>,
    stop: Arc<AtomicBool>,
}

/// The answer that a client got.
#[derive(Clone, Debug, Default)]
struct Done {
    /// Connections opened so far.
    connections: u32,
    /// When the first put on the newest connection was accepted.
    served_at: Option<Instant>,
    /// Messages that were accepted, in order.
    accepted: Vec<String>,
}

impl Client {
    fn start(lan: &Arc<Lan>, address: SocketAddr) -> Client {
        let (done, stop) =
            (Arc::new(Mutex::new(Done::default())), Arc::new(AtomicBool::new(false)));
        let (lan, noted, stopped) = (Arc::clone(lan), Arc::clone(&done), Arc::clone(&stop));
        let thread = std::thread::spawn(move || {
            lan.on(CLIENT, || {
                while !stopped.load(Ordering::SeqCst) {
                    // Its connection ended, or there was none: it tries again, as clients do.
                    drop(put_on(address, &noted, &stopped));
                    wait::pause(Duration::from_millis(20));
                }
                Ok(())
            })
        });
        Client { thread, done, stop }
    }

    fn done(&self) -> Done {
        self.done.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Waits until the first put over some connection is accepted.
    fn until_served(&self) -> Try {
        wait::until_true("the client is served", LIMIT, || self.done().served_at.is_some())
    }

    /// Waits until a put is accepted over a connection that was opened after `began`.
    fn until_served_anew(&self, what: &str, began: Instant) -> Try {
        let served = wait::until("the client is served again", LIMIT, || {
            self.done().served_at.filter(|at| *at > began)
        })?;
        println!("{what}: the client was served again after {:?}", served - began);
        Ok(())
    }

    /// Waits until so many more puts were accepted.
    fn until_accepted_more(&self, count: usize) -> Try {
        let before = self.done().accepted.len();
        wait::until_true("puts are accepted", LIMIT, || {
            self.done().accepted.len() >= before + count
        })
    }

    fn end(self) -> Try<Done> {
        self.stop.store(true, Ordering::SeqCst);
        let done = self.done();
        match self.thread.join() {
            Ok(ended) => ended.map(|()| done),
            Err(_) => fail!("the client panicked"),
        }
    }
}

fn put_on(address: SocketAddr, noted: &Mutex<Done>, stopped: &AtomicBool) -> Try {
    let note = |change: &dyn Fn(&mut Done)| {
        change(&mut noted.lock().unwrap_or_else(PoisonError::into_inner));
    };
    let stream = TcpStream::connect_timeout(&address, Duration::from_millis(250))?;
    let mut peer = Peer::over(stream)?.patient(Duration::from_secs(2)).opened()?;
    peer.begin(0)?;
    peer.attach_sender(0, QUEUE)?;
    note(&|done| done.connections += 1);
    let connection = noted.lock().unwrap_or_else(PoisonError::into_inner).connections;
    for delivery in 0.. {
        if stopped.load(Ordering::SeqCst) {
            break;
        }
        let body = format!("{connection}-{delivery}");
        peer.put(0, delivery, body.as_bytes())?;
        note(&|done| {
            if delivery == 0 {
                done.served_at = Some(Instant::now());
            }
            done.accepted.push(body.clone());
        });
        wait::pause(Duration::from_millis(5));
    }
    Ok(())
}

/// Switch, kill, stop and a pulled cable, with a client at work all the time.
fn faults(group: &mut Group) -> Try {
    let first = group.until_active()?;
    group.until_in_sync()?;
    group.until_only_on(first)?;
    let client = group.client();
    client.until_served()?;

    let second = (first + 1) % NAMES.len();
    let began = Instant::now();
    group.site(first).runs(&["switch", "--to", NAMES[second]], 0)?;
    client.until_served_anew("switch", began)?;
    println!("switch: alone after {:?} more", group.until_only_on(second)?);
    group.until_in_sync()?;

    let began = Instant::now();
    group.kill(second)?;
    client.until_served_anew("kill -9", began)?;
    let third = group.until_active()?;
    group.until_only_on(third)?;
    println!("kill -9: the kernel took the address from the dead after {:?}", began.elapsed());
    group.begin(second)?;
    group.until_in_sync()?;

    let fourth = cut_off(group, third, &client)?;
    stop_and_go_on(group, fourth, &client)?;

    let done = client.end()?;
    let found = group.drain()?;
    let lost: Vec<_> = done.accepted.iter().filter(|body| !found.contains(body)).collect();
    require!(lost.is_empty(), "{} accepted, lost {lost:?}", done.accepted.len());
    println!("{} accepted over {} connections", done.accepted.len(), done.connections);
    Ok(())
}

/// Pulls the cable of the active instance; returns the instance that is active then.
fn cut_off(group: &mut Group, active: usize, client: &Client) -> Try<usize> {
    let began = Instant::now();
    group.lan.cable(NAMES[active], false)?;
    client.until_served_anew("link down", began)?;
    let next = group.until_another_is_active(active)?;
    println!("link down: alone after {:?} more", group.until_only_on(next)?);
    group.lan.cable(NAMES[active], true)?;
    group.until_in_sync()?;
    group.until_only_on(next)?;
    Ok(next)
}

/// Stops the active instance, as a debugger does; it goes on when another one is active.
fn stop_and_go_on(group: &mut Group, active: usize, client: &Client) -> Try {
    let began = Instant::now();
    group.signal(active, Signal::STOP)?;
    client.until_served_anew("SIGSTOP", began)?;
    let holders = wait::until("the address is on one machine", LIMIT, || {
        group.holders().ok().filter(|holders| holders.len() == 1)
    })?;
    println!("SIGSTOP: alone after {:?}, lease {LEASE} s", began.elapsed());
    require!(holders != [NAMES[active]], "the stopped one still has the address");
    group.signal(active, Signal::CONT)?;
    let next = group.until_another_is_active(active)?;
    group.until_in_sync()?;
    group.until_only_on(next)?;
    Ok(())
}

#[test]
fn a_client_that_knows_only_the_floating_address_is_served_after_each_fault() -> Try {
    Group::with(("10.77.0.50", LEASE), "", faults)
}

#[test]
fn the_same_with_an_ipv6_address() -> Try {
    Group::with(("fd77::50", LEASE), "", faults)
}

#[test]
fn an_announcement_wins_over_a_dead_machine_that_still_has_the_address() -> Try {
    Group::with(("10.77.0.50", LONG_LEASE), "", |group| {
        let first = group.until_active()?;
        group.until_in_sync()?;
        group.until_only_on(first)?;
        let client = group.client();
        client.until_served()?;

        let began = Instant::now();
        group.kill(first)?;
        client.until_served_anew("kill -9, long lease", began)?;
        let second = group.until_active()?;
        let holders = group.holders()?;
        require!(
            holders.contains(&NAMES[first]) && holders.contains(&NAMES[second]),
            "{holders:?}"
        );

        // The watcher of the dead instance drops the address.
        let words = [&[][..], &["--drop"], &["--drop"]]
            .map(|drop| ask_for_address(group, first, drop))
            .into_iter()
            .collect::<Try<Vec<_>>>()?;
        require!(words[0].contains(": here"), "{words:?}");
        require!(words[1].contains("removed"), "{words:?}");
        require!(words[2].contains("was not here"), "{words:?}");
        group.until_only_on(second)?;

        // So does its next start, after another kill, and an end in order.
        group.begin(first)?;
        group.until_in_sync()?;
        group.kill(second)?;
        group.begin(second)?;
        let log = group.site(second).log();
        require!(log.contains("TWL4303I"), "it was not found at the start:\n{log}");
        let third = group.until_active()?;
        group.until_only_on(third)?;
        group.until_in_sync()?;
        let Some(daemon) = group.daemons[third].take() else { fail!("it does not run") };
        daemon.stop()?;
        require!(!group.holders()?.contains(&NAMES[third]), "it ended and left the address");
        client.end()?;
        Ok(())
    })
}

/// Without `--yes`, an address on which clients are served is not removed.
#[test]
fn the_address_of_a_running_instance_is_removed_only_with_yes_and_comes_back() -> Try {
    Group::with(("10.77.0.50", LEASE), "", |group| {
        let active = group.until_active()?;
        group.until_only_on(active)?;
        let Err(refusal) = ask_for_address(group, active, &["--drop"]) else {
            fail!("it was removed without a question")
        };
        require!(refusal.to_string().contains("add --yes"), "{refusal}");
        require!(group.holders()? == [NAMES[active]], "it was removed");
        let words = ask_for_address(group, active, &["--drop", "--yes"])?;
        require!(words.contains("removed"), "{words}");
        group.until_only_on(active)?;
        // Where it is not, there is no question.
        let other = (active + 1) % NAMES.len();
        let words = ask_for_address(group, other, &["--drop"])?;
        require!(words.contains("was not here"), "{words}");
        Ok(())
    })
}

/// `towline group address` on a machine.
fn ask_for_address(group: &Group, number: usize, arguments: &[&str]) -> Try<String> {
    let config = group.site(number).scratch().join("towline.toml");
    let mut command = std::process::Command::new(paths::towline()?);
    command.args(["group", "address", "--config"]).arg(&config).args(arguments);
    let output = group.lan.on(NAMES[number], || Ok(command.output()?))?;
    require!(output.status.success(), "{}", towline_e2e::daemon::said(&output));
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

#[test]
fn an_active_instance_without_quorum_drops_the_address_and_idle_clients_hear_the_end() -> Try {
    // An address that no process drops stays.
    Group::with(("10.77.0.50", LONG_LEASE), "", |group| {
        let active = group.until_active()?;
        group.until_in_sync()?;
        group.until_only_on(active)?;
        let lan = Arc::clone(&group.lan);
        lan.on(CLIENT, || {
            let mut idle = Peer::begun("10.77.0.50:5672")?;
            idle.attach_receiver(0, QUEUE, 1)?;
            for number in (0..NAMES.len()).filter(|number| *number != active) {
                group.kill(number)?;
            }
            require!(idle.is_hung_up(LIMIT), "an idle client was told nothing");
            Ok(())
        })?;
        wait::until_true("the address is nowhere", LIMIT, || {
            group.holders().is_ok_and(|holders| holders.is_empty())
        })
    })
}

#[test]
fn an_active_instance_that_ends_without_an_heir_tells_its_idle_clients() -> Try {
    Group::with(("10.77.0.50", LONG_LEASE), "", |group| {
        let active = group.until_active()?;
        group.until_in_sync()?;
        group.until_only_on(active)?;
        let lan = Arc::clone(&group.lan);
        lan.on(CLIENT, || {
            let mut idle = Peer::begun("10.77.0.50:5672")?;
            idle.attach_receiver(0, QUEUE, 1)?;
            for number in (0..NAMES.len()).filter(|number| *number != active) {
                group.kill(number)?;
            }
            let Some(daemon) = group.daemons[active].take() else { fail!("it does not run") };
            daemon.stop()?;
            let ending = idle.ending(LIMIT)?;
            require!(ending != Ending::Nothing, "an idle client was told nothing");
            Ok(())
        })?;
        require!(group.holders()?.is_empty(), "it ended and left the address");
        Ok(())
    })
}

#[test]
fn the_preferred_instance_gets_the_active_part_back_and_not_twice_in_a_row_when_it_fails() -> Try {
    const PREFERRED: usize = 0;
    let keys = "preferred_location = \"a\"\npreferred_delay_ms = 500";
    Group::with(("10.77.0.50", LEASE), keys, |group| {
        // Whichever was first.
        group.until_active_is(PREFERRED)?;
        group.until_in_sync()?;
        group.until_only_on(PREFERRED)?;
        let client = group.client();
        client.until_served()?;

        // As it would be a minute later: no lease holds it off.
        for number in [1, 2] {
            let Some(daemon) = group.daemons[number].take() else { fail!("it does not run") };
            daemon.stop()?;
            drop(std::fs::remove_file(group.site(number).data.join("preferred-held-off")));
            group.begin(number)?;
            group.until_in_sync()?;
        }
        group.kill(PREFERRED)?;
        let second = group.until_active()?;
        let began = Instant::now();
        group.begin(PREFERRED)?;
        group.until_active_is(PREFERRED)?;
        println!("preferred: active again {:?} after its start began", began.elapsed());
        group.until_only_on(PREFERRED)?;
        client.until_accepted_more(10)?;
        group.until_in_sync()?;

        // Within a minute: now it is held off.
        group.kill(PREFERRED)?;
        group.until_active()?;
        group.begin(PREFERRED)?;
        wait::until_true("that it is held off is told", LIMIT, || {
            [1, 2].iter().any(|number| group.site(*number).log().contains("TWL4311W"))
        })?;
        let active = group.until_active()?;
        require!(active != PREFERRED, "it went to the preferred instance twice in a row");
        println!("preferred: {} was active, then {}", NAMES[second], NAMES[active]);
        client.end()?;
        Ok(())
    })
}

/// Clients know only the address: where it cannot be, they find no queue manager.
#[test]
fn an_instance_that_cannot_hold_the_address_is_shown_and_not_switched_to() -> Try {
    const WITHOUT: usize = 2;
    let mut group = Group::prepare(("10.77.0.50", LEASE), "")?;
    group.begin(0)?;
    group.begin(1)?;
    let site = &group.sites[WITHOUT];
    let checked = group.lan.on(NAMES[WITHOUT], || {
        remove_capability_from_bounding_set(CapabilitySet::NET_ADMIN)?;
        let output = site.command()?.arg("--check").output()?;
        Ok(towline_e2e::daemon::said(&output))
    })?;
    require!(checked.contains("TWL4304E") && checked.contains("CAP_NET_ADMIN"), "{checked}");
    let daemon = group.lan.on(NAMES[WITHOUT], || {
        remove_capability_from_bounding_set(CapabilitySet::NET_ADMIN)?;
        site.start()
    })?;
    group.daemons[WITHOUT] = Some(daemon);
    group.until_in_sync()?;
    // Any of the three may win the first election.
    if group.until_active()? == WITHOUT {
        group.site(WITHOUT).runs(&["switch", "--to", NAMES[0]], 0)?;
    }
    let active = group.until_active()?;
    require!(active != WITHOUT, "it was switched away from");
    let shown = || -> Try<bool> {
        let status = group.site(active).status()?;
        let rows = status["group"]["instances"].as_array().ok_or("no rows")?;
        let refused: Vec<bool> = rows.iter().map(|row| row["address_refused"] == true).collect();
        Ok(refused == [false, false, true])
    };
    wait::until_true("the status shows it", LIMIT, || shown().is_ok_and(|shown| shown))?;
    let text = group.site(active).runs(&["status"], 0)?;
    require!(text.contains("10.77.0.50/24, TWL4304E at c"), "{text}");
    // Asked at the active instance, and at the one that cannot.
    for asked in [active, WITHOUT] {
        let mut command = group.site(asked).towline(&["switch", "--to", NAMES[WITHOUT]])?;
        let output = command.output()?;
        let words = towline_e2e::daemon::said(&output);
        let explained = words.contains("'c' cannot hold the floating address 10.77.0.50/24");
        require!(!output.status.success() && explained, "{words}");
    }
    require!(group.until_active()? == active, "it was switched");
    // Without a name, to the other one that can.
    group.site(active).runs(&["switch"], 0)?;
    let next = group.until_another_is_active(active)?;
    require!(next != WITHOUT, "switched to {}", NAMES[next]);
    group.until_only_on(next)?;
    Ok(())
}

#[test]
fn without_the_capability_the_queue_manager_serves_and_says_what_is_missing() -> Try {
    let mut group = Group::prepare(("10.77.0.50", LEASE), "")?;
    for (number, name) in NAMES.into_iter().enumerate() {
        let site = &group.sites[number];
        let daemon = group.lan.on(name, || {
            remove_capability_from_bounding_set(CapabilitySet::NET_ADMIN)?;
            site.start()
        })?;
        group.daemons[number] = Some(daemon);
    }
    group.until_in_sync()?;
    wait::until_true("that it is missing is told", LIMIT, || {
        group.sites.iter().any(|site| {
            let log = site.log();
            log.contains("TWL4304E") && log.contains("CAP_NET_ADMIN")
        })
    })?;
    require!(group.holders()?.is_empty(), "it got the address all the same");
    // On the local socket of the active instance: that may change on a busy machine.
    wait::until_true("a put is accepted", LIMIT, || {
        let active = group.active().map(|active| group.site(active));
        active.is_some_and(|site| site.runs(&["put", QUEUE, "hello"], 0).is_ok())
    })
}
