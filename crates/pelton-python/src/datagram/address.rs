//! Python's addresses to the kernel's and back.
//!
//! What is spelled here is the usual case: a tuple whose host is a literal, a unix name. Anything
//! else (a host name, a family that only Python's socket module knows, a wrong type or number) is
//! left to that module, whose answer or exception then is the right one.

use std::borrow::Borrow;
use std::cell::RefCell;
use std::hash::{Hash, Hasher};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV4, SocketAddrV6};

use pelton::datagram::{Address, Cache, Family};

use crate::ffi::{BytesRef, Obj, Ref, Result};

/// How many peers an endpoint knows in each direction.
const MOST_PEERS: usize = 2048;

/// The largest flow label: 20 bits.
const LARGEST_FLOW: i64 = 0xf_ffff;

/// The peers used last.
///
/// A tuple of strings and numbers cannot change, so the object itself is the key to what it was
/// parsed to: as long as the cache holds it, no other object has its id.
pub(super) struct Peers {
    family: Family,
    targets: Cache<Identity, Address>,
    sources: Cache<Address, Ref>,
}

impl Peers {
    pub(super) fn new(family: Family) -> Self {
        let (targets, sources) = (Cache::new(MOST_PEERS), Cache::new(MOST_PEERS));
        Self { family, targets, sources }
    }

    /// The kernel's form of an address; `None` if it is not of the usual sort.
    #[inline]
    pub(super) fn target(&mut self, address: Obj<'_>) -> Option<Address> {
        match self.targets.get(&address.id()) {
            Some(target) => Some(*target),
            None => self.new_target(address),
        }
    }

    #[cold]
    fn new_target(&mut self, address: Obj<'_>) -> Option<Address> {
        let target = parse(address, self.family)?;
        // What goes for it are strings and numbers: no code runs.
        drop(self.targets.insert(Identity::of(address), target));
        Some(target)
    }

    /// Python's form of an address, if it was asked for of late.
    #[inline]
    pub(super) fn source(&mut self, address: &Address) -> Option<Ref> {
        self.sources.get(address).cloned()
    }

    /// Remembers what [`spell`] has made of an address.
    fn add_source(&mut self, address: &Address, source: &Ref) {
        if !address.is_none() {
            drop(self.sources.insert(*address, source.clone()));
            // An answer goes to this very object.
            drop(self.targets.insert(Identity::of(source.obj()), *address));
        }
    }
}

/// Python's form of an address. Making it may run the collector, so nothing is borrowed meanwhile.
#[inline]
pub(super) fn source(peers: &RefCell<Peers>, address: &Address) -> Result<Ref> {
    let known = peers.borrow_mut().source(address);
    match known {
        Some(source) => Ok(source),
        None => new_source(peers, address),
    }
}

#[cold]
fn new_source(peers: &RefCell<Peers>, address: &Address) -> Result<Ref> {
    let source = spell(address)?;
    peers.borrow_mut().add_source(address, &source);
    Ok(source)
}

/// An object by its identity.
#[derive(Clone)]
struct Identity {
    id: usize,
    /// Keeps the id from being given to another object.
    _object: Ref,
}

impl Identity {
    fn of(object: Obj<'_>) -> Self {
        Self { id: object.id(), _object: object.to_ref() }
    }
}

impl Borrow<usize> for Identity {
    fn borrow(&self) -> &usize {
        &self.id
    }
}

impl PartialEq for Identity {
    fn eq(&self, other: &Self) -> bool {
        self.id == other.id
    }
}

impl Eq for Identity {}

impl Hash for Identity {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.id.hash(state);
    }
}

fn parse(address: Obj<'_>, family: Family) -> Option<Address> {
    match family {
        Family::Inet => parse_ip(address, 2..=2, |host, port, _, _| {
            Some(SocketAddrV4::new(host.parse::<Ipv4Addr>().ok()?, port).into())
        }),
        Family::Inet6 => parse_ip(address, 2..=4, |host, port, flow, scope| {
            Some(SocketAddrV6::new(host.parse::<Ipv6Addr>().ok()?, port, flow, scope).into())
        }),
        Family::Unix => match (address.ascii(), BytesRef::new(address)) {
            (Some(name), _) => Address::unix(name.as_bytes()),
            (None, Some(name)) => Address::unix(name.as_ref()),
            (None, None) => None,
        },
        _ => None,
    }
}

/// `(host, port, flow, scope)`, as many of them as there may be, all of exact types.
fn parse_ip(
    address: Obj<'_>,
    items: std::ops::RangeInclusive<usize>,
    make: impl FnOnce(&str, u16, u32, u32) -> Option<Address>,
) -> Option<Address> {
    if !address.is_exact_tuple() || !items.contains(&address.tuple_len()) {
        return None;
    }
    let host = address.tuple_item(0).ok()?;
    let port = u16::try_from(number(address, 1, i64::from(u16::MAX))?).ok()?;
    let flow = number(address, 2, LARGEST_FLOW)?;
    let scope = number(address, 3, i64::from(u32::MAX))?;
    make(host.obj().ascii()?, port, flow, scope)
}

/// A number of a tuple, 0 where the tuple ends before; `None` if it is out of range.
fn number(tuple: Obj<'_>, index: usize, most: i64) -> Option<u32> {
    if index >= tuple.tuple_len() {
        return Some(0);
    }
    let item = tuple.tuple_item(index).ok()?;
    if !item.obj().is_exact_int() {
        return None;
    }
    match item.obj().to_i64() {
        Ok(number) if (0..=most).contains(&number) => u32::try_from(number).ok(),
        Ok(_) => None,
        Err(raised) => {
            raised.discard(); // it does not fit 64 bits
            None
        }
    }
}

fn spell(address: &Address) -> Result<Ref> {
    if let Some(name) = address.unix_name() {
        // An abstract name is bytes, a path is text.
        return if name.first() == Some(&0) { Ref::bytes(name) } else { Ref::path(name) };
    }
    match address.ip() {
        Some(SocketAddr::V4(v4)) => {
            let host = Ref::str(&v4.ip().to_string())?;
            Ref::tuple(&[host.obj(), Ref::int(v4.port().into())?.obj()])
        }
        Some(SocketAddr::V6(v6)) => {
            let host = Ref::str(&host_text(IpAddr::V6(*v6.ip())))?;
            let port = Ref::int(v6.port().into())?;
            let (flow, scope) = (Ref::int(v6.flowinfo().into())?, Ref::int(v6.scope_id().into())?);
            Ref::tuple(&[host.obj(), port.obj(), flow.obj(), scope.obj()])
        }
        None => Ok(Ref::none()),
    }
}

/// As the C library's `inet_ntop`, which shows the last half of `::1.2.3.4` as IPv4; Rust does so
/// for mapped addresses only.
fn host_text(ip: IpAddr) -> String {
    match ip {
        IpAddr::V6(v6) => match v6.segments() {
            [0, 0, 0, 0, 0, 0, high, _] if high != 0 => {
                let [.., a, b, c, d] = v6.octets();
                format!("::{}", Ipv4Addr::new(a, b, c, d))
            }
            _ => v6.to_string(),
        },
        IpAddr::V4(v4) => v4.to_string(),
    }
}
