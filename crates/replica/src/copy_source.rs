//! What a copy of this instance's log is made of: the image of the active instance, or of the
//! replica that is about to become active, and its pages.
//!
//! Not here: sending it (`copy`).

use towline_backup::{BackupError, Source};
use towline_log::time_index::Row;
use towline_log::{Log, Pages};
use towline_types::PageRef;

use crate::open::OpenReplica;
use towline_engine::backup::{pages_of, patiently};
use towline_replication::copy::CopySource;

impl CopySource for OpenReplica {
    fn source(&self, log: &Log) -> Result<(Source, Vec<PageRef>), String> {
        let words = |error: BackupError| error.to_string();
        if let Some(door) = self.door() {
            let take = || self.images.take(door.as_ref()).map_err(|error| error.to_string());
            let taken = patiently(take)?;
            let running = || Source::running(log, taken.at, taken.keep_from).map_err(words);
            return with_pages(patiently(running)?);
        }
        // It leads, and what it has is not committed yet: perhaps only with this copy. No image can
        // be taken within a unit of work, and where none can be written, an older one does.
        if let Err(error) = self.images.take(self.replica.as_ref()) {
            tracing::warn!(%error, "no new image can be taken for a copy");
        }
        // The pages of queues that were rebuilt may have taken the place of those of an image. The
        // other one rebuilds its queues too.
        if self.images.owes_rebuilt() {
            let source = patiently(|| Source::to_rebuild(log).map_err(words))?;
            return Ok((source, Vec::new()));
        }
        // What is known to be committed may need bodies that were reclaimed since: behind it, the
        // log says that these messages are gone.
        with_pages(patiently(|| Source::behind_newest_image(log).map_err(words))?)
    }

    fn hold_pages(&self) -> Box<dyn Send + '_> {
        Box::new(self.images.hold_pages())
    }

    fn pages(&self) -> &Pages {
        self.images.pages()
    }

    fn page_damaged(&self, why: &str) -> ! {
        match self.door() {
            Some(door) => door.page_damaged(why),
            None => self.replica.page_damaged(why),
        }
    }

    fn times(&self) -> Vec<Row> {
        self.images.time_index().map(|index| index.rows()).unwrap_or_default()
    }
}

fn with_pages(source: Source) -> Result<(Source, Vec<PageRef>), String> {
    let pages = source.image().map_or_else(|| Ok(Vec::new()), pages_of)?;
    Ok((source, pages))
}
