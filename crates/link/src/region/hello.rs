//! What two instances of two regions say first on a connection, inside TLS: their names, and
//! sections that only those above the link understand. All numbers are little-endian.
//!
//! ```text
//! hello, and its answer
//!   0  8  magic "TWLNREGN"
//!   8  2  oldest protocol version that the sender speaks
//!  10  2  newest one
//!  12  4  length of what follows, at most REGION_HELLO_BYTES_MAX - 16
//!         (up to here the same in all versions; later ones only add to the end of what follows)
//!  16  1  0 frames, 1 copy; in an answer: 0 welcome, 1 refused
//!         queue manager, group, instance, build, and the group that the sender expects at the
//!         other end: each one byte of length, then UTF-8
//!  refused: two bytes of length, then why, in UTF-8
//!         1  number of sections; each of them: 1 tag, 4 length, then its bytes
//!         (in a refusal this may be missing: of an older version)
//! ```
//!
//! After the answer, the side that dialled for frames sends a frame of kind START, without a body,
//! once it takes the answer, or else a frame of kind END with the reason.
//!
//! Not here: whether the names are right (`dial`, `listen`), and what a section says. Invariants:
//! never more than `REGION_HELLO_BYTES_MAX` are read, and no more memory is taken than twice what
//! came; sections with tags that are not known here are kept.

use std::io;
use std::ops::RangeInclusive;
use std::sync::Arc;

use bytes::{Buf, BufMut, Bytes};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use towline_types::limits::{REGION_HELLO_BYTES_MAX, REGION_REASON_BYTES_MAX, REGION_SECTIONS_MAX};
use towline_types::{fitting, program_version};

use super::settings::RegionSettings;
use crate::text::{beginning, put_text, text};
use crate::versions;

/// Versions that this program speaks.
pub(super) const VERSIONS: RangeInclusive<u16> = 1..=1;
const MAGIC: &[u8; 8] = b"TWLNREGN";
const PRELUDE_BYTES: usize = 16;

/// Sections of a hello: tag and bytes of each.
pub type RegionSections = Vec<(u8, Bytes)>;

/// What an instance of the other region said of itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RegionHello {
    /// Its name, which its certificate has as well.
    pub instance: Arc<str>,
    /// Version of its program.
    pub build: Arc<str>,
    /// Protocol version that both speak.
    pub version: u16,
    /// At most [`REGION_SECTIONS_MAX`], in the order in which they came.
    pub sections: RegionSections,
}

impl RegionHello {
    /// The first section with this tag.
    #[must_use]
    pub fn section(&self, tag: u8) -> Option<&Bytes> {
        self.sections.iter().find(|(of, _)| *of == tag).map(|(_, bytes)| bytes)
    }
}

/// What a connection is for, or the answer to that.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum RegionMatter {
    Frames,
    Copy,
    Refused(String),
}

/// A hello as it travels.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct RegionGreeting {
    pub(super) oldest: u16,
    pub(super) newest: u16,
    pub(super) matter: RegionMatter,
    pub(super) queue_manager: String,
    pub(super) group: String,
    pub(super) instance: String,
    pub(super) build: String,
    /// The group that its sender expects at the other end.
    pub(super) expected: String,
    /// A refusal may have none.
    pub(super) sections: RegionSections,
}

impl RegionGreeting {
    pub(super) fn of(
        settings: &RegionSettings,
        matter: RegionMatter,
        sections: RegionSections,
    ) -> RegionGreeting {
        RegionGreeting {
            oldest: *VERSIONS.start(),
            newest: *VERSIONS.end(),
            matter,
            queue_manager: settings.queue_manager.to_string(),
            group: settings.group.to_string(),
            instance: settings.instance.to_string(),
            build: program_version().to_owned(),
            expected: settings.other_group.to_string(),
            sections,
        }
    }

    /// The version to speak with its sender.
    ///
    /// # Errors
    /// When there is none.
    pub(super) fn version(&self) -> Result<u16, String> {
        versions::common(
            "protocol between regions",
            &self.build,
            [self.oldest, self.newest],
            &VERSIONS,
        )
    }

