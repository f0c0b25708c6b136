//! The rules, each proved by name through the public interface, over a pretended log (`rig`).

mod deleted;
mod deliveries;
mod eviction;
mod expiry;
mod filters;
mod given_up;
mod histories;
mod history;
mod keyed;
mod large;
mod levels;
mod move_messages;
mod objects;
mod paging;
mod parts;
mod principals;
mod puts;
mod refused;
mod relocated;
mod replay;
mod returns;
mod rig;
mod settlements;
mod slices;
mod spill;
mod units;
