//! The kernel's facilities, one a file; all `unsafe` of the crate stands here.
//!
//! What another kernel would have to provide under the same names:
//!
//! | file | names |
//! |---|---|
//! | `address` | `Address` |
//! | `datagram` | `Head`, `Message`, `knows_segments`, `receive_coalesced`, `receive_many`, `send`, `send_many` |
//! | `epoll` | `Epoll`, `RawEvent`, `Watched` |
//! | `eventfd` | `EventFd` |
//! | `fork` | `prepare`, `generation` |
//! | `pipe` | `read_uninit`, `write`, `write_gathered` |
//! | `socket` | `recv`, `recv_uninit`, `send`, `send_gathered`, `shutdown_write`, `accept` |

pub(crate) mod address;
pub(crate) mod datagram;
pub(crate) mod epoll;
pub(crate) mod eventfd;
pub(crate) mod fork;
pub(crate) mod pipe;
pub(crate) mod socket;
