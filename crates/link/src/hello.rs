//! What two instances say first on a connection, inside TLS: their identity, the purpose of the
//! connection, their position in the log. All numbers are little-endian.
//!
//! ```text
//! hello, and its answer
//!   0  8  magic "TWLNLINK"
//!   8  2  oldest protocol version that the sender speaks
//!  10  2  newest one
//!  12  2  length of what follows, at most 2034; in a refusal 1010
//!         (up to here the same in all versions; what follows is of version 2, and later ones only
//!         add to its end)
//!  14  1  0 frames, 1 relay, 2 copy, 3 status, 4 batch; in an answer: 0 welcome, 1 refused
//!         queue manager, group, instance, build: each one byte of length, then UTF-8
//!      1  blank: 1 when the sender has no log
//!      8  index of the last batch of its log
//!      8  term of that batch
//!  relay: 2  which listener of the configuration; 0xFFFF: the local socket
//!         1  0 (local), 4 or 6, then 4 or 16 bytes: the client's address
//!  refused: two bytes of length, then why, in UTF-8
//!  (not in a refusal)
//!         1  number of terms; each of them: 1 byte, 1: must be equal; name, value, each one byte
//!            of length, then UTF-8
//!         8  newest term of consensus that the sender took part in, as it was on its disk when it
//!            said so
//!  (from version 3 on) what is known of starts, see `known`
//! ```
//!
//! The answering side picks the newest version that both speak, and refuses when there is none; the
//! dialling side does the same when it reads the answer.
//!
//! Not here: whether the names are right (`dial`, `incoming`). Invariant: never more than
//! `HELLO_BYTES_MAX` are read.

use std::io;
use std::net::IpAddr;
use std::ops::RangeInclusive;
use std::sync::Arc;

use bytes::{Buf, BufMut};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use towline_types::{FormatLevels, fitting};

use super::known::StartsReport;
use super::settings::LinkSettings;
use super::terms::Terms;
use super::text::{beginning, put_text, text};
use super::versions;

/// Versions that this program speaks. Batches of version 1 had no checks behind bodies, and its
/// programs do not understand ours; nor did its hello say terms. Programs of version 2 say nothing
/// of starts: what they do not know of a folder that was put back is not known, and nothing else
/// changes.
pub(super) const VERSIONS: RangeInclusive<u16> = 2..=3;
/// From this version on starts are said and declared.
pub(super) const WITH_STARTS: u16 = 3;
const MAGIC: &[u8; 8] = b"TWLNLINK";
const PRELUDE_BYTES: usize = 14;
const HELLO_BYTES_MAX: usize = 2_048;
/// The same of programs of version 2, which learn the reason of a refusal, too.
const REFUSAL_BYTES_MAX: usize = 1_024;
/// Longest reason of a refusal that is sent.
const REASON_BYTES_MAX: usize = 400;
/// Listener number of the local socket.
pub const LOCAL_LISTENER: u16 = u16::MAX;

/// Where an instance is in its log.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Standing {
    /// It has no log yet.
    pub blank: bool,
    /// Index of its last batch.
    pub last_index: u64,
    /// Term of that batch.
    pub last_term: u64,
    /// The newest term that it took part in, which was on its disk when it said so; not said in a
    /// refusal.
    pub term: u64,
    /// Id of its log; 0: not said, in a refusal and by programs that know one id for each group.
    pub log: u128,
}

/// What a peer said of itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Greeting {
    /// Protocol version that both speak.
    pub version: u16,
    /// Version of its program.
    pub build: Arc<str>,
    /// Where it was in its log when it said so.
    pub standing: Standing,
    /// What it said of format levels.
    pub levels: FormatLevels,
    /// What in its configuration is not as ours and could be so; empty: nothing.
    pub differs: Arc<str>,
    /// What it knows of starts; nothing of a version that says nothing of them.
    pub known: StartsReport,
}

/// What a stream is for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StreamPurpose {
    /// A client that came to another instance.
    Relay {
        /// Which `[[listener]]` it came to, counted from 0; `u16::MAX`: the local socket.
        listener: u16,
        /// From where; `None` on the local socket.
        client: Option<IpAddr>,
    },
    /// A copy of log, images or pages; what is wanted is said inside.
    Copy,
    /// How the other end is, as JSON: an operator asks in the name of an instance that does not
    /// run.
    Status,
    /// One batch of the log that is damaged here; which one is said inside.
    Batch,
}

/// What a connection is for, or the answer to that.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Matter {
    Frames,
    Stream(StreamPurpose),
    Refused(String),
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Hello {
    pub(super) oldest: u16,
    pub(super) newest: u16,
    pub(super) matter: Matter,
    pub(super) queue_manager: String,
    pub(super) group: String,
    pub(super) instance: String,
    pub(super) build: String,
    pub(super) standing: Standing,
    /// Empty in a refusal, and of a version before they were said.
    pub(super) terms: Terms,
    /// Nothing in a refusal, nor of a version before it was said.
    pub(super) known: StartsReport,
}

