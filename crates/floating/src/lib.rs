//! The address that goes with the active instance: it is put on an interface of the machine with
//! the active instance, announced to the neighbours, and taken away when the instance is not active
//! any more.
//!
//! Reading order: `schedule` (what is due when), `interface` (what the system has), `netlink`
//! (adding and removing), `announce` (what neighbours learn). Why so, and not with `ip`(8):
//! docs/adr/2026-11-22-floating-address-leased-from-the-kernel.md.
//!
//! Not here: which instance is active; which instance is preferred (`group::preferred`).
//!
//! Invariants: an address is never without a lease: when it is not renewed, because the process was
//! killed or stopped, the kernel takes it away. It is renewed only while the instance leads.
//! Nothing here keeps the queue manager from serving: what fails is reported.

mod announce;
mod interface;
mod netlink;
mod schedule;

use std::io;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread::JoinHandle;
use std::time::Instant;

use parking_lot::Mutex;
use rustix::thread::{CapabilitySet, capabilities};
use towline_admin::catalogue::{
    FLOATING_DROPPED, FLOATING_FOUND, FLOATING_HELD, FLOATING_NOT_DROPPED, FLOATING_NOT_HELD,
    FLOATING_UNANNOUNCED,
};

use announce::Announcer;
use interface::Interface;
use schedule::Schedule;
use towline_config::FloatingConfig;
use towline_logging::log;

/// Whether the address is on the interface of this machine.
///
/// # Errors
/// When there is no such interface.
pub fn is_here(config: &FloatingConfig) -> io::Result<bool> {
    Ok(Interface::find(&config.interface)?.has(config.address.ip))
}

/// Why this process cannot put the address on the interface, as far as that is known without
/// trying; `None`: nothing speaks against it.
#[must_use]
pub fn obstacle(config: &FloatingConfig) -> Option<String> {
    if let Err(error) = Interface::find(&config.interface) {
        return Some(error.to_string());
    }
    let is_permitted =
        capabilities(None).is_ok_and(|sets| sets.effective.contains(CapabilitySet::NET_ADMIN));
    (!is_permitted).then(|| said(&io::ErrorKind::PermissionDenied.into()))
}

/// Takes the address from the interface of this machine, whichever process put it there. False: it
/// was not there.
///
/// # Errors
/// When there is no such interface, or the system refuses (CAP_NET_ADMIN).
pub fn take_away(config: &FloatingConfig) -> io::Result<bool> {
    let interface = Interface::find(&config.interface)?;
    Ok(interface.has(config.address.ip) && netlink::remove(interface.index(), config.address)?)
}

/// The floating address of an instance, if its configuration has one.
pub struct Floating {
    config: Option<FloatingConfig>,
    keeper: Mutex<Option<Keeper>>,
}

/// The thread that renews and announces.
struct Keeper {
    end: Sender<()>,
    thread: JoinHandle<()>,
}

impl Floating {
    /// Nothing is done yet.
    pub fn new(config: Option<FloatingConfig>) -> Floating {
        Floating { config, keeper: Mutex::default() }
    }

    /// This process starts and is not active: takes away what one before it left.
    pub fn clear(&self) {
        let Some(config) = &self.config else { return };
        let (address, interface) = (config.address.to_string(), config.interface.as_str());
        match take_away(config) {
            Ok(true) => log(&FLOATING_FOUND, &[&address, interface]),
            Ok(false) => {}
            Err(error) => log(&FLOATING_NOT_DROPPED, &[&address, interface, &said(&error)]),
        }
    }

    /// This instance is active: holds the address while `leads` says so. Returns at once.
    pub fn hold(&self, leads: impl Fn() -> bool + Send + 'static) {
        let Some(config) = self.config.clone() else { return };
        let mut keeper = self.keeper.lock();
        assert!(keeper.is_none(), "an instance becomes active once");
        let (end, ended) = channel();
        let (address, interface) = (config.address.to_string(), config.interface.clone());
        let run = move || Keeping::new(config).run(&leads, &ended);
        match std::thread::Builder::new().name("floating".into()).spawn(run) {
            Ok(thread) => *keeper = Some(Keeper { end, thread }),
            Err(error) => log(&FLOATING_NOT_HELD, &[&address, &interface, &error.to_string()]),
        }
    }

    /// This instance is not active any more: the address goes.
    pub fn let_go(&self) {
        let (Some(config), Some(keeper)) = (&self.config, self.keeper.lock().take()) else {
            return;
        };
        drop(keeper.end);
        let ended = keeper.thread.join();
        tracing::debug!(ok = ended.is_ok(), "the keeper of the address ended");
        let (address, interface) = (config.address.to_string(), config.interface.as_str());
        match take_away(config) {
            Ok(true) => log(&FLOATING_DROPPED, &[&address, interface]),
            Ok(false) => {}
            Err(error) => log(&FLOATING_NOT_DROPPED, &[&address, interface, &said(&error)]),
        }
    }
}

