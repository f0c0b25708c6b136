//! Long messages of rigs are checked at once, as by a driver with a thread to spare.

use towline_node::{Front, Request};
use towline_types::Time;

use super::BytesMut;

/// Has the front take what came, and all that it wants to be checked.
pub(crate) fn take(
    front: &mut Front,
    now: Time,
    input: &mut BytesMut,
    requests: &mut Vec<Request>,
) {
    front.receive(now, input, requests);
    while let Some(check) = front.take_check() {
        front.checked(now, check.run(), input, requests);
    }
}
