//! How many may come in: bounds that hold before anybody has logged in.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::Arc;

use parking_lot::Mutex;

use crate::config::LimitsConfig;

/// Counts connections; shared by all listeners.
#[derive(Debug)]
pub(crate) struct Admission {
    limits: LimitsConfig,
    counts: Mutex<Counts>,
}

/// Connections at once on the local socket. They have a count of their own: when clients have taken
/// every place, the administrator must still get in.
const LOCAL_CONNECTIONS_MAX: usize = 64;

/// Logins under way at once from one address (loopback not counted): one silent host must not take
/// all of `logins_pending_max`.
const LOGINS_PENDING_PER_ADDRESS_MAX: usize = 64;

#[derive(Debug, Default)]
struct Counts {
    local: usize,
    connections: usize,
    logins_pending: usize,
    by_address: HashMap<IpAddr, usize>,
    pending_by_address: HashMap<IpAddr, usize>,
}

/// A place for one connection; given back when dropped.
#[derive(Debug)]
pub(crate) struct Place {
    admission: Arc<Admission>,
    local: bool,
    /// Set when connections of this address are counted.
    address: Option<IpAddr>,
    login_pending: bool,
}

impl Admission {
    pub(crate) fn new(limits: LimitsConfig) -> Arc<Admission> {
        Arc::new(Admission { limits, counts: Mutex::default() })
    }

    /// A place for a connection from `address` (`None`: the local socket), or why there is none.
    pub(crate) fn admit(self: &Arc<Self>, address: Option<IpAddr>) -> Result<Place, &'static str> {
        let mut counts = self.counts.lock();
        let admission = Arc::clone(self);
        if address.is_none() {
            if counts.local >= LOCAL_CONNECTIONS_MAX {
                return Err("the bound of the local socket");
            }
            counts.local += 1;
            return Ok(Place { admission, local: true, address: None, login_pending: false });
        }
        if counts.connections >= self.limits.connections_max {
            return Err("connections_max");
        }
        if counts.logins_pending >= self.limits.logins_pending_max {
            return Err("logins_pending_max");
        }
        // Every local client has the same address: the bound would stop the wrong ones.
        let address = address.filter(|address| !address.is_loopback());
        if let Some(address) = address {
            let pending = counts.pending_by_address.get(&address).copied().unwrap_or_default();
            if pending >= LOGINS_PENDING_PER_ADDRESS_MAX {
                return Err("the bound of logins under way from one address");
            }
            let count = counts.by_address.entry(address).or_default();
            if *count >= self.limits.connections_per_address_max {
                return Err("connections_per_address_max");
            }
            *count += 1;
            *counts.pending_by_address.entry(address).or_default() += 1;
        }
        counts.connections += 1;
        counts.logins_pending += 1;
        Ok(Place { admission, local: false, address, login_pending: true })
    }

    /// Connections now, local ones too.
    pub(crate) fn connections(&self) -> usize {
        let counts = self.counts.lock();
        counts.connections + counts.local
    }
}

impl Counts {
    fn login_done(&mut self, address: Option<IpAddr>) {
        self.logins_pending -= 1;
        if let Some(address) = address
            && let Some(count) = self.pending_by_address.get_mut(&address)
        {
            *count -= 1;
            if *count == 0 {
                self.pending_by_address.remove(&address);
            }
        }
    }
}

impl Place {
    /// The client has logged in.
    pub(crate) fn logged_in(&mut self) {
        if std::mem::take(&mut self.login_pending) {
            self.admission.counts.lock().login_done(self.address);
        }
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut counts = self.admission.counts.lock();
        if self.local {
            counts.local -= 1;
            return;
        }
        counts.connections -= 1;
        if self.login_pending {
            counts.login_done(self.address);
        }
        if let Some(address) = self.address
            && let Some(count) = counts.by_address.get_mut(&address)
        {
            *count -= 1;
            if *count == 0 {
                counts.by_address.remove(&address);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn admission(connections: usize, per_address: usize, pending: usize) -> Arc<Admission> {
        Admission::new(LimitsConfig {
            connections_max: connections,
            connections_per_address_max: per_address,
            logins_pending_max: pending,
            ..LimitsConfig::default()
        })
    }

    #[test]
    fn logins_pending_are_bounded_and_given_back_at_login() {
        let admission = admission(10, 10, 1);
        let loopback = Some(IpAddr::from([127, 0, 0, 1]));
        let mut first = admission.admit(loopback).unwrap();
        assert_eq!(admission.admit(loopback).unwrap_err(), "logins_pending_max");
        first.logged_in();
        assert!(admission.admit(loopback).is_ok());
    }

    #[test]
    fn an_administrator_gets_in_when_clients_have_every_place() {
        let admission = admission(1, 1, 1);
        let client = admission.admit(Some(IpAddr::from([127, 0, 0, 1]))).unwrap();
        assert!(admission.admit(Some(IpAddr::from([127, 0, 0, 1]))).is_err());
        let local: Vec<Place> =
            (0..LOCAL_CONNECTIONS_MAX).map(|_| admission.admit(None).unwrap()).collect();
        assert!(admission.admit(None).is_err(), "the local socket has a bound too");
        drop(client);
        assert!(admission.admit(Some(IpAddr::from([127, 0, 0, 1]))).is_ok());
        drop(local);
        assert_eq!(admission.connections(), 0);
    }

    #[test]
    fn one_silent_address_cannot_take_all_logins() {
        let admission = admission(1_000, 1_000, 1_000);
        let address = Some(IpAddr::from([192, 0, 2, 1]));
        let mut places: Vec<Place> = (0..LOGINS_PENDING_PER_ADDRESS_MAX)
            .map(|_| admission.admit(address).unwrap())
            .collect();
        assert!(admission.admit(address).is_err());
        assert!(admission.admit(Some(IpAddr::from([192, 0, 2, 2]))).is_ok());
        places[0].logged_in();
        assert!(admission.admit(address).is_ok());
        places.clear();
        assert!(admission.counts.lock().pending_by_address.is_empty());
    }

    #[test]
    fn one_address_cannot_take_all_places_and_gives_them_back() {
        let admission = admission(10, 1, 10);
        let address = Some(IpAddr::from([192, 0, 2, 1]));
        let first = admission.admit(address).unwrap();
        assert!(admission.admit(address).is_err());
        assert!(admission.admit(Some(IpAddr::from([192, 0, 2, 2]))).is_ok());
        drop(first);
        assert!(admission.admit(address).is_ok());
        assert_eq!(admission.connections(), 0);
    }
}
