//! How damaged parts of the log are repaired: in a group, another instance has them. An instance
//! that is alone has no repairs.

use towline_types::BodyLocation;

/// Called when a repair has ended, with whether anything was repaired.
pub type RepairDone = Box<dyn FnOnce(bool) + Send>;

/// Repairs damaged parts of the log from elsewhere.
pub trait Repairs: Send + Sync {
    /// Requests a repair, and returns at once.
    fn request(&self, parts: Vec<BodyLocation>, done: RepairDone);

    /// Requests a repair and waits for it; whether anything was repaired.
    fn wait_for(&self, parts: Vec<BodyLocation>) -> bool;
}
