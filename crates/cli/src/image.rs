//! `towline image`: requests an image and reports what was written. The server takes it.

use serde::Deserialize;

use crate::arguments::Image;
use crate::failure::Failure;
use crate::{reply, show};

#[derive(Deserialize)]
struct Taken {
    lsn: String,
    bytes: u64,
    pages: u64,
    took_ms: u64,
}

/// Runs the command.
pub(crate) fn run(arguments: &Image) -> Result<(), Failure> {
    let mut client = arguments.reach.connect()?;
    let json = client.ask_admin("image", "")?.body;
    client.close()?;
    let Taken { lsn, bytes, pages, took_ms } = reply::understood(&json)?;
    if arguments.reach.json {
        return show::line(&json);
    }
    show::line(&format!("image at {lsn}: {bytes} bytes, {pages} pages, {took_ms} ms"))
}
