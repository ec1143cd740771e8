// SPDX-License-Identifier: GPL-2.0-only

//! Finds the network device of an address, in the caller's network namespace: sysfs may show
//! another namespace.

use crate::sock::{self, Kind};
use std::ffi::CStr;
use std::net::{IpAddr, Ipv4Addr};
use std::os::fd::AsRawFd;
use std::ptr;

/// Network device: name, whether it is up and has a carrier, MTU.
pub struct Link {
    pub name: String,
    pub running: bool,
    pub mtu: u32,
}

impl Link {
    /// Returns `None` if no device has the address.
    pub fn of(address: IpAddr) -> Option<Self> {
        let (name, flags, _) = addresses().into_iter().find(|a| a.2 == address)?;
        let up = (libc::IFF_UP | libc::IFF_RUNNING) as u32;
        Some(Link {
            running: flags & up == up,
            mtu: mtu(&name).unwrap_or(0),
            name,
        })
    }
}

/// Returns the device, its flags (IFF_UP) and the address, for each address of the namespace.
pub fn addresses() -> Vec<(String, u32, IpAddr)> {
    let mut list = ptr::null_mut();
    // SAFETY: the call fills the pointer.
    if unsafe { libc::getifaddrs(&mut list) } != 0 {
        return vec![];
    }
    let (mut found, mut at) = (vec![], list);
    // SAFETY: getifaddrs made the list, which is freed only below.
    while let Some(one) = unsafe { at.as_ref() } {
        if let Some(address) = ip(one.ifa_addr) {
            // SAFETY: the name ends with 0.
            let name = unsafe { CStr::from_ptr(one.ifa_name) };
            found.push((name.to_string_lossy().into_owned(), one.ifa_flags, address));
        }
        at = one.ifa_next;
    }
    // SAFETY: the list is not used after this.
    unsafe { libc::freeifaddrs(list) };
    found
}

fn ip(address: *const libc::sockaddr) -> Option<IpAddr> {
    // SAFETY: the pointer is null, or to an address of its own family.
    unsafe {
        match i32::from(address.as_ref()?.sa_family) {
            libc::AF_INET => {
                let a = &*address.cast::<libc::sockaddr_in>();
                Some(Ipv4Addr::from(a.sin_addr.s_addr.to_ne_bytes()).into())
            }
            libc::AF_INET6 => {
                let a = &*address.cast::<libc::sockaddr_in6>();
                Some(IpAddr::from(a.sin6_addr.s6_addr))
            }
            _ => None,
        }
    }
}

fn mtu(name: &str) -> Option<u32> {
    let socket = sock::new(Kind::Tcp, Ipv4Addr::LOCALHOST.into()).ok()?;
    // SAFETY: `ifreq` consists of numbers. The ioctl reads the name, which ends with 0, and fills
    // the other fields.
    unsafe {
        let mut request: libc::ifreq = std::mem::zeroed();
        let room = request.ifr_name.len() - 1;
        for (to, from) in request.ifr_name.iter_mut().zip(name.bytes().take(room)) {
            *to = from as libc::c_char;
        }
        let done = libc::ioctl(socket.as_raw_fd(), libc::SIOCGIFMTU, &mut request);
        (done == 0).then_some(request.ifr_ifru.ifru_mtu as u32)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_loopback() {
        let link = Link::of(Ipv4Addr::LOCALHOST.into()).unwrap();
        assert_eq!((link.name.as_str(), link.running), ("lo", true));
        assert!(link.mtu > 1000);
        assert!(Link::of("203.0.113.7".parse().unwrap()).is_none());
    }
}
