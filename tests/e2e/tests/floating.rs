//! A group on three machines with a floating address, and a client on a fourth that knows only that
//! address. The active instance is switched, killed, cut off; the address must be on exactly one
//! machine afterwards, and the client is served again: the time is printed.

use std::net::{IpAddr, SocketAddr, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use rustix::thread::{CapabilitySet, remove_capability_from_bounding_set};
use towline_e2e::daemon::{Daemon, Site};
use towline_e2e::lan::Lan;
use towline_e2e::peer::Peer;
use towline_e2e::{Try, fail, place, require, wait};

const NAMES: [&str; 3] = ["a", "b", "c"];
const CLIENT: &str = "client";
const QUEUE: &str = "Q";
/// Seconds; the default is 5.
const LEASE: u64 = 3;
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
    /// `keys` go into `[group]`.
    fn start(address: &str, keys: &str) -> Try<Group> {
        let group = Group::prepare(address, keys)?;
        (0..NAMES.len()).try_fold(group, |mut group, number| {
            group.begin(number)?;
            Ok(group)
        })
    }

    fn prepare(address: &str, keys: &str) -> Try<Group> {
        let lan = Lan::of(&["a", "b", "c", CLIENT])?;
        let address: IpAddr = address.parse()?;
        let mut sites: Vec<Site> = Vec::new();
        for _ in NAMES {
            sites.push(Site::open()?);
        }
        let Some(first) = sites.first() else { fail!("no site") };
        let papers = first.scratch().join("papers");
        let out = std::process::Command::new(place::towline()?)
            .args(["group", "certificates", "--name", "QM1", "--instances", "a,b,c", "--out"])
            .arg(&papers)
            .output()?;
        require!(out.status.success(), "{}", towline_e2e::daemon::said(&out));
        for (site, name) in sites.iter_mut().zip(NAMES) {
            site.config = config(address, name, &papers.to_string_lossy(), keys);
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

    fn until_active(&self) -> Try<usize> {
        wait::until("an active instance", LIMIT, || self.active())
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

impl Drop for Group {
    fn drop(&mut self) {
        if std::thread::panicking() {
            return;
        }
        for (site, name) in self.sites.iter().zip(NAMES) {
            if std::env::var_os("TOWLINE_SHOW_LOGS").is_some() {
                eprintln!("--- {name}\n{}", site.log());
            }
        }
    }
}

fn config(address: IpAddr, name: &str, papers: &str, keys: &str) -> String {
    let (listener, bits) = match address {
        IpAddr::V4(_) => (format!("{address}:5672"), 24),
        IpAddr::V6(_) => (format!("[{address}]:5672"), 64),
    };
    let mut text = format!(
        "[[listener]]\naddress = \"{listener}\"\nallow_plaintext = true\nallow_anonymous = true\n\
         mechanisms = [\"ANONYMOUS\"]\n[log]\nextent_bytes = 4194304\n\
         [group]\nname = \"QM1\"\ninstance = \"{name}\"\ncertificate = \"{papers}/{name}.pem\"\n\
         private_key = \"{papers}/{name}-key.pem\"\nauthorities = \"{papers}/authority.pem\"\n{keys}\n\
         [group.floating]\naddress = \"{address}/{bits}\"\ninterface = \"eth0\"\nlease_s = {LEASE}\n"
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

/// What a client was told.
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

/// Switch, kill and a pulled cable, with a client at work all the time.
fn faults(address: &str) -> Try {
    let mut group = Group::start(address, "")?;
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

    let began = Instant::now();
    group.lan.cable(NAMES[third], false)?;
    client.until_served_anew("link down", began)?;
    let fourth = wait::until("another active instance", LIMIT, || {
        (0..NAMES.len()).find(|number| *number != third && group.is(*number, "active"))
    })?;
    println!("link down: alone after {:?} more", group.until_only_on(fourth)?);
    group.lan.cable(NAMES[third], true)?;
    group.until_in_sync()?;
    group.until_only_on(fourth)?;

    let done = client.end()?;
    let found = group.drain()?;
    let lost: Vec<_> = done.accepted.iter().filter(|body| !found.contains(body)).collect();
    require!(lost.is_empty(), "{} accepted, lost {lost:?}", done.accepted.len());
    println!("{} accepted over {} connections", done.accepted.len(), done.connections);
    Ok(())
}

#[test]
fn a_client_that_knows_only_the_floating_address_is_served_after_each_fault() -> Try {
    faults("10.77.0.50")
}

#[test]
fn the_same_with_an_ipv6_address() -> Try {
    faults("fd77::50")
}

#[test]
fn what_a_killed_process_left_is_taken_away_by_the_next_or_by_a_watcher() -> Try {
    let mut group = Group::start("10.77.0.50", "")?;
    let first = group.until_active()?;
    group.until_in_sync()?;
    group.until_only_on(first)?;
    group.kill(first)?;
    group.begin(first)?;
    let log = group.site(first).log();
    require!(log.contains("TWL4303I"), "it was not found at the start:\n{log}");
    let second = group.until_active()?;
    group.until_only_on(second)?;
    group.until_in_sync()?;

    let began = Instant::now();
    group.kill(second)?;
    let config = group.site(second).scratch().join("towline.toml");
    let address = |drop: &[&str]| -> Try<String> {
        let mut command = std::process::Command::new(place::towline()?);
        command.args(["group", "address", "--config"]).arg(&config).args(drop);
        let output = group.lan.on(NAMES[second], || Ok(command.output()?))?;
        require!(output.status.success(), "{}", towline_e2e::daemon::said(&output));
        Ok(String::from_utf8_lossy(&output.stdout).into_owned())
    };
    let words = [address(&[])?, address(&["--drop"])?, address(&["--drop"])?];
    if began.elapsed() < Duration::from_secs(LEASE - 1) {
        require!(words[0].contains(": here"), "{words:?}");
        require!(words[1].contains("taken away"), "{words:?}");
    }
    require!(words[2].contains("was not here"), "{words:?}");
    let third = group.until_active()?;
    group.until_only_on(third)?;
    // The end in order drops it too.
    let Some(daemon) = group.daemons[third].take() else { fail!("it does not run") };
    daemon.stop()?;
    require!(!group.holders()?.contains(&NAMES[third]), "it ended in order and left the address");
    Ok(())
}

#[test]
fn an_active_instance_without_quorum_drops_the_address_and_idle_clients_hear_the_end() -> Try {
    let mut group = Group::start("10.77.0.50", "")?;
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
}

#[test]
fn the_preferred_instance_gets_the_active_part_back_and_not_twice_in_a_row_when_it_fails() -> Try {
    const PREFERRED: usize = 0;
    let keys = "preferred_location = \"a\"\npreferred_delay_ms = 500";
    let mut group = Group::start("10.77.0.50", keys)?;
    // Whoever was first.
    group.until_active_is(PREFERRED)?;
    group.until_in_sync()?;
    group.until_only_on(PREFERRED)?;
    let client = group.client();
    client.until_served()?;

    // As it would be a minute later: nobody holds it off.
    for site in group.sites.iter().skip(1) {
        drop(std::fs::remove_file(site.data.join("preferred-held-off")));
    }
    for number in [1, 2] {
        let Some(daemon) = group.daemons[number].take() else { fail!("it does not run") };
        daemon.stop()?;
        group.begin(number)?;
        group.until_in_sync()?;
    }
    group.kill(PREFERRED)?;
    let second = group.until_active()?;
    let began = Instant::now();
    group.begin(PREFERRED)?;
    group.until_active_is(PREFERRED)?;
    println!("preferred: active again {:?} after its start began", began.elapsed());
    client.until_served_anew("preferred location", began)?;
    group.until_only_on(PREFERRED)?;
    group.until_in_sync()?;

    // Within a minute: now it is held off.
    group.kill(PREFERRED)?;
    wait::until_true("another one is active", LIMIT, || group.active().is_some())?;
    group.begin(PREFERRED)?;
    let others = [1, 2];
    wait::until_true("that it is held off is told", LIMIT, || {
        others.iter().any(|number| group.site(*number).log().contains("TWL4311W"))
    })?;
    let active = group.until_active()?;
    require!(active != PREFERRED, "it went to the preferred instance twice in a row");
    println!("preferred: {} was active, then {}", NAMES[second], NAMES[active]);
    client.end()?;
    Ok(())
}

#[test]
fn without_the_capability_the_queue_manager_serves_and_says_what_is_missing() -> Try {
    let mut group = Group::prepare("10.77.0.50", "")?;
    for (number, name) in NAMES.into_iter().enumerate() {
        let site = &group.sites[number];
        let daemon = group.lan.on(name, || {
            remove_capability_from_bounding_set(CapabilitySet::NET_ADMIN)?;
            site.start()
        })?;
        group.daemons[number] = Some(daemon);
    }
    let active = group.until_active()?;
    wait::until_true("that it is missing is told", LIMIT, || {
        let log = group.site(active).log();
        log.contains("TWL4304E") && log.contains("CAP_NET_ADMIN")
    })?;
    require!(group.holders()?.is_empty(), "it got the address all the same");
    // On the local socket.
    group.site(active).runs(&["put", QUEUE, "hello"], 0)?;
    Ok(())
}
