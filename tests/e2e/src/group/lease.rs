//! Addresses below 127.0.0.0/8 that one group uses alone, as long as it lives.
//!
//! The holder of the lease has a listener on the last address of a block of 256. So ports can have
//! fixed numbers: no other group has this block, and outgoing connections come from 127.0.0.1.

use std::net::{Ipv4Addr, TcpListener};
use std::process;
use std::time::{SystemTime, UNIX_EPOCH};

use crate::chance::Chance;
use crate::{Try, fail};

/// Taken by the holder of the block.
const LEASE_PORT: u16 = 5699;
/// Blocks tried.
const TRIES: usize = 100;

pub(crate) struct Lease {
    block: (u8, u8),
    _held: TcpListener,
}

impl Lease {
    pub(crate) fn take() -> Try<Lease> {
        let clock = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        // Which block it is makes no difference to any test: no seed is printed.
        let mut chance =
            Chance::of(u64::from(process::id()) << 32 ^ u64::from(clock.subsec_nanos()));
        for _ in 0..TRIES {
            let block =
                (u8::try_from(chance.within(64, 250))?, u8::try_from(chance.within(0, 256))?);
            let last = Ipv4Addr::new(127, block.0, block.1, 255 - 1);
            if let Ok(held) = TcpListener::bind((last, LEASE_PORT)) {
                return Ok(Lease { block, _held: held });
            }
        }
        fail!("no free block of addresses")
    }

    /// Address `number` of the block, from 0.
    pub(crate) fn address(&self, number: usize) -> Ipv4Addr {
        let last = u8::try_from(number + 1).unwrap_or(u8::MAX - 2);
        Ipv4Addr::new(127, self.block.0, self.block.1, last)
    }
}
