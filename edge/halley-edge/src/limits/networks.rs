//! Lists of addresses in the settings: networks such as `10.0.0.0/8`, or single addresses.

use std::net::IpAddr;

use ipnet::IpNet;

/// Networks in one list; more is a mistake, and each connection would pay for it.
const NETWORKS_MAX: usize = 256;

/// See the module.
#[derive(Clone, Debug, Default)]
pub struct Networks(Vec<IpNet>);

impl Networks {
    /// Reads a list whose members stand between commas; an empty text is an empty list.
    pub fn parse(text: &str) -> Option<Networks> {
        let members = text.split(',').map(str::trim);
        let empty = text.trim().is_empty();
        let networks = members.filter(|_| !empty).map(network).collect::<Option<Vec<_>>>()?;
        (networks.len() <= NETWORKS_MAX).then_some(Networks(networks))
    }

    /// Is the address in one of them?
    pub fn contain(&self, ip: IpAddr) -> bool {
        let ip = ip.to_canonical();
        self.0.iter().any(|network| network.contains(&ip))
    }
}

fn network(text: &str) -> Option<IpNet> {
    text.parse().ok().or_else(|| text.parse::<IpAddr>().ok().map(IpNet::from))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;

    #[test]
    fn a_list_of_networks() {
        let networks = Networks::parse("127.0.0.0/8, ::1,10.1.2.3, 2001:db8::/32").unwrap();
        let has = |ip: &str| networks.contain(ip.parse().unwrap());
        assert!(["127.0.0.1", "127.9.9.9", "::ffff:127.0.0.1", "::1"].into_iter().all(has));
        assert!(["10.1.2.3", "2001:db8:7::1"].into_iter().all(has));
        assert!(!["10.1.2.4", "128.0.0.1", "::2", "2001:db9::"].into_iter().any(has));
        assert!(!Networks::parse(" ").unwrap().contain("127.0.0.1".parse().unwrap()));
        for bad in ["localhost", "10.0.0.0/33", "10.0.0.1,", ",", "10.0.0.0/8 ::1", "1.2.3"] {
            assert!(Networks::parse(bad).is_none(), "{bad}");
        }
    }
}
