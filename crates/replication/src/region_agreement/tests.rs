//! What one group says is what the other one reads; a later version may say more; nothing that
//! comes over a link breaks it.

use towline_types::SeededRandom;

use super::*;

/// The configuration of the group `name` of three, with `other` as the other one.
pub(crate) fn configuration(name: &str, other: &str, keys: &str) -> Config {
    let mut text = format!(
        "[group]\nname = \"{name}\"\ninstance = \"a\"\ncertificate = \"a.pem\"\n\
         private_key = \"k.pem\"\nauthorities = \"c.pem\"\n"
    );
    for instance in ["a", "b", "c"] {
        text += &format!(
            "[[group.member]]\nname = \"{instance}\"\naddress = \"{instance}.{name}:5700\"\n\
             region_address = \"{instance}.{name}:5800\"\nclients = [\"{instance}.{name}:5672\"]\n"
        );
    }
    text += &format!(
        "[group.recovery]\nname = \"{other}\"\n\
         addresses = [\"a.{other}:5800\", \"b.{other}:5800\", \"c.{other}:5800\"]\n{keys}\n"
    );
    Config::parse(&text).unwrap()
}

pub(crate) fn agreement_of(config: &Config) -> RegionAgreement {
    let group = config.group.as_ref().unwrap();
    let moment = RegionMoment {
        queue_manager: "QM1",
        levels: FormatLevels { in_force: 2, read: 3 },
        extent_bytes: 1 << 26,
        is_live: Some(group.name == "west"),
    };
    RegionAgreement::of(config, group, group.recovery.as_ref().unwrap(), &moment)
}

fn west() -> RegionAgreement {
    let keys = "clients = [[\"a.east:5672\", \"\"]]\nrpo_s = 7\nenabled = false";
    agreement_of(&configuration("west", "east", keys))
}

/// Where the fields of an encoding are: tag, first and last byte.
fn fields(bytes: &[u8]) -> Vec<(u8, usize, usize)> {
    let (mut at, mut fields) = (0, Vec::new());
    while at < bytes.len() {
        let end = at + 3 + usize::from(u16::from_le_bytes([bytes[at + 1], bytes[at + 2]]));
        fields.push((bytes[at], at, end));
        at = end;
    }
    fields
}

#[test]
fn what_is_said_of_a_configuration_is_what_the_other_region_reads() {
    let west = west();
    assert_eq!(
        (west.other_group.as_str(), west.enabled, west.is_live),
        ("east", false, Some(true))
    );
    assert_eq!(west.region_addresses, ["a.west:5800", "b.west:5800", "c.west:5800"]);
    assert_eq!(west.own_clients[2], ["c.west:5672"]);
    assert_eq!(west.instances, ["a", "b", "c"]);
    let value = |key: &str| west.values.iter().find(|(of, _)| of == key).unwrap().1.as_str();
    assert_eq!(value("group.recovery.rpo_s"), "7");
    assert_eq!(value("queue_manager.maxmsgl"), "104857600");
    let behind = limits::REGION_BEHIND_BYTES_DEFAULT.to_string();
    assert_eq!(value("group.recovery.log_bytes_behind_max"), behind);
    assert!(west.values.len() < VALUES_MAX);
    assert_eq!(RegionAgreement::decode(&west.encode()), Ok(west.clone()));
    for is_live in [None, Some(false)] {
        let other = RegionAgreement { is_live, enabled: true, ..west.clone() };
        assert_eq!(RegionAgreement::decode(&other.encode()), Ok(other));
    }
}

#[test]
fn what_a_later_version_says_beyond_that_is_skipped() {
    let west = west();
    let bytes = west.encode();
    let longer = [&[200, 3, 0, 1, 2, 3][..], &bytes, &[0, 0, 0]].concat();
    assert_eq!(RegionAgreement::decode(&longer), Ok(west.clone()));
    for (tag, start, end) in fields(&bytes) {
        // A text has no end but that of its field.
        if [1, 2, 3, 4, 7, 10].contains(&tag) {
            continue;
        }
        let mut longer = bytes[..end].to_vec();
        longer.extend_from_slice(&[9, 9]);
        let length = u16::try_from(end - start - 3 + 2).unwrap();
        longer[start + 1..start + 3].copy_from_slice(&length.to_le_bytes());
        longer.extend_from_slice(&bytes[end..]);
        assert_eq!(RegionAgreement::decode(&longer), Ok(west.clone()), "field {tag}");
    }
}

#[test]
fn lists_that_are_longer_than_ours_can_be_are_read_to_their_end() {
    let many = |count: usize| (0..count).map(|at| format!("h{at}:1")).collect::<Vec<_>>();
    let mut content = vec![5];
    many(5).iter().for_each(|address| put_text(&mut content, address));
    assert_eq!(texts(&mut &content[..], 3, 11), Ok(many(3)));
    let lists: Vec<u8> = std::iter::once(5)
        .chain((0..5).flat_map(|_| {
            let mut list = vec![20];
            many(20).iter().for_each(|address| put_text(&mut list, address));
            list
        }))
        .collect();
    let read = text_lists(&lists, 13).unwrap();
    assert_eq!(read, vec![many(limits::REGION_CLIENTS_MAX); limits::REGION_ADDRESSES_MAX]);
}