impl Hello {
    pub(super) fn of(
        settings: &LinkSettings,
        (standing, levels): (Standing, FormatLevels),
        known: StartsReport,
        matter: Matter,
    ) -> Hello {
        Hello {
            oldest: *VERSIONS.start(),
            newest: *VERSIONS.end(),
            matter,
            queue_manager: settings.queue_manager.to_string(),
            group: settings.group.to_string(),
            instance: settings.name(settings.this).to_owned(),
            build: towline_types::program_version().to_owned(),
            standing,
            terms: settings.terms.with_levels(levels).with_log(standing.log),
            known,
        }
    }

    /// The version to speak with its sender.
    ///
    /// # Errors
    /// When there is none.
    pub(super) fn version(&self) -> Result<u16, String> {
        versions::common("link protocol", &self.build, [self.oldest, self.newest], &VERSIONS)
    }

    /// Whether its sender can be in a group with us; what differs and does no harm is returned.
    ///
    /// # Errors
    /// Why not.
    pub(super) fn agrees(
        &self,
        settings: &LinkSettings,
        levels: FormatLevels,
    ) -> Result<String, String> {
        let terms = settings.terms.with_levels(levels);
        let here = (settings.name(settings.this), &terms);
        Terms::compared(here, (&self.instance, &self.terms))
    }

    /// What its sender said of itself, once the version is known.
    pub(super) fn greeting(&self, version: u16, differs: &str) -> Greeting {
        let build = Arc::from(self.build.as_str());
        let differs = Arc::from(differs);
        let known = self.known.clone();
        let levels = self.terms.levels();
        Greeting { version, build, standing: self.standing, levels, differs, known }
    }

    fn encode(&self) -> Vec<u8> {
        let mut body = Vec::new();
        body.put_u8(match &self.matter {
            Matter::Frames => 0,
            Matter::Stream(StreamPurpose::Relay { .. }) | Matter::Refused(_) => 1,
            Matter::Stream(StreamPurpose::Copy) => 2,
            Matter::Stream(StreamPurpose::Status) => 3,
            Matter::Stream(StreamPurpose::Batch) => 4,
        });
        for text in [&self.queue_manager, &self.group, &self.instance, &self.build] {
            put_text(&mut body, text);
        }
        body.put_u8(u8::from(self.standing.blank));
        body.put_u64_le(self.standing.last_index);
        body.put_u64_le(self.standing.last_term);
        match &self.matter {
            Matter::Frames
            | Matter::Stream(StreamPurpose::Copy | StreamPurpose::Status | StreamPurpose::Batch) => {
            }
            Matter::Stream(StreamPurpose::Relay { listener, client }) => {
                body.put_u16_le(*listener);
                match client {
                    None => body.put_u8(0),
                    Some(IpAddr::V4(address)) => {
                        body.put_u8(4);
                        body.put_slice(&address.octets());
                    }
                    Some(IpAddr::V6(address)) => {
                        body.put_u8(6);
                        body.put_slice(&address.octets());
                    }
                }
            }
            Matter::Refused(why) => {
                // What is left must hold it: names may be long.
                let left = (REFUSAL_BYTES_MAX - PRELUDE_BYTES - 2).saturating_sub(body.len());
                let why = beginning(why, REASON_BYTES_MAX.min(left));
                body.put_u16_le(fitting(why.len()));
                body.put_slice(why.as_bytes());
            }
        }
        if !matches!(self.matter, Matter::Refused(_)) {
            self.terms.encode(&mut body);
            body.put_u64_le(self.standing.term);
            self.known.encode(&mut body);
        }
        let mut bytes = Vec::with_capacity(PRELUDE_BYTES + body.len());
        bytes.put_slice(MAGIC);
        bytes.put_u16_le(self.oldest);
        bytes.put_u16_le(self.newest);
        bytes.put_u16_le(fitting(body.len()));
        bytes.put_slice(&body);
        bytes
    }

