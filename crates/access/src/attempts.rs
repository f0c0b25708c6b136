//! Wrong passwords, by name and by the address that they come from: a client that guesses waits
//! longer and longer for an answer, be it yes or no.
//!
//! Three rules. A *name at an address* waits after three wrong passwords: other names of that
//! address, such as the other clients behind one NAT, do not. An *address* whose wrong passwords go
//! over many names waits too, up to a second and for all names but those that lately logged in from
//! there: a spray is slowed, and clients that are right are not. What is remembered is bounded.
//!
//! It counts and says how long; the connection does the waiting. It reads no clock.
//!
//! Invariants: a wait is never longer than `WAIT_MAX`; never more than `ADDRESSES_MAX` addresses
//! with `NAMES_MAX` names each, and `WELCOME_MAX` right ones, are remembered.

use std::collections::HashMap;
use std::net::IpAddr;
use std::time::Duration;

use parking_lot::Mutex;
use towline_config::client_network;
use towline_types::Time;

/// Wrong passwords for a name after which answers to it come late.
const FREE: u32 = 3;
/// Wrong passwords of one address, over all names, after which new names wait.
const FREE_OF_ADDRESS: u32 = 12;
/// The first wait; each further wrong password doubles it.
const WAIT_FIRST: Duration = Duration::from_millis(250);
/// The longest wait: a client that is only misconfigured must still get its answer.
const WAIT_MAX: Duration = Duration::from_secs(4);
/// The longest wait of a name that did nothing wrong itself.
const WAIT_MAX_OF_ADDRESS: Duration = Duration::from_secs(1);
/// After so long without a wrong password there is a clean sheet.
const FORGET_AFTER: Duration = Duration::from_secs(600);
/// How long a name that logged in is known at its address.
const WELCOME_FOR: Duration = Duration::from_secs(24 * 3_600);
/// Addresses remembered at once; the one that was quiet for longest makes way.
const ADDRESSES_MAX: usize = 4_096;
/// Names with wrong passwords, for each address. A longer list is a spray: the address waits.
const NAMES_MAX: usize = 32;
/// Names that logged in, over all addresses.
const WELCOME_MAX: usize = 16_384;
/// What is kept of a name.
const NAME_CHARACTERS_MAX: usize = 64;

/// The sheets of all addresses; shared by all listeners.
#[derive(Debug, Default)]
pub struct Attempts {
    sheets: Mutex<Sheets>,
}

#[derive(Debug, Default)]
struct Sheets {
    addresses: HashMap<IpAddr, AddressSheet>,
    /// When a name last logged in from an address.
    welcome: HashMap<(IpAddr, Box<str>), Time>,
}

#[derive(Debug)]
struct AddressSheet {
    all: Sheet,
    names: HashMap<Box<str>, Sheet>,
}

#[derive(Clone, Copy, Debug)]
struct Sheet {
    wrong: u32,
    last: Time,
}

impl Sheet {
    fn new(now: Time) -> Sheet {
        Sheet { wrong: 0, last: now }
    }

    /// Wrong passwords that still count.
    fn wrong_at(&self, now: Time) -> u32 {
        if now.since(self.last) < FORGET_AFTER { self.wrong } else { 0 }
    }

    fn add(&mut self, now: Time) {
        *self = Sheet { wrong: self.wrong_at(now).saturating_add(1), last: now };
    }
}

impl Attempts {
    /// How long an answer to this name from this address waits.
    pub fn wait(&self, address: IpAddr, name: &str, now: Time) -> Duration {
        let (address, name) = (client_network(address), kept(name));
        let sheets = self.sheets.lock();
        let Some(sheet) = sheets.addresses.get(&address) else { return Duration::ZERO };
        let own = sheet.names.get(&name).map_or(0, |own| own.wrong_at(now));
        let own = wait_after(own, FREE, WAIT_MAX);
        let known = sheets.welcome.get(&(address, name));
        if known.is_some_and(|at| now.since(*at) < WELCOME_FOR) {
            return own;
        }
        own.max(wait_after(sheet.all.wrong_at(now), FREE_OF_ADDRESS, WAIT_MAX_OF_ADDRESS))
    }

