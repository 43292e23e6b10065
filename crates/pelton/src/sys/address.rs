//! The address of a datagram's peer, in the kernel's own form.

use std::fmt;
use std::hash::{Hash, Hasher};
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV4, SocketAddrV6};

/// The longest address of the families that are spelled here: `struct sockaddr_un`.
pub(crate) const LONGEST: usize = 110;

const FAMILY: usize = 2;
const INET: usize = 16;
const INET6: usize = 28;

/// The address of a peer as the kernel has it: IPv4, IPv6 or a unix name.
///
/// It is of one size, so that it can be copied, compared and hashed without the heap.
///
/// # Examples
///
/// ```
/// use std::net::SocketAddr;
/// use pelton::datagram::Address;
///
/// let peer: SocketAddr = "127.0.0.1:53".parse()?;
/// assert_eq!(Address::from(peer).ip(), Some(peer));
///
/// let name = Address::unix(b"\0hidden").ok_or("too long")?;
/// assert_eq!((name.ip(), name.unix_name()), (None, Some(b"\0hidden".as_slice())));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Copy)]
pub struct Address {
    /// Bytes of the address; 0 for a peer that has none.
    pub(super) len: u8,
    pub(super) bytes: [u8; LONGEST],
}

impl Address {
    /// The address of a peer that has none: an unnamed unix socket.
    pub const NONE: Self = Self { len: 0, bytes: [0; LONGEST] };

    /// A path, or an abstract name behind a leading zero byte; `None` if it does not fit.
    pub fn unix(name: &[u8]) -> Option<Self> {
        let abstract_name = name.first().is_none_or(|&first| first == 0);
        // A path ends with a zero byte that has to fit too.
        let most = LONGEST - FAMILY - usize::from(!abstract_name);
        if name.len() > most {
            return None;
        }
        let mut address = Self::family(libc::AF_UNIX, FAMILY + name.len());
        address.bytes[FAMILY..FAMILY + name.len()].copy_from_slice(name);
        Some(address)
    }

    fn family(family: i32, len: usize) -> Self {
        let mut address = Self { len: len as u8, ..Self::NONE };
        address.bytes[..FAMILY].copy_from_slice(&(family as u16).to_ne_bytes());
        address
    }

    fn is_family(&self, family: i32, len: usize) -> bool {
        usize::from(self.len) >= len && self.bytes[..FAMILY] == (family as u16).to_ne_bytes()
    }

    /// The address as the kernel wants it.
    pub(crate) fn as_bytes(&self) -> &[u8] {
        &self.bytes[..self.len.into()]
    }

    /// Whether the peer has no address.
    pub const fn is_none(&self) -> bool {
        self.len == 0
    }

    /// The IP address and port, if this is one of IPv4 or IPv6.
    pub fn ip(&self) -> Option<SocketAddr> {
        let port = u16::from_be_bytes(self.field(2));
        if self.is_family(libc::AF_INET, INET) {
            let ip = Ipv4Addr::from(self.field::<4>(4));
            return Some(SocketAddrV4::new(ip, port).into());
        }
        if self.is_family(libc::AF_INET6, INET6) {
            let flow = u32::from_be_bytes(self.field(4));
            let ip = Ipv6Addr::from(self.field::<16>(8));
            let scope = u32::from_ne_bytes(self.field(24));
            return Some(SocketAddrV6::new(ip, port, flow, scope).into());
        }
        None
    }

    /// The name, if this is one of a unix socket: a path, or an abstract name behind a zero byte.
    pub fn unix_name(&self) -> Option<&[u8]> {
        if !self.is_family(libc::AF_UNIX, FAMILY) {
            return None;
        }
        let name = &self.bytes[FAMILY..self.len.into()];
        match name.iter().position(|&byte| byte == 0) {
            Some(end) if end > 0 => Some(&name[..end]),
            _ => Some(name),
        }
    }

    fn field<const N: usize>(&self, at: usize) -> [u8; N] {
        let mut field = [0; N];
        field.copy_from_slice(&self.bytes[at..at + N]);
        field
    }

    fn set(&mut self, at: usize, field: &[u8]) {
        self.bytes[at..at + field.len()].copy_from_slice(field);
    }
}

impl From<SocketAddr> for Address {
    fn from(address: SocketAddr) -> Self {
        match address {
            SocketAddr::V4(v4) => v4.into(),
            SocketAddr::V6(v6) => v6.into(),
        }
    }
}

impl From<SocketAddrV4> for Address {
    fn from(v4: SocketAddrV4) -> Self {
        let mut address = Self::family(libc::AF_INET, INET);
        address.set(2, &v4.port().to_be_bytes());
        address.set(4, &v4.ip().octets());
        address
    }
}

impl From<SocketAddrV6> for Address {
    fn from(v6: SocketAddrV6) -> Self {
        let mut address = Self::family(libc::AF_INET6, INET6);
        address.set(2, &v6.port().to_be_bytes());
        address.set(4, &v6.flowinfo().to_be_bytes());
        address.set(8, &v6.ip().octets());
        address.set(24, &v6.scope_id().to_ne_bytes());
        address
    }
}

impl PartialEq for Address {
    fn eq(&self, other: &Self) -> bool {
        self.as_bytes() == other.as_bytes()
    }
}

impl Eq for Address {}

impl Hash for Address {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.as_bytes().hash(state);
    }
}

impl fmt::Debug for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.ip(), self.unix_name()) {
            (Some(ip), _) => write!(f, "Address({ip})"),
            (None, Some(name)) => write!(f, "Address({:?})", name.escape_ascii().to_string()),
            (None, None) => write!(f, "Address({:?})", self.as_bytes()),
        }
    }
}