    /// `answer`: the bytes answer a hello, so they may be a refusal and carry no purpose.
    fn decode(versions: [u16; 2], mut body: &[u8], answer: bool) -> Option<Hello> {
        let body = &mut body;
        let tag = body.try_get_u8().ok()?;
        let [queue_manager, group, instance, build] =
            [text(body)?, text(body)?, text(body)?, text(body)?];
        let mut standing = Standing {
            blank: body.try_get_u8().ok()? != 0,
            last_index: body.try_get_u64_le().ok()?,
            last_term: body.try_get_u64_le().ok()?,
            ..Standing::default()
        };
        let matter = match (tag, answer) {
            (0, _) => Matter::Frames,
            (1, true) => {
                let length = usize::from(body.try_get_u16_le().ok()?);
                Matter::Refused(String::from_utf8_lossy(body.get(..length)?).into_owned())
            }
            (1, false) => Matter::Stream(relay(body)?),
            (2, false) => Matter::Stream(StreamPurpose::Copy),
            (3, false) => Matter::Stream(StreamPurpose::Status),
            (4, false) => Matter::Stream(StreamPurpose::Batch),
            (_, _) => return None,
        };
        let [oldest, newest] = versions;
        let terms = match matter {
            Matter::Frames | Matter::Stream(_) => Terms::decode(body)?,
            Matter::Refused(_) => Terms::default(),
        };
        if !matches!(matter, Matter::Refused(_)) {
            standing.term = body.try_get_u64_le().ok()?;
            standing.log = terms.log();
        }
        let known = match matter {
            Matter::Frames | Matter::Stream(_) if newest >= WITH_STARTS => {
                StartsReport::decode(body)?
            }
            Matter::Frames | Matter::Stream(_) | Matter::Refused(_) => StartsReport::default(),
        };
        Some(Hello {
            oldest,
            newest,
            matter,
            queue_manager,
            group,
            instance,
            build,
            standing,
            terms,
            known,
        })
    }
}

fn relay(body: &mut &[u8]) -> Option<StreamPurpose> {
    let listener = body.try_get_u16_le().ok()?;
    let client = match body.try_get_u8().ok()? {
        0 => None,
        4 => Some(IpAddr::from(body.try_get_u32().ok()?.to_be_bytes())),
        6 => Some(IpAddr::from(body.try_get_u128().ok()?.to_be_bytes())),
        _ => return None,
    };
    Some(StreamPurpose::Relay { listener, client })
}

/// Sends a hello or the answer to one.
///
/// # Errors
/// When the connection broke.
pub(super) async fn say(stream: &mut (impl AsyncWrite + Unpin), hello: &Hello) -> io::Result<()> {
    stream.write_all(&hello.encode()).await?;
    stream.flush().await
}

