//! Wrong passwords, by the address that they come from: who guesses waits longer and longer for an
//! answer, be it yes or no.
//!
//! It counts and says how long; the connection does the waiting. It reads no clock.
//!
//! Invariants: a wait is never longer than `WAIT_MAX`; never more than `ADDRESSES_MAX` addresses are
//! remembered.

use std::collections::HashMap;
use std::net::{IpAddr, Ipv6Addr};
use std::time::Duration;

use parking_lot::Mutex;
use towline_types::Time;

/// Wrong passwords after which answers come late.
const FREE: u32 = 3;
/// The first wait; each further wrong password doubles it.
const WAIT_FIRST: Duration = Duration::from_millis(250);
/// The longest wait: a client that is only misconfigured must still get its answer.
const WAIT_MAX: Duration = Duration::from_secs(4);
/// After so long without a wrong password an address has a clean sheet.
const FORGET_AFTER: Duration = Duration::from_secs(600);
/// Addresses remembered at once; the one that was quiet for longest makes room.
const ADDRESSES_MAX: usize = 4_096;

/// The sheet of each address; shared by all listeners.
#[derive(Debug, Default)]
pub(crate) struct Attempts {
    sheets: Mutex<HashMap<IpAddr, Sheet>>,
}

#[derive(Clone, Copy, Debug)]
struct Sheet {
    wrong: u32,
    last: Time,
}

impl Attempts {
    /// How long an answer to this address waits.
    pub(crate) fn wait(&self, address: IpAddr, now: Time) -> Duration {
        let sheets = self.sheets.lock();
        match sheets.get(&network(address)) {
            Some(sheet) if now.since(sheet.last) < FORGET_AFTER => wait_after(sheet.wrong),
            Some(_) | None => Duration::ZERO,
        }
    }

    /// A wrong password came from this address.
    pub(crate) fn wrong(&self, address: IpAddr, now: Time) {
        let mut sheets = self.sheets.lock();
        let network = network(address);
        if !sheets.contains_key(&network) && sheets.len() >= ADDRESSES_MAX {
            let quietest = sheets.iter().min_by_key(|(_, sheet)| sheet.last);
            if let Some(quietest) = quietest.map(|(address, _)| *address) {
                sheets.remove(&quietest);
            }
        }
        let sheet = sheets.entry(network).or_insert(Sheet { wrong: 0, last: now });
        if now.since(sheet.last) >= FORGET_AFTER {
            sheet.wrong = 0;
        }
        *sheet = Sheet { wrong: sheet.wrong.saturating_add(1), last: now };
    }
}

fn wait_after(wrong: u32) -> Duration {
    match wrong.checked_sub(FREE) {
        None => Duration::ZERO,
        // Sixteen doublings are beyond the bound already.
        Some(beyond) => WAIT_FIRST.saturating_mul(1 << beyond.min(16)).min(WAIT_MAX),
    }
}

/// Who is taken for one: an IPv4 address, or the 64 bits of IPv6 that one customer gets.
pub(crate) fn network(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V4(address) => IpAddr::V4(address),
        IpAddr::V6(address) => IpAddr::V6(Ipv6Addr::from_bits(address.to_bits() >> 64 << 64)),
    }
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
            waits.push(attempts.wait(address(1), START).as_millis());
            attempts.wrong(address(1), START);
        }
        waits
    }

    #[test]
    fn three_are_free_then_the_wait_doubles_up_to_its_bound() {
        let attempts = Attempts::default();
        let expected = [0, 0, 0, 250, 500, 1_000, 2_000, 4_000, 4_000];
        assert_eq!(waits(&attempts, expected.len()), expected);
        for _ in 0..100 {
            attempts.wrong(address(1), START);
        }
        assert_eq!(attempts.wait(address(1), START), WAIT_MAX);
    }

    #[test]
    fn one_address_does_not_slow_another() {
        let attempts = Attempts::default();
        waits(&attempts, 10);
        assert_eq!(attempts.wait(address(2), START), Duration::ZERO);
    }

    #[test]
    fn all_of_one_ipv6_network_are_one() {
        let attempts = Attempts::default();
        for host in 0..4 {
            attempts.wrong(format!("2001:db8::{host}").parse().unwrap(), START);
        }
        assert!(attempts.wait("2001:db8::ffff".parse().unwrap(), START) > Duration::ZERO);
        assert!(attempts.wait("2001:db8:0:1::1".parse().unwrap(), START).is_zero());
    }

    #[test]
    fn a_quiet_address_gets_a_clean_sheet() {
        let attempts = Attempts::default();
        waits(&attempts, 10);
        let almost = START + FORGET_AFTER - Duration::from_millis(1);
        assert_eq!(attempts.wait(address(1), almost), WAIT_MAX);
        let later = START + FORGET_AFTER;
        assert_eq!(attempts.wait(address(1), later), Duration::ZERO);
        attempts.wrong(address(1), later);
        assert_eq!(attempts.wait(address(1), later), Duration::ZERO, "the count begins again");
    }

    #[test]
    fn a_flood_of_addresses_is_bounded_and_forgets_the_quietest() {
        let attempts = Attempts::default();
        for number in 0..u32::try_from(ADDRESSES_MAX).unwrap() + 10 {
            let now = START + Duration::from_millis(u64::from(number));
            for _ in 0..=FREE {
                attempts.wrong(IpAddr::from(number.to_be_bytes()), now);
            }
        }
        assert_eq!(attempts.sheets.lock().len(), ADDRESSES_MAX);
        let now = START + Duration::from_secs(60);
        assert!(attempts.wait(IpAddr::from(0_u32.to_be_bytes()), now).is_zero());
        assert!(!attempts.wait(IpAddr::from(4_000_u32.to_be_bytes()), now).is_zero());
    }
}
