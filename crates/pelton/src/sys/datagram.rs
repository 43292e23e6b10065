//! Datagram sockets: send and receive, one datagram or many in one call, and the two offloads of
//! UDP (`UDP_SEGMENT`, `UDP_GRO`; Linux `Documentation/networking/segmentation-offloads.rst` and
//! `udp(7)`).
//!
//! Every call is non-blocking by its flags, never raises `SIGPIPE`, and is made again when a
//! signal interrupts it.

use std::ffi::{c_int, c_void};
use std::io::{self, IoSlice};
use std::mem::{MaybeUninit, size_of, zeroed};
use std::os::fd::{AsRawFd, BorrowedFd};
use std::ptr;

use super::address::{Address, LONGEST};

/// The most datagrams that one call sends, and the most segments of one offloaded send
/// (`UDP_MAX_SEGMENTS` of the oldest kernels that know it).
pub(crate) const MOST_SENT: usize = 64;
/// The most messages that one call receives.
pub(crate) const MOST_RECEIVED: usize = 16;

const SEND: c_int = libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL;

/// One message to send: one datagram, or a run of them that the kernel cuts apart.
pub(crate) struct Message<'a> {
    /// [`Address::NONE`] on a connected socket.
    pub(crate) to: &'a Address,
    pub(crate) slices: &'a [IoSlice<'a>],
    /// The size at which the kernel cuts; 0 for one datagram.
    pub(crate) segment: u16,
}

/// What was received into one slot.
#[derive(Clone, Debug)]
pub(crate) struct Head {
    pub(crate) from: Address,
    /// Bytes in the slot.
    pub(crate) len: usize,
    /// The size of each datagram in the slot, the last one's excepted; 0 for one datagram.
    pub(crate) segment: usize,
    /// Whether the datagram was longer than the slot.
    pub(crate) truncated: bool,
}

impl Head {
    pub(crate) const EMPTY: Self =
        Self { from: Address::NONE, len: 0, segment: 0, truncated: false };
}

/// Room for one control message that holds an integer.
type SendControl = [u64; 4];
/// Room for what the socket's owner may have asked for beside ours: time stamps, interface.
type ReceiveControl = [u64; 32];

/// Sends one datagram; false when the kernel takes none now.
#[inline]
#[allow(unsafe_code)]
pub(crate) fn send(fd: BorrowedFd<'_>, to: &Address, bytes: &[u8]) -> io::Result<bool> {
    let name = to.as_bytes();
    let address = if name.is_empty() { ptr::null() } else { name.as_ptr().cast() };
    loop {
        // SAFETY: pointers and lengths describe live memory, or null for no address.
        let sent = unsafe {
            libc::sendto(
                fd.as_raw_fd(),
                bytes.as_ptr().cast(),
                bytes.len(),
                SEND,
                address,
                name.len() as libc::socklen_t,
            )
        };
        match taken(sent)? {
            Answer::Count(_) => return Ok(true),
            Answer::WouldBlock => return Ok(false),
            Answer::Again => {}
        }
    }
}

/// Sends the first of `messages`, at most [`MOST_SENT`], in one call; how many the kernel took, 0
/// when it takes none now.
///
/// An error is that of the first message. One of a later message makes the answer shorter, and
/// shows when that message comes first, if it is still there by then: a pending error of the
/// socket is not. So a connected socket sends one message a call.
#[allow(unsafe_code)]
pub(crate) fn send_many<'a>(
    fd: BorrowedFd<'_>,
    messages: impl Iterator<Item = Message<'a>>,
) -> io::Result<usize> {
    let mut headers = [const { MaybeUninit::<libc::mmsghdr>::uninit() }; MOST_SENT];
    let mut controls = [const { MaybeUninit::<SendControl>::uninit() }; MOST_SENT];
    let mut count = 0;
    for ((message, header), control) in messages.zip(&mut headers).zip(&mut controls) {
        header.write(send_header(&message, control.write([0; 4])));
        count += 1;
    }
    loop {
        // SAFETY: the first `count` headers are written, and what they point at (names, slices,
        // control messages) outlives the call, which changes none of it.
        let sent = unsafe {
            libc::sendmmsg(fd.as_raw_fd(), headers.as_mut_ptr().cast(), count, SEND as _)
        };
        match taken(sent as isize)? {
            Answer::Count(count) => return Ok(count),
            Answer::WouldBlock => return Ok(0),
            Answer::Again => {}
        }
    }
}