    /// Whether its sender is of the other group, and means this one.
    ///
    /// # Errors
    /// Why not, with both values.
    pub(super) fn agrees(&self, settings: &RegionSettings) -> Result<(), String> {
        for (what, said, here) in [
            ("queue manager", &self.queue_manager, &settings.queue_manager),
            ("group", &self.group, &settings.other_group),
        ] {
            if **said != **here {
                return Err(format!(
                    "its {what} is '{}'; the other region of group '{}' is {what} '{here}'",
                    said.escape_default(),
                    settings.group
                ));
            }
        }
        if *self.expected != *settings.group {
            return Err(format!(
                "it has group '{}' for its other region; this is group '{}'",
                self.expected.escape_default(),
                settings.group
            ));
        }
        Ok(())
    }

    /// What its sender said of itself, once the version is known.
    pub(super) fn into_hello(self, version: u16) -> RegionHello {
        RegionHello {
            instance: Arc::from(self.instance),
            build: Arc::from(self.build),
            version,
            sections: self.sections,
        }
    }

    /// Its bytes.
    ///
    /// # Errors
    /// When the sections are too many, or too long: the other end would refuse it.
    pub(super) fn encode(&self) -> Result<Vec<u8>, String> {
        let mut body = Vec::new();
        body.put_u8(match self.matter {
            RegionMatter::Frames => 0,
            RegionMatter::Copy | RegionMatter::Refused(_) => 1,
        });
        let texts = [&self.queue_manager, &self.group, &self.instance, &self.build, &self.expected];
        texts.into_iter().for_each(|text| put_text(&mut body, text));
        if let RegionMatter::Refused(why) = &self.matter {
            let why = beginning(why, REGION_REASON_BYTES_MAX);
            body.put_u16_le(fitting(why.len()));
            body.put_slice(why.as_bytes());
        }
        self.encode_sections(&mut body)?;
        let mut bytes = Vec::with_capacity(PRELUDE_BYTES + body.len());
        bytes.put_slice(MAGIC);
        bytes.put_u16_le(self.oldest);
        bytes.put_u16_le(self.newest);
        bytes.put_u32_le(fitting(body.len()));
        bytes.put_slice(&body);
        Ok(bytes)
    }

    fn encode_sections(&self, body: &mut Vec<u8>) -> Result<(), String> {
        let bytes: usize = self.sections.iter().map(|(_, bytes)| 5 + bytes.len()).sum();
        if self.sections.len() > REGION_SECTIONS_MAX
            || bytes + 1 + body.len() > REGION_HELLO_BYTES_MAX - PRELUDE_BYTES
        {
            let count = self.sections.len();
            return Err(format!("our hello has {count} sections, {bytes} bytes: too many"));
        }
        body.put_u8(fitting(self.sections.len()));
        for (tag, bytes) in &self.sections {
            body.put_u8(*tag);
            body.put_u32_le(fitting(bytes.len()));
            body.put_slice(bytes);
        }
        Ok(())
    }

    /// `answer`: the bytes answer a hello, so they may be a refusal and carry no purpose.
    fn decode(versions: [u16; 2], mut body: Bytes, answer: bool) -> Option<RegionGreeting> {
        let mut rest = &body[..];
        let tag = rest.try_get_u8().ok()?;
        let names = [text(&mut rest)?, text(&mut rest)?, text(&mut rest)?];
        let [build, expected] = [text(&mut rest)?, text(&mut rest)?];
        let matter = match (tag, answer) {
            (0, _) => RegionMatter::Frames,
            (1, false) => RegionMatter::Copy,
            (1, true) => {
                let length = usize::from(rest.try_get_u16_le().ok()?);
                let (why, behind) = rest.split_at_checked(length)?;
                rest = behind;
                RegionMatter::Refused(String::from_utf8_lossy(why).into_owned())
            }
            (_, _) => return None,
        };
        let left = rest.len();
        body.advance(body.len() - left);
        // A refusal of an older version ends here.
        let is_over = body.is_empty() && matches!(matter, RegionMatter::Refused(_));
        let sections = if is_over { Vec::new() } else { decode_sections(&mut body)? };
        let [oldest, newest] = versions;
        let [queue_manager, group, instance] = names;
        Some(RegionGreeting {
            oldest,
            newest,
            matter,
            queue_manager,
            group,
            instance,
            build,
            expected,
            sections,
        })
    }
}

