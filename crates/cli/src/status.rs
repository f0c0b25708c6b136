//! `towline status`: asks, and prints the table or the JSON as it came. Counts nothing itself.

use towline_admin::status;

use crate::arguments::Status;
use crate::failure::Failure;
use crate::{mqsc, show};

/// Runs the command.
pub(crate) fn run(arguments: &Status) -> Result<(), Failure> {
    let mut client = arguments.reach.connect()?;
    let json = client.ask_admin("status", "")?.body;
    client.close()?;
    let status: status::Status = mqsc::understood(&json)?;
    if arguments.reach.json {
        return show::line(&json);
    }
    show::line(status::table(&status).trim_end())
}
