//! `[group.floating]`: the address that goes with the active instance.
//!
//! Not here: how it gets on an interface (`floating`).

use std::fmt;
use std::net::IpAddr;
use std::str::FromStr;
use std::time::Duration;

use serde::Deserialize;

use super::within;

/// Bytes of an interface's name (Linux, IFNAMSIZ without the end).
const INTERFACE_BYTES_MAX: usize = 15;

/// `[group.floating]`
#[derive(Clone, Debug, Deserialize, PartialEq)]
#[serde(deny_unknown_fields)]
pub struct FloatingConfig {
    /// The address, and how many bits of it name its network: `"10.0.0.50/24"`.
    pub address: FloatingAddress,
    /// The interface that gets it.
    pub interface: String,
    /// How often it is announced, 100 ms apart.
    #[serde(default = "announce_count")]
    pub announce_count: u32,
    /// Seconds after which the kernel takes the address away by itself unless the active instance
    /// says that it is still there.
    #[serde(default = "lease_s")]
    pub lease_s: u32,
}

/// An address in its network.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq)]
#[serde(try_from = "String")]
pub struct FloatingAddress {
    /// The address.
    pub ip: IpAddr,
    /// Bits that name the network: 1 to 32, or to 128 for IPv6.
    pub prefix: u8,
}

impl fmt::Display for FloatingAddress {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{}/{}", self.ip, self.prefix)
    }
}

impl FromStr for FloatingAddress {
    type Err = String;

    fn from_str(text: &str) -> Result<FloatingAddress, String> {
        let wrong = |why: &str| format!("group.floating.address = '{text}': {why}");
        let parts = text.split_once('/');
        let (ip, prefix) = parts.ok_or_else(|| wrong("must be address/bits, as 10.0.0.50/24"))?;
        let ip: IpAddr = ip.parse().map_err(|_| wrong("the part before '/' is not an address"))?;
        let most = if ip.is_ipv4() { 32 } else { 128 };
        let prefix: Option<u8> = prefix.parse().ok().filter(|bits| (1..=most).contains(bits));
        let prefix = prefix.ok_or_else(|| wrong(&format!("the bits must be 1 to {most}")))?;
        let broadcast = matches!(ip, IpAddr::V4(ip) if ip.is_broadcast());
        let link_local = matches!(ip, IpAddr::V6(ip) if ip.is_unicast_link_local());
        if ip.is_unspecified() || ip.is_loopback() || ip.is_multicast() || broadcast || link_local {
            return Err(wrong("clients on other machines cannot reach such an address"));
        }
        Ok(FloatingAddress { ip, prefix })
    }
}

impl TryFrom<String> for FloatingAddress {
    type Error = String;

    fn try_from(text: String) -> Result<FloatingAddress, String> {
        text.parse()
    }
}

fn announce_count() -> u32 {
    3
}

fn lease_s() -> u32 {
    5
}

impl FloatingConfig {
    /// See `lease_s`.
    #[must_use]
    pub fn lease(&self) -> Duration {
        Duration::from_secs(u64::from(self.lease_s))
    }

    /// Checks ranges and the name of the interface.
    ///
    /// # Errors
    /// The first thing that is wrong.
    pub(super) fn check(&self) -> Result<(), String> {
        let name = &self.interface;
        let fits = |letter: char| letter.is_ascii_graphic() && letter != '/' && letter != ':';
        if name.is_empty() || name.len() > INTERFACE_BYTES_MAX || !name.chars().all(fits) {
            return Err(format!(
                "group.floating.interface = '{name}': must be the name of an interface, 1 to \
                 {INTERFACE_BYTES_MAX} bytes, as `ip link` shows it"
            ));
        }
        within("group.floating.announce_count", u64::from(self.announce_count), 1, 100)?;
        within("group.floating.lease_s", u64::from(self.lease_s), 2, 3_600)
    }
}

#[cfg(test)]
mod tests {
    use super::super::Config;

    fn text(floating: &str) -> String {
        let mut text = String::from(
            "[group]\nname = \"G\"\ninstance = \"a\"\ncertificate = \"a.pem\"\nprivate_key = \"k.pem\"\n\
             authorities = \"c.pem\"\npreferred_location = \"b\"\n",
        );
        for name in ["a", "b", "c"] {
            text.push_str(&format!(
                "[[group.member]]\nname = \"{name}\"\naddress = \"{name}:1\"\n"
            ));
        }
        text.push_str(&format!("[group.floating]\n{floating}\n"));
        text
    }

    #[test]
    fn a_floating_address_has_its_defaults() {
        let keys = "address = \"10.0.0.50/24\"\ninterface = \"eth0\"";
        let floating = Config::parse(&text(keys)).unwrap().group.unwrap().floating.unwrap();
        assert_eq!(floating.address.to_string(), "10.0.0.50/24");
        assert_eq!((floating.announce_count, floating.lease_s), (3, 5));
        let keys = "address = \"fd00::50/64\"\ninterface = \"eth0\"\nlease_s = 2";
        let floating = Config::parse(&text(keys)).unwrap().group.unwrap().floating.unwrap();
        assert_eq!((floating.address.prefix, floating.lease().as_millis()), (64, 2_000));
    }

    #[test]
    fn a_floating_address_that_cannot_work_is_refused() {
        let of = |address: &str| format!("address = \"{address}\"\ninterface = \"eth0\"");
        let on = |name: &str| format!("address = \"10.0.0.5/24\"\ninterface = \"{name}\"");
        for (keys, why) in [
            (of("10.0.0.50"), "must be address/bits"),
            (of("10.0.0.50/33"), "must be 1 to 32"),
            (of("10.0.0.50/0"), "must be 1 to 32"),
            (of("fd00::1/129"), "must be 1 to 128"),
            (of("example.org/24"), "is not an address"),
            (of("127.0.0.1/8"), "cannot reach"),
            (of("fe80::1/64"), "cannot reach"),
            (of("224.0.0.1/4"), "cannot reach"),
            (on(""), "name of an interface"),
            (on("a-name-too-long0"), "name of an interface"),
            (on("eth0:1"), "name of an interface"),
            (format!("{}\nannounce_count = 0", on("eth0")), "must be 1 to 100"),
            (format!("{}\nlease_s = 1", on("eth0")), "must be 2 to 3600"),
            (format!("{}\nlease = 1", on("eth0")), "did you mean"),
            ("interface = \"eth0\"".to_owned(), "missing field"),
        ] {
            let refusal = Config::parse(&text(&keys)).unwrap_err().to_string();
            assert!(refusal.contains(why), "{keys}: {refusal}");
        }
    }
}