fn decode_sections(body: &mut Bytes) -> Option<RegionSections> {
    let count = usize::from(body.try_get_u8().ok()?);
    if count > REGION_SECTIONS_MAX {
        return None;
    }
    let mut sections = Vec::with_capacity(count);
    for _ in 0..count {
        let tag = body.try_get_u8().ok()?;
        let length = usize::try_from(body.try_get_u32_le().ok()?).ok()?;
        if length > body.len() {
            return None;
        }
        sections.push((tag, body.split_to(length)));
    }
    Some(sections)
}

/// Sends the bytes of a hello or of the answer to one.
///
/// # Errors
/// When the connection broke.
pub(super) async fn say(stream: &mut (impl AsyncWrite + Unpin), hello: &[u8]) -> io::Result<()> {
    stream.write_all(hello).await?;
    stream.flush().await
}

/// Reads a hello, or the answer to one, and not a byte more.
///
/// # Errors
/// When the connection broke, or the bytes are none.
pub(super) async fn hear(
    stream: &mut (impl AsyncRead + Unpin),
    answer: bool,
) -> io::Result<RegionGreeting> {
    let wrong = |why: &str| io::Error::new(io::ErrorKind::InvalidData, why.to_owned());
    let mut prelude = [0; PRELUDE_BYTES];
    stream.read_exact(&mut prelude).await?;
    let numbers = prelude.strip_prefix(MAGIC);
    let mut numbers = numbers.ok_or_else(|| wrong("no hello of a link between regions"))?;
    let versions = [numbers.get_u16_le(), numbers.get_u16_le()];
    let length = u64::from(numbers.get_u32_le());
    if length > (REGION_HELLO_BYTES_MAX - PRELUDE_BYTES) as u64 {
        return Err(wrong("a hello that is too long"));
    }
    // Grows with what comes: a length alone takes no memory.
    let mut body = Vec::new();
    if stream.take(length).read_to_end(&mut body).await? as u64 != length {
        return Err(io::ErrorKind::UnexpectedEof.into());
    }
    let greeting = RegionGreeting::decode(versions, Bytes::from(body), answer);
    greeting.ok_or_else(|| wrong("a hello that cannot be read"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn greeting(matter: RegionMatter) -> RegionGreeting {
        let sections = match matter {
            RegionMatter::Refused(_) => Vec::new(),
            RegionMatter::Frames | RegionMatter::Copy => {
                vec![(1, Bytes::from_static(b"chain")), (250, Bytes::new())]
            }
        };
        RegionGreeting {
            oldest: 1,
            newest: 1,
            matter,
            queue_manager: "QM1".into(),
            group: "WEST".into(),
            instance: "a".into(),
            build: "0.1.0".into(),
            expected: "EAST".into(),
            sections,
        }
    }

    fn read(bytes: &[u8], answer: bool) -> io::Result<RegionGreeting> {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        let mut bytes = bytes;
        runtime.block_on(hear(&mut bytes, answer))
    }

    #[test]
    fn every_hello_and_every_answer_comes_back_with_sections_that_nobody_knows() {
        for matter in [RegionMatter::Frames, RegionMatter::Copy] {
            let hello = greeting(matter);
            assert_eq!(read(&hello.encode().unwrap(), false).unwrap(), hello);
        }
        let welcome = greeting(RegionMatter::Frames);
        assert_eq!(read(&welcome.encode().unwrap(), true).unwrap(), welcome);
        let refused = greeting(RegionMatter::Refused("because".into()));
        assert_eq!(read(&refused.encode().unwrap(), true).unwrap(), refused);
        let hello = welcome.into_hello(1);
        assert_eq!(hello.section(250).map(Bytes::len), Some(0));
        assert_eq!(hello.section(2), None);
    }

    #[test]
    fn what_a_later_version_adds_is_not_read_and_does_not_harm() {
        let hello = RegionGreeting { newest: 9, ..greeting(RegionMatter::Frames) };
        let mut bytes = hello.encode().unwrap();
        bytes.extend_from_slice(b"more");
        bytes[12] += 4;
        assert_eq!(read(&bytes, false).unwrap(), hello);
        assert_eq!(hello.version(), Ok(1));
        let later = RegionGreeting { oldest: 2, newest: 3, ..hello };
        let why = later.version().unwrap_err();
        assert!(why.contains("0.1.0 has 2 to 3, we have 1 to 1"), "{why}");
    }

    #[test]
    fn the_longest_hello_comes_back_and_a_longer_one_is_not_sent() {
        let with = |bytes: usize, count: usize| RegionGreeting {
            sections: vec![(1, Bytes::from(vec![7; bytes])); count],
            ..greeting(RegionMatter::Frames)
        };
        let overhead = with(0, 1).encode().unwrap().len();
        let longest = with(REGION_HELLO_BYTES_MAX - overhead, 1);
        let bytes = longest.encode().unwrap();
        assert_eq!(bytes.len(), REGION_HELLO_BYTES_MAX);
        assert_eq!(read(&bytes, false).unwrap(), longest);
        assert!(with(REGION_HELLO_BYTES_MAX - overhead + 1, 1).encode().is_err());
        let most = with(1, REGION_SECTIONS_MAX);
        assert_eq!(read(&most.encode().unwrap(), false).unwrap(), most);
        assert!(with(1, REGION_SECTIONS_MAX + 1).encode().is_err());
    }

    #[test]
    fn a_hello_that_says_it_is_too_long_or_has_too_many_sections_is_refused() {
        let mut long = greeting(RegionMatter::Frames).encode().unwrap();
        long[12..16].copy_from_slice(&(256_u32 * 1_024 - 15).to_le_bytes());
        let why = read(&long, false).unwrap_err().to_string();
        assert!(why.contains("too long"), "before what it announces has come: {why}");
        let whole = greeting(RegionMatter::Frames).encode().unwrap();
        let count = whole.len() - (5 + 5) - 5 - 1;
        assert_eq!(whole[count], 2);
        let sections = vec![(1, Bytes::from_static(b"x")); REGION_SECTIONS_MAX];
        let most = RegionGreeting { sections, ..greeting(RegionMatter::Frames) };
        let mut many = most.encode().unwrap();
        let count_of_many = many.len() - 6 * REGION_SECTIONS_MAX - 1;
        many[count_of_many] += 1;
        many.extend_from_slice(b"\x01\x01\0\0\0x");
        many[12] += 6;
        let why = read(&many, false).unwrap_err().to_string();
        assert!(why.contains("cannot be read"), "one section more than may be: {why}");
        let mut section = whole;
        section[count + 2] += 100;
        assert!(read(&section, false).is_err(), "a section that ends behind the hello");
    }

    #[test]
    fn a_long_reason_is_cut_and_long_names_leave_space_for_it() {
        let names = "n".repeat(255);
        let long = greeting(RegionMatter::Refused("ä".repeat(2_000)));
        let long = RegionGreeting { group: names.clone(), instance: names, ..long };
        let heard = read(&long.encode().unwrap(), true).unwrap();
        let RegionMatter::Refused(why) = heard.matter else { panic!() };
        assert_eq!(why.len(), REGION_REASON_BYTES_MAX);
    }

    #[test]
    fn cut_and_changed_hellos_are_refused_or_read_but_never_break_us() {
        let whole = greeting(RegionMatter::Copy).encode().unwrap();
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
    }
}