/// What the keeper knows.
struct Keeping {
    config: FloatingConfig,
    /// What was said last went wrong, so that it is said once.
    refused: Option<String>,
    unannounced: Option<String>,
    held: bool,
}

impl Keeping {
    fn new(config: FloatingConfig) -> Keeping {
        Keeping { config, refused: None, unannounced: None, held: false }
    }

    /// Renews and announces until the other end of `ended` is gone.
    fn run(mut self, leads: &dyn Fn() -> bool, ended: &Receiver<()>) {
        let (count, lease) = (self.config.announce_count, self.config.lease());
        let mut schedule = Schedule::new(Instant::now(), count, lease);
        loop {
            let due = schedule.due(Instant::now());
            if leads() {
                if due.renew && self.renew() {
                    // Neighbours may have forgotten, or another host may have claimed it.
                    schedule.announce_anew(Instant::now());
                }
                if due.announce && self.held {
                    self.announce();
                }
            }
            match ended.recv_timeout(schedule.wait(Instant::now())) {
                Err(RecvTimeoutError::Timeout) => {}
                Ok(()) | Err(RecvTimeoutError::Disconnected) => return,
            }
        }
    }

    /// True when the address was held and was gone meanwhile.
    fn renew(&mut self) -> bool {
        let (address, name) = (self.config.address, self.config.interface.as_str());
        let renewed = Interface::find(name).and_then(|interface| {
            let was_there = interface.has(address.ip);
            netlink::hold(interface.index(), address, self.config.lease_s)?;
            Ok(was_there)
        });
        let address = address.to_string();
        match renewed {
            Ok(was_there) => {
                let lost = self.held && !was_there;
                if !self.held || lost {
                    log(&FLOATING_HELD, &[&address, name]);
                }
                (self.held, self.refused) = (true, None);
                lost
            }
            Err(error) => {
                let why = said(&error);
                if self.refused.as_ref() != Some(&why) {
                    log(&FLOATING_NOT_HELD, &[&address, name, &why]);
                }
                (self.held, self.refused) = (false, Some(why));
                false
            }
        }
    }

    fn announce(&mut self) {
        let (address, name) = (self.config.address, self.config.interface.as_str());
        let told = Interface::find(name)
            .and_then(|interface| Announcer::on(&interface)?.announce(address.ip));
        match told {
            Ok(()) => self.unannounced = None,
            Err(error) => {
                let why = said(&error);
                if self.unannounced.as_ref() != Some(&why) {
                    log(&FLOATING_UNANNOUNCED, &[&address.to_string(), name, &why]);
                }
                self.unannounced = Some(why);
            }
        }
    }
}

/// An error for the operator, with what is missing when the system refuses.
fn said(error: &io::Error) -> String {
    match error.kind() {
        io::ErrorKind::PermissionDenied => {
            "not permitted: the process needs CAP_NET_ADMIN and CAP_NET_RAW".to_owned()
        }
        _ => error.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(interface: &str) -> FloatingConfig {
        let address = "198.51.100.7/32".parse().unwrap();
        FloatingConfig { address, interface: interface.into(), announce_count: 1, lease_s: 2 }
    }

    #[test]
    fn an_interface_that_is_not_there_is_reported_by_name_and_nothing_else_happens() {
        let config = of("no-such-face");
        assert!(obstacle(&config).unwrap().contains("no-such-face"));
        for error in [is_here(&config).unwrap_err(), take_away(&config).unwrap_err()] {
            assert!(error.to_string().contains("no-such-face"), "{error}");
        }
        let floating = Floating::new(Some(config));
        floating.clear();
        floating.hold(|| true);
        floating.let_go();
        floating.let_go();
    }

    #[test]
    fn without_an_address_nothing_is_held() {
        let floating = Floating::new(None);
        floating.clear();
        floating.hold(|| true);
        assert!(floating.keeper.lock().is_none());
        floating.let_go();
    }

    #[test]
    fn what_is_not_there_is_not_taken_away() {
        assert!(!is_here(&of("lo")).unwrap());
        assert!(!take_away(&of("lo")).unwrap());
    }

    #[test]
    fn a_process_without_the_capability_knows_so_before_it_tries() {
        let sets = capabilities(None).unwrap();
        let is_permitted = sets.effective.contains(CapabilitySet::NET_ADMIN);
        assert_eq!(obstacle(&of("lo")).is_none(), is_permitted);
        let without = std::thread::spawn(move || {
            let mut sets = sets;
            sets.effective.remove(CapabilitySet::NET_ADMIN);
            rustix::thread::set_capabilities(None, sets).unwrap();
            obstacle(&of("lo"))
        });
        let why = without.join().unwrap().unwrap();
        assert!(why.contains("CAP_NET_ADMIN"), "{why}");
    }

    #[test]
    fn what_is_missing_is_named_when_the_system_refuses() {
        let refused = io::Error::from_raw_os_error(1);
        assert!(said(&refused).contains("CAP_NET_ADMIN"));
    }
}
