//! Memory of large messages on their way, bounded for all connections together: in ([`Arrivals`])
//! and out ([`Departures`]).

mod arrivals;
mod departures;
mod pace;
mod share;

pub use arrivals::{Arrival, Arrivals};
pub use departures::{Departure, Departures, bytes_of, is_large};