#[test]
fn bytes_that_are_no_agreement_are_refused_with_the_field() {
    let bytes = west().encode();
    let (_, of_names, _) = fields(&bytes).into_iter().find(|(tag, _, _)| *tag == 16).unwrap();
    for length in (0..bytes.len()).filter(|length| *length != of_names) {
        let cut = RegionAgreement::decode(&bytes[..length]).unwrap_err();
        let is_right =
            matches!(cut, RegionAgreementError::Cut(_) | RegionAgreementError::Missing(_));
        assert!(is_right, "{length}: {cut}");
    }
    for (tag, start, end) in fields(&bytes) {
        let without = [&bytes[..start], &bytes[end..]].concat();
        match RegionAgreement::decode(&without) {
            // That of a version before.
            Ok(read) => assert!(tag == 16 && read.instances.is_empty(), "field {tag}"),
            Err(why) => assert_eq!(why, RegionAgreementError::Missing(tag)),
        }
        let twice = [&bytes[..], &bytes[start..end]].concat();
        assert_eq!(RegionAgreement::decode(&twice), Err(RegionAgreementError::Twice(tag)));
        let empty = [&bytes[..start], &[tag, 0, 0], &bytes[end..]].concat();
        match tag {
            1..=4 | 7 | 10 => assert!(RegionAgreement::decode(&empty).is_ok(), "field {tag}"),
            _ => {
                assert_eq!(RegionAgreement::decode(&empty), Err(RegionAgreementError::Cut(tag)));
            }
        }
    }
    let no_text = [1, 1, 0, 0xff];
    let text = RegionAgreement::decode(&[&no_text[..], &bytes[fields(&bytes)[0].2..]].concat());
    assert_eq!(text, Err(RegionAgreementError::NotText(1)));
    let long = vec![0; limits::REGION_AGREEMENT_BYTES_MAX + 1];
    assert_eq!(RegionAgreement::decode(&long), Err(RegionAgreementError::TooLong));
    let why = RegionAgreementError::Missing(6).to_string();
    assert_eq!(why, "field 6 of what a region says of its configuration is missing");
}

#[test]
fn hostile_bytes_never_break_it_and_what_is_read_can_be_said_again() {
    let whole = west().encode();
    let given = std::env::var("TOWLINE_SEED").ok().and_then(|seed| seed.parse().ok());
    for seed in given.map_or(0..2_000, |seed: u64| seed..seed + 1) {
        println!("TOWLINE_SEED={seed}");
        let mut random = SeededRandom::new(seed);
        let mut bytes = whole.clone();
        for _ in 0..=random.below(4) {
            let at: usize = fitting(random.below(bytes.len() as u64));
            bytes[at] = fitting(random.below(256));
        }
        if let Ok(read) = RegionAgreement::decode(&bytes) {
            assert_eq!(RegionAgreement::decode(&read.encode()), Ok(read));
        }
    }
}

#[test]
fn the_longest_configuration_can_be_said() {
    let name = |letter: &str| letter.repeat(48);
    let host = |letter: String| format!("{letter}{}:65535", "h".repeat(252));
    let clients = |instance: usize| {
        let addresses: Vec<String> = (0..limits::REGION_CLIENTS_MAX)
            .map(|at| format!("\"{}\"", host(format!("{instance}{at:x}"))[1..].to_owned()))
            .collect();
        format!("[{}]", addresses.join(", "))
    };
    let mut text = format!(
        "[queue_manager]\ndeadq = \"{}\"\n[group]\nname = \"{}\"\ninstance = \"{}\"\n\
         certificate = \"a.pem\"\nprivate_key = \"k.pem\"\nauthorities = \"c.pem\"\n",
        "D".repeat(255),
        name("w"),
        name("a")
    );
    for (at, instance) in ["a", "b", "c"].into_iter().enumerate() {
        text += &format!(
            "[[group.member]]\nname = \"{}\"\naddress = \"{instance}:1\"\nregion_address = \"{}\"\n\
             clients = {}\n",
            name(instance),
            host(instance.to_owned()),
            clients(at)
        );
    }
    let addresses = ["x", "y", "z"].map(|letter| format!("\"{}\"", host(letter.to_owned())));
    text += &format!(
        "[group.recovery]\nname = \"{}\"\naddresses = [{}]\nclients = [{}]\n",
        name("e"),
        addresses.join(", "),
        [0, 1, 2].map(clients).join(", ")
    );
    let said = agreement_of(&Config::parse(&text).unwrap());
    let bytes = said.encode();
    assert!(bytes.len() > limits::REGION_AGREEMENT_BYTES_MAX * 3 / 4, "{} bytes", bytes.len());
    assert_eq!(RegionAgreement::decode(&bytes), Ok(said));
}
