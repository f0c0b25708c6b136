//! A bounded number of slots for connections that have not identified themselves. For one more, the
//! oldest connection of the address that has most is evicted: at once, so that no number of silent
//! connections blocks another one.
//!
//! Not here: what a connection does in its slot, and for how long. Invariants: the number in use
//! never exceeds the bound; an address with few is not evicted for one with many.

use std::collections::{HashMap, VecDeque};
use std::net::IpAddr;
use std::sync::Arc;

use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore};
use towline_config::client_network;

/// See the module. The oldest slot comes first.
pub struct Slots {
    free: Arc<Semaphore>,
    taken: VecDeque<TakenSlot>,
}

struct TakenSlot {
    /// Of the client.
    network: IpAddr,
    /// See [`Slot::evicted`].
    evicted: Arc<Notify>,
}

/// One of them; freed when dropped.
pub struct Slot {
    _permit: OwnedSemaphorePermit,
    evicted: Arc<Notify>,
}

impl Slots {
    /// So many.
    #[must_use]
    pub fn new(most: usize) -> Slots {
        Slots { free: Arc::new(Semaphore::new(most)), taken: VecDeque::new() }
    }

    /// A slot for a connection from there; another one is evicted when none is free. Never `None`
    /// while this exists.
    pub async fn take(&mut self, from: IpAddr) -> Option<Slot> {
        // The slot holds the other reference: without it, it was freed.
        self.taken.retain(|taken| Arc::strong_count(&taken.evicted) > 1);
        if self.free.available_permits() == 0
            && let Some(taken) = self.greediest().and_then(|at| self.taken.remove(at))
        {
            taken.evicted.notify_one();
        }
        let permit = Arc::clone(&self.free).acquire_owned().await.ok()?;
        let evicted = Arc::<Notify>::default();
        let network = client_network(from);
        self.taken.push_back(TakenSlot { network, evicted: Arc::clone(&evicted) });
        Some(Slot { _permit: permit, evicted })
    }

    /// The oldest slot of the address that has most.
    fn greediest(&self) -> Option<usize> {
        let mut counts = HashMap::<IpAddr, usize>::new();
        for taken in &self.taken {
            *counts.entry(taken.network).or_default() += 1;
        }
        let most = counts.values().copied().max()?;
        self.taken.iter().position(|taken| counts.get(&taken.network) == Some(&most))
    }
}

impl Slot {
    /// Another connection needs the slot: it must be freed now.
    pub async fn evicted(&self) {
        self.evicted.notified().await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;
    use tokio::time::timeout;

    #[test]
    fn when_all_slots_are_taken_the_address_that_has_most_gives_up_its_oldest_at_once() {
        const MOST: usize = 256;
        let from = |last: u8| IpAddr::from([192, 0, 2, last]);
        let (flood, member) = (from(1), from(2));
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
        runtime.block_on(async {
            let mut slots = Slots::new(MOST);
            let of_member = slots.take(member).await.unwrap();
            let mut of_flood = VecDeque::new();
            while of_flood.len() + 1 < MOST {
                of_flood.push_back(slots.take(flood).await.unwrap());
            }
            for next in [flood, member, flood] {
                let oldest: Slot = of_flood.pop_front().unwrap();
                let gives_up = async move {
                    oldest.evicted().await;
                    drop(oldest);
                };
                let both = async { tokio::join!(slots.take(next), gives_up).0 };
                let slot = timeout(Duration::from_secs(10), both).await.expect("not the oldest");
                of_flood.push_back(slot.unwrap());
            }
            let told = timeout(Duration::ZERO, of_member.evicted()).await;
            assert!(told.is_err(), "a member gave way to a flood from elsewhere");
        });
    }
}
