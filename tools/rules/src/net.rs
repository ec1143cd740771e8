// SPDX-License-Identifier: GPL-2.0-only

//! The addresses and ports of a rule.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// The addresses of a rule.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Network {
    Any,
    V4 { address: Ipv4Addr, prefix: u8 },
    V6 { address: Ipv6Addr, prefix: u8 },
}

/// Returns the first `prefix` of 32 bits.
fn head4(address: Ipv4Addr, prefix: u8) -> u32 {
    let below = 32 - u32::from(prefix.min(32));
    address.to_bits().checked_shr(below).unwrap_or(0)
}

/// Returns the first `prefix` of 128 bits.
fn head6(address: Ipv6Addr, prefix: u8) -> u128 {
    let below = 128 - u32::from(prefix.min(128));
    address.to_bits().checked_shr(below).unwrap_or(0)
}

impl Network {
    /// Returns true if the network contains an address. IPv4 addresses written as IPv6 count as
    /// IPv4.
    pub fn contains(&self, address: IpAddr) -> bool {
        match (*self, address.to_canonical()) {
            (Network::Any, _) => true,
            (Network::V4 { address, prefix }, IpAddr::V4(a)) => {
                head4(address, prefix) == head4(a, prefix)
            }
            (Network::V6 { address, prefix }, IpAddr::V6(a)) => {
                head6(address, prefix) == head6(a, prefix)
            }
            _ => false,
        }
    }

    /// Returns true if this network contains all addresses of the other.
    pub fn covers(&self, other: &Network) -> bool {
        match (*self, *other) {
            (Network::Any, _) => true,
            (Network::V4 { prefix, .. }, Network::V4 { address, prefix: p }) => {
                prefix <= p && self.contains(address.into())
            }
            (
                Network::V6 {
                    address: own,
                    prefix,
                },
                Network::V6 { address, prefix: p },
            ) => prefix <= p && head6(own, prefix) == head6(address, prefix),
            _ => false,
        }
    }
}

impl fmt::Display for Network {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Network::Any => f.write_str("*"),
            Network::V4 { address, prefix } => write!(f, "{address}/{prefix}"),
            Network::V6 { address, prefix } => write!(f, "{address}/{prefix}"),
        }
    }
}

/// The ports of a rule, both ends included.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ports {
    pub first: u16,
    pub last: u16,
}

impl Ports {
    pub const ANY: Ports = Ports {
        first: 0,
        last: u16::MAX,
    };

    pub fn contains(&self, port: u16) -> bool {
        (self.first..=self.last).contains(&port)
    }

    pub fn covers(&self, other: &Ports) -> bool {
        self.first <= other.first && other.last <= self.last
    }
}

impl fmt::Display for Ports {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            &Ports::ANY => f.write_str("*"),
            p if p.first == p.last => write!(f, "{}", p.first),
            p => write!(f, "{}-{}", p.first, p.last),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prefixes() {
        let net = |a: &str, prefix| match a.parse().unwrap() {
            IpAddr::V4(address) => Network::V4 { address, prefix },
            IpAddr::V6(address) => Network::V6 { address, prefix },
        };
        let has = |n: Network, a: &str| n.contains(a.parse().unwrap());
        assert!(has(net("10.0.0.1", 0), "255.255.255.255"));
        assert!(has(net("10.0.0.1", 31), "10.0.0.0") && !has(net("10.0.0.1", 32), "10.0.0.0"));
        assert!(!has(net("10.0.0.1", 0), "::1") && has(Network::Any, "::1"));
        assert!(has(net("fd77::", 16), "fd77:1::") && !has(net("fd77::", 17), "fd77:8000::"));
        assert!(has(net("::", 0), "ffff::") && !has(net("::", 0), "::ffff:1.2.3.4"));
        assert!(net("10.0.0.0", 8).covers(&net("10.9.0.0", 16)));
        assert!(!net("10.9.0.0", 16).covers(&net("10.0.0.0", 8)));
        assert!(!net("::", 0).covers(&net("10.0.0.0", 8)));
    }
}