#[allow(unsafe_code)]
fn send_header(message: &Message<'_>, control: &mut SendControl) -> libc::mmsghdr {
    // SAFETY: a C struct of integers and pointers, for which zero is a value.
    let mut header: libc::mmsghdr = unsafe { zeroed() };
    let name = message.to.as_bytes();
    if !name.is_empty() {
        header.msg_hdr.msg_name = name.as_ptr().cast_mut().cast();
        header.msg_hdr.msg_namelen = name.len() as libc::socklen_t;
    }
    // `IoSlice` has the layout of `iovec` on unix, by its documentation.
    header.msg_hdr.msg_iov = message.slices.as_ptr().cast_mut().cast();
    header.msg_hdr.msg_iovlen = message.slices.len() as _;
    if message.segment != 0 {
        // SAFETY: pure arithmetic on the size.
        let space = unsafe { libc::CMSG_SPACE(size_of::<u16>() as u32) };
        debug_assert!(space as usize <= size_of::<SendControl>(), "the control message fits");
        header.msg_hdr.msg_control = ptr::from_mut(control).cast();
        header.msg_hdr.msg_controllen = space as _;
        // SAFETY: the header has a control buffer with room for one message, aligned as such.
        unsafe {
            let first = libc::CMSG_FIRSTHDR(&raw const header.msg_hdr);
            (*first).cmsg_level = libc::SOL_UDP;
            (*first).cmsg_type = libc::UDP_SEGMENT;
            (*first).cmsg_len = libc::CMSG_LEN(size_of::<u16>() as u32) as _;
            libc::CMSG_DATA(first).cast::<u16>().write_unaligned(message.segment);
        }
    }
    header
}

/// Receives into slots of `slot` bytes each, one for each of `heads` and at most
/// [`MOST_RECEIVED`]; how many were filled, `None` when nothing is there now.
#[allow(unsafe_code)]
pub(crate) fn receive_many(
    fd: BorrowedFd<'_>,
    memory: &mut [u8],
    slot: usize,
    heads: &mut [Head],
) -> io::Result<Option<usize>> {
    let mut slices = [const { MaybeUninit::<libc::iovec>::uninit() }; MOST_RECEIVED];
    let mut headers = [const { MaybeUninit::<libc::mmsghdr>::uninit() }; MOST_RECEIVED];
    let mut controls = [const { MaybeUninit::<ReceiveControl>::uninit() }; MOST_RECEIVED];
    let mut count = 0;
    for (((head, room), slice), (header, control)) in heads
        .iter_mut()
        .zip(memory.chunks_exact_mut(slot))
        .zip(&mut slices)
        .zip(headers.iter_mut().zip(&mut controls))
    {
        let slice =
            slice.write(libc::iovec { iov_base: room.as_mut_ptr().cast(), iov_len: room.len() });
        // SAFETY: a C struct of integers and pointers, for which zero is a value.
        let header = header.write(unsafe { zeroed() });
        header.msg_hdr.msg_name = head.from.bytes.as_mut_ptr().cast();
        header.msg_hdr.msg_namelen = LONGEST as libc::socklen_t;
        header.msg_hdr.msg_iov = slice;
        header.msg_hdr.msg_iovlen = 1;
        header.msg_hdr.msg_control = control.as_mut_ptr().cast();
        header.msg_hdr.msg_controllen = size_of::<ReceiveControl>() as _;
        count += 1;
    }
    let filled = loop {
        // SAFETY: the first `count` headers are written; each points at a name, a slot and a
        // control buffer of its own, borrowed for the call, with their true sizes.
        let received = unsafe {
            libc::recvmmsg(
                fd.as_raw_fd(),
                headers.as_mut_ptr().cast(),
                count as _,
                libc::MSG_DONTWAIT as _,
                ptr::null_mut(),
            )
        };
        match taken(received as isize)? {
            Answer::Count(count) => break count,
            Answer::WouldBlock => return Ok(None),
            Answer::Again => {}
        }
    };
    for (head, header) in heads.iter_mut().zip(&headers[..filled]) {
        // SAFETY: written above, and completed by the call.
        let header = unsafe { header.assume_init_ref() };
        let name = header.msg_hdr.msg_namelen as usize;
        head.from.len = name.min(LONGEST) as u8;
        head.len = header.msg_len as usize;
        head.truncated = header.msg_hdr.msg_flags & libc::MSG_TRUNC != 0;
        head.segment = segment_of(&header.msg_hdr);
    }
    Ok(Some(filled))
}

