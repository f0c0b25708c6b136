//! Numbered texts on the queue `Q`: what was acknowledged, and whether all of it is there, in
//! order.

use crate::group::{Group, Instance};
use crate::peer::Peer;
use crate::{Try, require};

/// `message 5`, `message 6`, and so on.
#[must_use]
pub fn texts(from: u32, count: u32) -> Vec<String> {
    (from..from + count).map(|number| format!("message {number}")).collect()
}

/// Puts each and waits until it is accepted.
///
/// # Errors
/// When one is not.
pub fn put(group: &Group, through: Instance, texts: &[String]) -> Try {
    let mut peer = Peer::begun(group.address(through))?;
    peer.attach_sender(0, "Q")?;
    for (number, text) in (0..).zip(texts) {
        peer.put(0, number, text.as_bytes())?;
    }
    Ok(())
}

/// Takes what is there, which must be just this.
///
/// # Errors
/// When it is not.
pub fn has_exactly(group: &Group, active: Instance, wanted: &[String]) -> Try {
    let there = Peer::begun(group.address(active))?.drain("Q")?;
    require!(there == wanted, "{there:?} is there of {wanted:?}");
    Ok(())
}
