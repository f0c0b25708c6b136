//! What reaches the log and the rules from a configuration.

use super::*;

#[test]
fn what_the_configuration_takes_the_log_takes_too() {
    for (text, fits) in [
        ("extent_bytes = 4194304", true),
        ("extent_bytes = 1073741824", true),
        ("extent_bytes = 1073745920", false),
        ("extent_bytes = 4190208", false),
        ("extent_bytes = 4194305", false),
        ("extent_bytes = 4194304\nlog_bytes_max = 33554432", true),
        ("extent_bytes = 4194304\nlog_bytes_max = 33554431", false),
        ("writes_in_flight_max = 16\ncache_bytes = 0", true),
    ] {
        let config = Config::parse(&format!("[log]\n{text}"));
        assert_eq!(config.is_ok(), fits, "{text}: {config:?}");
        if let Ok(config) = config {
            options(&config).check().unwrap();
        }
    }
}

/// With a value of its own for each key, none of which is the default.
#[test]
fn every_key_of_the_queue_manager_and_of_the_log_reaches_the_rules_and_the_log() {
    let text = "[queue_manager]\ndeadq = 'D'\nmaxmsgl = 11\nmaxumsgs = 12\nunit_bytes_max = 13\n\
                unit_age_max_s = 14\nmemory_bytes_max = 15\nindex_bytes_max = 16\n\
                imglogln = 17\nimgintvl = 18\nexpired_to_deadq = true\nexpiry_interval_s = 19\n\
                [[auto_define]]\npattern = 'P*'\nmodel = 'M'\n\
                [log]\nextent_bytes = 8388608\nlog_bytes_max = 67108864\n\
                reserve_bytes = 2097152\ncache_bytes = 21\nwrites_in_flight_max = 3\n";
    let config = Config::parse(text).unwrap();
    let rules = rules(&config);
    let bounds = [rules.message_bytes_max, rules.unit_bytes_max, rules.memory_bytes_max];
    assert_eq!(bounds, [11, 13, 15]);
    assert_eq!((rules.unit_messages_max, rules.index_bytes_max), (12, 16));
    let times = [rules.unit_age_max, rules.expiry_scan_interval];
    assert_eq!(times, [14, 19].map(Duration::from_secs));
    assert_eq!((rules.dead_letter_queue.as_str(), rules.expired_to_dead_letter), ("D", true));
    let defines: Vec<_> = rules.auto_define.iter().map(|it| (&*it.pattern, &*it.model)).collect();
    assert_eq!(defines, [("P*", "M")]);
    let log = options(&config);
    let bytes = [log.extent_bytes, log.log_bytes_max, log.reserve_bytes, log.cache_bytes as u64];
    assert_eq!(bytes, [8 << 20, 64 << 20, 2 << 20, 21]);
    assert_eq!(log.writes_in_flight_max, 3);
    assert_eq!(options(&Config::default()).log_bytes_max, u64::MAX, "0 is without a bound");
}