    /// A wrong password for this name came from this address.
    pub fn wrong(&self, address: IpAddr, name: &str, now: Time) {
        let address = client_network(address);
        let mut sheets = self.sheets.lock();
        let addresses = &mut sheets.addresses;
        if !addresses.contains_key(&address) && addresses.len() >= ADDRESSES_MAX {
            forget_quietest(addresses, |sheet| sheet.all.last);
        }
        let new = || AddressSheet { all: Sheet::new(now), names: HashMap::new() };
        let sheet = addresses.entry(address).or_insert_with(new);
        sheet.all.add(now);
        let (names, name) = (&mut sheet.names, kept(name));
        if !names.contains_key(&name) && names.len() >= NAMES_MAX {
            forget_quietest(names, |sheet| sheet.last);
        }
        names.entry(name).or_insert_with(|| Sheet::new(now)).add(now);
    }

    /// This name logged in from this address. What was wrong before stays: another client may have
    /// guessed, and goes on.
    pub fn right(&self, address: IpAddr, name: &str, now: Time) {
        let key = (client_network(address), kept(name));
        let mut sheets = self.sheets.lock();
        let welcome = &mut sheets.welcome;
        if !welcome.contains_key(&key) && welcome.len() >= WELCOME_MAX {
            forget_older_half(welcome);
        }
        welcome.insert(key, now);
    }
}

fn forget_quietest<K: Clone + Eq + std::hash::Hash, V>(
    sheets: &mut HashMap<K, V>,
    last: impl Fn(&V) -> Time,
) {
    let quietest = sheets.iter().min_by_key(|(_, sheet)| last(sheet)).map(|(key, _)| key.clone());
    if let Some(quietest) = quietest {
        sheets.remove(&quietest);
    }
}

/// Half at once, so that a full table does not cost a walk for each login.
fn forget_older_half(welcome: &mut HashMap<(IpAddr, Box<str>), Time>) {
    let mut times: Vec<Time> = welcome.values().copied().collect();
    let middle = times.len() / 2;
    let (_, middle, _) = times.select_nth_unstable(middle);
    let middle = *middle;
    welcome.retain(|_, at| *at > middle);
}

fn wait_after(wrong: u32, free: u32, longest: Duration) -> Duration {
    match wrong.checked_sub(free) {
        None => Duration::ZERO,
        // Sixteen doublings are beyond the bound already.
        Some(beyond) => WAIT_FIRST.saturating_mul(1 << beyond.min(16)).min(longest),
    }
}

