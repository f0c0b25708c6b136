//! Images: definitions, counters and totals as of the facts applied so far. No messages: the log
//! has them. What is decided and not applied is not in an image.
//!
//! ```text
//! magic "TWLIMAGE", version 1 (1 byte), next sequence, next queue id, next body id,
//! number of definitions, each: definition (`record/definition.rs`); a local queue is followed by
//! its totals: puts, gets, backouts, expired, moved, cleared
//! ```
//! Numbers and text as in `record`. The log adds a checksum.

use crate::QueueManager;
use crate::object::Definition;
use crate::queue::{SEQUENCE_END, Totals};
use crate::record::{Reader, RecordError, decode_definition, encode_definition, put_varint};
use crate::request::Limits;

const MAGIC: &[u8; 8] = b"TWLIMAGE";
const VERSION: u8 = 1;

impl QueueManager {
    /// An image. Belongs to the position of the last fact applied.
    #[must_use]
    pub fn snapshot(&self) -> Vec<u8> {
        let mut out = Vec::new();
        out.extend_from_slice(MAGIC);
        out.push(VERSION);
        put_varint(self.next.sequence, &mut out);
        put_varint(u64::from(self.next.queue), &mut out);
        put_varint(self.next.body, &mut out);
        put_varint(self.catalogue.durable().count() as u64, &mut out);
        for definition in self.catalogue.durable() {
            encode_definition(definition, &mut out);
            if let Definition::Local(local) = definition {
                let queue = self.queues.get(&local.id);
                put_totals(queue.map(|queue| queue.totals).unwrap_or_default(), &mut out);
            }
        }
        out
    }

    /// A queue manager as of an image, without messages: replay the log over it.
    ///
    /// # Errors
    /// The bytes are not an image of a known version.
    pub fn restore(image: &[u8], limits: Limits) -> Result<QueueManager, RecordError> {
        let mut reader = Reader::new(image);
        for expected in MAGIC {
            if reader.byte()? != *expected {
                return Err(reader.error("not an image of a queue manager"));
            }
        }
        if reader.byte()? != VERSION {
            return Err(reader.error("an image of another version"));
        }
        let mut restored = QueueManager::new(limits);
        restored.next.sequence = reader.varint()?;
        restored.next.queue = reader.varint_u32()?;
        restored.next.body = reader.varint()?;
        if restored.next.sequence >= SEQUENCE_END || restored.next.queue == u32::MAX {
            return Err(reader.error("a counter that was never reached"));
        }
        restored.image_sequence = restored.next.sequence;
        for _ in 0..reader.varint()? {
            let definition = decode_definition(&mut reader)?;
            let name = definition.name().to_owned();
            if restored.catalogue.get(&name).is_some() {
                return Err(reader.error("two objects of one name"));
            }
            if let Definition::Local(local) = &definition {
                if local.id.0 >= restored.next.queue || restored.queues.contains_key(&local.id) {
                    return Err(reader.error("two queues of one id"));
                }
                let totals = read_totals(&mut reader)?;
                restored.adopt(&definition);
                restored.queue_mut(local.id).totals = totals;
            } else {
                restored.adopt(&definition);
            }
            restored.catalogue.apply(&name, Some(definition));
        }
        reader.end()?;
        Ok(restored)
    }
}

fn put_totals(totals: Totals, out: &mut Vec<u8>) {
    let Totals { puts, gets, backouts, expired, moved, cleared } = totals;
    for total in [puts, gets, backouts, expired, moved, cleared] {
        put_varint(total, out);
    }
}

fn read_totals(reader: &mut Reader<'_>) -> Result<Totals, RecordError> {
    Ok(Totals {
        puts: reader.varint()?,
        gets: reader.varint()?,
        backouts: reader.varint()?,
        expired: reader.varint()?,
        moved: reader.varint()?,
        cleared: reader.varint()?,
    })
}
