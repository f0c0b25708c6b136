//! `[metrics]`: where figures can be scraped.

use std::net::SocketAddr;

use serde::{Deserialize, Deserializer};

use super::listen_address;

/// `[metrics]`
#[derive(Clone, Debug, Default, Deserialize, PartialEq)]
#[serde(default, deny_unknown_fields)]
pub struct MetricsConfig {
    /// Address and port at which Prometheus finds them, at `/metrics`; none: nowhere.
    #[serde(deserialize_with = "address_of")]
    pub address: Option<SocketAddr>,
    /// Let other machines read them. They have no login and no TLS.
    pub allow_plaintext: bool,
}

fn address_of<'de, D: Deserializer<'de>>(from: D) -> Result<Option<SocketAddr>, D::Error> {
    let text = String::deserialize(from)?;
    listen_address(&text).map(Some).map_err(serde::de::Error::custom)
}

impl MetricsConfig {
    /// Checks what must go together. `has_region`: there is another region.
    ///
    /// # Errors
    /// What is wrong, and what to do.
    pub(super) fn check(&self, has_region: bool) -> Result<(), String> {
        let Some(address) = self.address else { return Ok(()) };
        if !address.ip().is_loopback() && !self.allow_plaintext {
            return Err(format!(
                "metrics.address = '{address}': other machines would read the figures without a \
                 login and without TLS: metrics.allow_plaintext = true"
            ));
        }
        if !has_region {
            let why = "metrics.address: there are metrics of two regions only, and this \
                       configuration has no [group.recovery]";
            return Err(why.to_owned());
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn other_machines_read_metrics_only_if_that_is_allowed_and_there_must_be_some() {
        let of = |address: &str, allow_plaintext| MetricsConfig {
            address: Some(address.parse().unwrap()),
            allow_plaintext,
        };
        assert_eq!(MetricsConfig::default().check(false), Ok(()));
        assert_eq!(of("127.0.0.1:9157", false).check(true), Ok(()));
        assert!(of("127.0.0.1:9157", false).check(false).unwrap_err().contains("two regions"));
        assert!(of("0.0.0.0:9157", false).check(true).unwrap_err().contains("allow_plaintext"));
        assert_eq!(of("0.0.0.0:9157", true).check(true), Ok(()));
    }

    #[test]
    fn an_address_is_written_as_that_of_a_listener() {
        let config: MetricsConfig = toml::from_str("address = \"localhost:9157\"").unwrap();
        assert_eq!(config.address, Some("127.0.0.1:9157".parse().unwrap()));
        assert!(toml::from_str::<MetricsConfig>("address = \"9157\"").is_err());
    }
}