/// The size of the datagrams that the kernel put together (`UDP_GRO`); 0 if it has not.
#[allow(unsafe_code)]
fn segment_of(header: &libc::msghdr) -> usize {
    // SAFETY: the control buffer and its length are as the kernel left them, and the buffer is
    // alive; so is each header that the walk gives, up to null.
    let mut next = unsafe { libc::CMSG_FIRSTHDR(header) };
    while !next.is_null() {
        // SAFETY: within the buffer, as above.
        let control = unsafe { &*next };
        if control.cmsg_level == libc::SOL_UDP && control.cmsg_type == libc::UDP_GRO {
            // SAFETY: the data of this message is one int (`udp_cmsg_recv` of the kernel).
            let size = unsafe { libc::CMSG_DATA(next).cast::<c_int>().read_unaligned() };
            return usize::try_from(size).unwrap_or(0);
        }
        // SAFETY: as above.
        next = unsafe { libc::CMSG_NXTHDR(header, next) };
    }
    0
}

/// Whether the kernel can cut a send into datagrams (Linux 4.18).
#[allow(unsafe_code)]
pub(crate) fn knows_segments(fd: BorrowedFd<'_>) -> bool {
    let mut value: c_int = 0;
    let mut size = size_of::<c_int>() as libc::socklen_t;
    // SAFETY: one int and its size, both alive for the call.
    let answer = unsafe {
        let value = ptr::from_mut(&mut value).cast::<c_void>();
        libc::getsockopt(fd.as_raw_fd(), libc::SOL_UDP, libc::UDP_SEGMENT, value, &raw mut size)
    };
    answer == 0
}

/// Asks the kernel to hand over what arrived together as one (Linux 5.0); whether it will.
#[allow(unsafe_code)]
pub(crate) fn receive_coalesced(fd: BorrowedFd<'_>) -> bool {
    let on: c_int = 1;
    let size = size_of::<c_int>() as libc::socklen_t;
    // SAFETY: one int of this size, alive for the call.
    let answer = unsafe {
        let on = ptr::from_ref(&on).cast::<c_void>();
        libc::setsockopt(fd.as_raw_fd(), libc::SOL_UDP, libc::UDP_GRO, on, size)
    };
    answer == 0
}

/// Turns checksums off, for tests: the kernel then refuses to cut sends apart.
#[cfg(all(test, not(loom)))]
#[allow(unsafe_code)]
pub(crate) fn set_no_check(fd: BorrowedFd<'_>) {
    let on: c_int = 1;
    let size = size_of::<c_int>() as libc::socklen_t;
    // SAFETY: one int of this size, alive for the call.
    let answer = unsafe {
        let on = ptr::from_ref(&on).cast::<c_void>();
        libc::setsockopt(fd.as_raw_fd(), libc::SOL_SOCKET, libc::SO_NO_CHECK, on, size)
    };
    assert_eq!(answer, 0);
}

enum Answer {
    Count(usize),
    WouldBlock,
    /// A signal came; the call is to be made again.
    Again,
}

#[inline]
fn taken(answer: isize) -> io::Result<Answer> {
    if let Ok(count) = usize::try_from(answer) {
        return Ok(Answer::Count(count));
    }
    let error = io::Error::last_os_error();
    match error.kind() {
        io::ErrorKind::WouldBlock => Ok(Answer::WouldBlock),
        io::ErrorKind::Interrupted => Ok(Answer::Again),
        _ => Err(error),
    }
}
