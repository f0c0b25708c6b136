//! What a copy of this instance's log is made of: the image of the active instance, or of the
//! replica that is about to become active, and its pages.
//!
//! Not here: sending it (`copy`).

use bytes::Bytes;
use towline_backup::{BackupError, Source};
use towline_log::time_index::Row;
use towline_log::{Log, Pages};
use towline_types::PageRef;

use crate::open::OpenReplica;
use towline_engine::backup::{pages_of, patiently};
use towline_replication::copy::CopySource;

impl CopySource for OpenReplica {
    fn source(&self, log: &Log) -> Result<Source, String> {
        let words = |error: BackupError| error.to_string();
        let taken = match self.door() {
            Some(door) => Some(patiently(|| {
                self.images.take(door.as_ref()).map_err(|error| error.to_string())
            })?),
            // It leads, and what it has is not committed yet: perhaps only with this copy. Where a
            // new image cannot be written, an older one does.
            None => self.images.take(self.replica.as_ref()).unwrap_or_else(|error| {
                tracing::warn!(%error, "no new image can be taken for a copy");
                None
            }),
        };
        match taken {
            Some(taken) => {
                patiently(|| Source::running(log, taken.at, taken.keep_from).map_err(words))
            }
            // The pages of queues that were rebuilt may have taken the place of those of an image.
            None if self.images.owes_rebuilt() => {
                Err("its queues are being rebuilt; try again".into())
            }
            // What is committed ends within a unit of work, and nothing more is before this copy is
            // given.
            None => patiently(|| Source::behind_newest_image(log).map_err(words)),
        }
    }

    fn hold_pages(&self) -> Box<dyn Send + '_> {
        Box::new(self.images.hold_pages())
    }

    fn pages_of(&self, image: &Bytes) -> Result<Vec<PageRef>, String> {
        pages_of(image)
    }

    fn pages(&self) -> &Pages {
        self.images.pages()
    }

    fn times(&self) -> Vec<Row> {
        self.images.time_index().map(|index| index.rows()).unwrap_or_default()
    }
}