/// Reads a hello, or the answer to one, and not a byte more.
///
/// # Errors
/// When the connection broke, or the bytes are none.
pub(super) async fn hear(stream: &mut (impl AsyncRead + Unpin), answer: bool) -> io::Result<Hello> {
    let wrong = |why: &str| io::Error::new(io::ErrorKind::InvalidData, why.to_owned());
    let mut prelude = [0; PRELUDE_BYTES];
    stream.read_exact(&mut prelude).await?;
    let mut numbers = prelude.strip_prefix(MAGIC).ok_or_else(|| wrong("no hello of a link"))?;
    let versions = [numbers.get_u16_le(), numbers.get_u16_le()];
    let length = usize::from(numbers.get_u16_le());
    if length > HELLO_BYTES_MAX - PRELUDE_BYTES {
        return Err(wrong("a hello that is too long"));
    }
    let mut body = vec![0; length];
    stream.read_exact(&mut body).await?;
    Hello::decode(versions, &body, answer).ok_or_else(|| wrong("a hello that cannot be read"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn terms() -> Terms {
        let mut terms = Terms::default();
        terms.bind("log.extent_bytes", 67_108_864);
        terms.mention("queue_manager.deadq", "");
        terms
    }

    fn hello(matter: Matter) -> Hello {
        let (terms, term, known) = match &matter {
            Matter::Refused(_) => (Terms::default(), 0, StartsReport::default()),
            Matter::Frames | Matter::Stream(_) => (terms(), 1 << 40, StartsReport::of_test()),
        };
        Hello {
            oldest: 2,
            newest: 3,
            terms,
            known,
            matter,
            queue_manager: "QM1".into(),
            group: "G".into(),
            instance: "a".into(),
            build: "0.1.0".into(),
            standing: Standing { blank: true, last_index: 7, last_term: u64::MAX, term, log: 0 },
        }
    }

    fn read(bytes: &[u8], answer: bool) -> io::Result<Hello> {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        let mut bytes = bytes;
        runtime.block_on(hear(&mut bytes, answer))
    }

    #[test]
    fn the_longest_names_and_reports_fit_beside_terms_of_full_length() {
        let mut longest = Terms::default();
        while longest.bytes() < crate::TERMS_BYTES_MAX {
            let left = crate::TERMS_BYTES_MAX - longest.bytes() - 3;
            longest.mention("", "v".repeat(left.min(200)));
        }
        assert_eq!(longest.bytes(), crate::TERMS_BYTES_MAX);
        let client = Some(IpAddr::from([0xff; 16]));
        let relayed = Matter::Stream(StreamPurpose::Relay { listener: 1, client });
        let mut hello = hello(relayed);
        let levels = FormatLevels { in_force: u8::MAX, read: u8::MAX };
        hello.terms = longest.with_levels(levels).with_log(u128::MAX);
        hello.standing.log = u128::MAX;
        let noted = hello.known.noted[0];
        hello.known.noted = vec![noted; towline_group::Starts::SAID_MAX];
        // Group and instance have 48 bytes at most; all three are parts of a common name.
        hello.queue_manager = "q".repeat(64);
        (hello.group, hello.instance) = ("g".repeat(48), "i".repeat(48));
        hello.build = "100.100.100-release".into();
        assert_eq!(read(&hello.encode(), false).unwrap(), hello);
    }

    #[test]
    fn every_hello_and_every_answer_comes_back() {
        let client = |client| StreamPurpose::Relay { listener: 3, client };
        for purpose in [
            StreamPurpose::Copy,
            StreamPurpose::Status,
            StreamPurpose::Batch,
            client(None),
            client(Some(IpAddr::from([192, 0, 2, 1]))),
            client(Some("2001:db8::1".parse().unwrap())),
        ] {
            let hello = hello(Matter::Stream(purpose));
            assert_eq!(read(&hello.encode(), false).unwrap(), hello);
        }
        let frames = hello(Matter::Frames);
        assert_eq!(read(&frames.encode(), false).unwrap(), frames);
        assert_eq!(read(&frames.encode(), true).unwrap(), frames);
        let refused = hello(Matter::Refused("because".into()));
        assert_eq!(read(&refused.encode(), true).unwrap(), refused);
    }

    #[test]
    fn what_a_later_version_adds_is_not_read_and_does_not_harm() {
        let hello = Hello { newest: 9, ..hello(Matter::Frames) };
        let mut bytes = hello.encode();
        bytes.extend_from_slice(b"more");
        bytes[12] += 4;
        assert_eq!(read(&bytes, false).unwrap(), hello);
        assert_eq!(hello.version(), Ok(3));
    }

    #[test]
    fn a_version_that_says_nothing_of_starts_is_understood_and_understands_what_we_say() {
        let of_2 = Hello { newest: 2, known: StartsReport::default(), ..hello(Matter::Frames) };
        let bytes = of_2.encode();
        let said_of_starts = {
            let mut body = Vec::new();
            of_2.known.encode(&mut body);
            body.len()
        };
        let mut shorter = bytes[..bytes.len() - said_of_starts].to_vec();
        let length = u16::try_from(shorter.len() - PRELUDE_BYTES).unwrap();
        shorter[12..14].copy_from_slice(&length.to_le_bytes());
        assert_eq!(read(&shorter, false).unwrap(), of_2);
        assert_eq!(of_2.version(), Ok(2));
        // What is behind it, it does not read.
        assert_eq!(read(&bytes, false).unwrap(), of_2);
    }

    #[test]
    fn without_a_common_version_there_is_a_reason() {
        let later = Hello { oldest: 4, newest: 5, ..hello(Matter::Frames) };
        let why = later.version().unwrap_err();
        assert!(why.contains("0.1.0 has 4 to 5, we have 2 to 3"), "{why}");
    }

    #[test]
    fn a_long_reason_is_cut_and_still_fits() {
        let long = "ä".repeat(2_000);
        let names = "n".repeat(255);
        let hello = Hello {
            queue_manager: names.clone(),
            group: names.clone(),
            instance: names,
            ..hello(Matter::Refused(long))
        };
        let bytes = hello.encode();
        assert!(bytes.len() <= REFUSAL_BYTES_MAX);
        let Matter::Refused(why) = read(&bytes, true).unwrap().matter else { panic!() };
        assert!(why.starts_with('ä') && why.len() > 150);
    }

    #[test]
    fn cut_flipped_and_too_long_hellos_are_refused_or_read_but_never_break_us() {
        let client = Some(IpAddr::from([192, 0, 2, 1]));
        let purpose = StreamPurpose::Relay { listener: 0, client };
        let whole = hello(Matter::Stream(purpose)).encode();
        for end in 0..whole.len() {
            assert!(read(&whole[..end], false).is_err(), "{end}");
        }
        for at in 0..whole.len() {
            for value in [0, 1, 0x7F, 0xFF] {
                let mut bad = whole.clone();
                bad[at] = value;
                if let Ok(hello) = read(&bad, false) {
                    assert!(at >= MAGIC.len() || bad == whole, "{hello:?}");
                }
                read(&bad, true).ok();
            }
        }
        let mut long = whole;
        long[12..14].copy_from_slice(&2_035_u16.to_le_bytes());
        long.resize(3_000, 0);
        assert!(read(&long, false).unwrap_err().to_string().contains("too long"));
    }
}