fn kept(name: &str) -> Box<str> {
    name.chars().take(NAME_CHARACTERS_MAX).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const START: Time = Time::ZERO;

    fn address(last: u8) -> IpAddr {
        IpAddr::from([192, 0, 2, last])
    }

    fn waits(attempts: &Attempts, count: usize) -> Vec<u128> {
        let mut waits = Vec::new();
        for _ in 0..count {
            waits.push(attempts.wait(address(1), "alice", START).as_millis());
            attempts.wrong(address(1), "alice", START);
        }
        waits
    }

    #[test]
    fn three_are_free_then_the_wait_doubles_up_to_its_bound() {
        let attempts = Attempts::default();
        let expected = [0, 0, 0, 250, 500, 1_000, 2_000, 4_000, 4_000];
        assert_eq!(waits(&attempts, expected.len()), expected);
        for _ in 0..100 {
            attempts.wrong(address(1), "alice", START);
        }
        assert_eq!(attempts.wait(address(1), "alice", START), WAIT_MAX);
    }

    #[test]
    fn one_address_does_not_slow_another() {
        let attempts = Attempts::default();
        waits(&attempts, 100);
        assert_eq!(attempts.wait(address(2), "alice", START), Duration::ZERO);
    }

    #[test]
    fn one_bad_client_behind_a_nat_does_not_slow_the_others() {
        let attempts = Attempts::default();
        attempts.right(address(1), "bob", START);
        waits(&attempts, FREE_OF_ADDRESS as usize - 1);
        assert_eq!(attempts.wait(address(1), "carol", START), Duration::ZERO);
        waits(&attempts, 10_000);
        assert_eq!(attempts.wait(address(1), "alice", START), WAIT_MAX);
        assert_eq!(attempts.wait(address(1), "bob", START), Duration::ZERO, "known there");
        assert_eq!(attempts.wait(address(1), "carol", START), WAIT_MAX_OF_ADDRESS, "new there");
    }

    #[test]
    fn a_spray_over_many_names_is_slowed_and_names_that_logged_in_are_not() {
        let attempts = Attempts::default();
        attempts.right(address(1), "bob", START);
        let mut slowed = 0;
        for number in 0..1_000 {
            let name = format!("guess-{number}");
            slowed += u32::from(!attempts.wait(address(1), &name, START).is_zero());
            attempts.wrong(address(1), &name, START);
        }
        assert_eq!(slowed, 1_000 - FREE_OF_ADDRESS);
        assert_eq!(attempts.wait(address(1), "bob", START), Duration::ZERO);
        let later = START + WELCOME_FOR;
        attempts.wrong(address(1), "x", later);
        (0..FREE_OF_ADDRESS).for_each(|_| attempts.wrong(address(1), "x", later));
        assert!(!attempts.wait(address(1), "bob", later).is_zero(), "that was yesterday");
    }

    #[test]
    fn a_right_password_does_not_give_a_guesser_of_the_same_name_three_more() {
        let attempts = Attempts::default();
        waits(&attempts, 10);
        attempts.right(address(1), "alice", START);
        assert_eq!(attempts.wait(address(1), "alice", START), WAIT_MAX);
    }

    #[test]
    fn all_of_one_ipv6_network_are_one() {
        let attempts = Attempts::default();
        for host in 0..4 {
            attempts.wrong(format!("2001:db8::{host}").parse().unwrap(), "alice", START);
        }
        let wait = |from: &str| attempts.wait(from.parse().unwrap(), "alice", START);
        assert!(wait("2001:db8::ffff") > Duration::ZERO);
        assert!(wait("2001:db8:0:1::1").is_zero());
    }

    #[test]
    fn a_quiet_name_gets_a_clean_sheet() {
        let attempts = Attempts::default();
        waits(&attempts, 20);
        let almost = START + FORGET_AFTER - Duration::from_millis(1);
        assert_eq!(attempts.wait(address(1), "alice", almost), WAIT_MAX);
        let later = START + FORGET_AFTER;
        assert_eq!(attempts.wait(address(1), "alice", later), Duration::ZERO);
        assert_eq!(attempts.wait(address(1), "bob", later), Duration::ZERO);
        attempts.wrong(address(1), "alice", later);
        assert_eq!(attempts.wait(address(1), "alice", later), Duration::ZERO, "counted anew");
    }

    #[test]
    fn a_flood_is_bounded_and_forgets_the_quietest() {
        let attempts = Attempts::default();
        for number in 0..u32::try_from(ADDRESSES_MAX).unwrap() + 10 {
            let now = START + Duration::from_millis(u64::from(number));
            for _ in 0..=FREE {
                attempts.wrong(IpAddr::from(number.to_be_bytes()), "alice", now);
            }
        }
        assert_eq!(attempts.sheets.lock().addresses.len(), ADDRESSES_MAX);
        let now = START + Duration::from_secs(60);
        assert!(attempts.wait(IpAddr::from(0_u32.to_be_bytes()), "alice", now).is_zero());
        assert!(!attempts.wait(IpAddr::from(4_000_u32.to_be_bytes()), "alice", now).is_zero());
    }

    #[test]
    fn what_is_remembered_of_one_address_is_bounded() {
        let attempts = Attempts::default();
        for number in 0..u64::try_from(WELCOME_MAX).unwrap() + 10 {
            let now = START + Duration::from_millis(number);
            let name = format!("{number}{}", "x".repeat(1_000));
            attempts.wrong(address(1), &name, now);
            attempts.right(address(1), &name, now);
        }
        let sheets = attempts.sheets.lock();
        assert_eq!(sheets.addresses[&address(1)].names.len(), NAMES_MAX);
        assert!(sheets.welcome.len() <= WELCOME_MAX && sheets.welcome.len() >= WELCOME_MAX / 2);
        assert!(sheets.welcome.keys().all(|(_, name)| name.len() <= NAME_CHARACTERS_MAX));
    }
}
