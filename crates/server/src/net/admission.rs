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

#[derive(Debug, Default)]
struct Counts {
    connections: usize,
    logins_pending: usize,
    by_address: HashMap<IpAddr, usize>,
}

/// A place for one connection; given back when dropped.
#[derive(Debug)]
pub(crate) struct Place {
    admission: Arc<Admission>,
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
        if counts.connections >= self.limits.connections_max {
            return Err("connections_max reached");
        }
        if counts.logins_pending >= self.limits.logins_pending_max {
            return Err("logins_pending_max reached");
        }
        // Every local client has the same address: the bound would stop the wrong ones.
        let address = address.filter(|address| !address.is_loopback());
        if let Some(address) = address {
            let count = counts.by_address.entry(address).or_default();
            if *count >= self.limits.connections_per_address_max {
                return Err("connections_per_address_max reached");
            }
            *count += 1;
        }
        counts.connections += 1;
        counts.logins_pending += 1;
        Ok(Place { admission: Arc::clone(self), address, login_pending: true })
    }

    /// Connections now.
    pub(crate) fn connections(&self) -> usize {
        self.counts.lock().connections
    }
}

impl Place {
    /// The client has logged in.
    pub(crate) fn logged_in(&mut self) {
        if std::mem::take(&mut self.login_pending) {
            self.admission.counts.lock().logins_pending -= 1;
        }
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut counts = self.admission.counts.lock();
        counts.connections -= 1;
        if self.login_pending {
            counts.logins_pending -= 1;
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
        let mut first = admission.admit(None).unwrap();
        assert!(admission.admit(None).is_err());
        first.logged_in();
        assert!(admission.admit(None).is_ok());
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
