//! `towline image`: asks for an image and prints what was written. Takes none itself.

use serde::Deserialize;

use crate::arguments::Image;
use crate::failure::Failure;
use crate::{mqsc, show};

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
    let Taken { lsn, bytes, pages, took_ms } = mqsc::understood(&json)?;
    if arguments.reach.json {
        return show::json_text(&json);
    }
    show::line(&format!("image at {lsn}: {bytes} bytes, {pages} pages, {took_ms} ms"))
}
