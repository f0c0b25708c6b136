//! How long a peer may be silent on a connection for frames.
//!
//! Not here: what it says. Invariant: what has arrived counts before the deadline does: this side
//! may have been late.

use std::io;
use std::time::Duration;

use bytes::BytesMut;
use tokio::io::{AsyncRead, AsyncReadExt};
use tokio::time::{Instant, sleep_until};

use towline_tls::reason;

/// See the module. Begins when it is made, and anew with all that is read.
pub(super) struct Patience {
    longest: Duration,
    deadline: Instant,
}

impl Patience {
    pub(super) fn new(longest: Duration) -> Patience {
        Patience { longest, deadline: Instant::now() + longest }
    }

    /// Begins anew: for a while nothing was read on purpose.
    pub(super) fn renew(&mut self) {
        self.deadline = Instant::now() + self.longest;
    }

    /// Reads once, into the free capacity of `input`.
    ///
    /// # Errors
    /// Why the connection is over, in words.
    pub(super) async fn read(
        &mut self,
        reader: &mut (impl AsyncRead + Unpin),
        input: &mut BytesMut,
    ) -> Result<(), String> {
        let read = tokio::select! {
            biased;
            read = reader.read_buf(input) => read,
            () = sleep_until(self.deadline) => {
                return Err(format!("nothing came from it for {} ms", self.longest.as_millis()));
            }
        };
        match read {
            Ok(0) => Err("it ended the connection".to_owned()),
            Ok(_) => {
                self.renew();
                Ok(())
            }
            Err(error) => Err(broken(&error)),
        }
    }
}

/// Why a connection broke, in words.
pub(super) fn broken(error: &io::Error) -> String {
    match error.kind() {
        // A process that dies has no time for TLS's word for the end.
        io::ErrorKind::UnexpectedEof => "it ended the connection".to_owned(),
        _ => reason(error),
    }
}
