//! Counts the heap requests of a whole process: Python's, OpenSSL's and pelton's alike.
//!
//! `LD_PRELOAD=libpelton_heapspy.so program` puts these functions before glibc's own, which do the
//! work under their other names. The program reads the counts with [`heapspy_counts`].
//!
//! Objects of up to 512 bytes that CPython takes from its own pools are no heap requests.

use std::ffi::{c_int, c_void};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// A request of this size or more is glibc's to map, unmap and move, page by page.
const BIG: usize = 128 * 1024;

static REQUESTS: AtomicU64 = AtomicU64::new(0);
static BIG_REQUESTS: AtomicU64 = AtomicU64::new(0);
static BYTES: AtomicU64 = AtomicU64::new(0);

/// The counts since the process began.
#[repr(C)]
#[derive(Debug)]
pub struct Counts {
    /// Calls of malloc, calloc, realloc and the aligned ones.
    pub requests: u64,
    /// Those for 128 KiB or more.
    pub big: u64,
    /// What was asked for in all of them.
    pub bytes: u64,
}

/// The counts since the process began.
// SAFETY: no other library has a function of this name.
#[unsafe(no_mangle)]
pub extern "C" fn heapspy_counts() -> Counts {
    Counts {
        requests: REQUESTS.load(Relaxed),
        big: BIG_REQUESTS.load(Relaxed),
        bytes: BYTES.load(Relaxed),
    }
}

fn count(size: usize) {
    REQUESTS.fetch_add(1, Relaxed);
    BYTES.fetch_add(size as u64, Relaxed);
    if size >= BIG {
        BIG_REQUESTS.fetch_add(1, Relaxed);
    }
}

// SAFETY: glibc exports these with these types; they are its allocator under another name.
unsafe extern "C" {
    fn __libc_malloc(size: usize) -> *mut c_void;
    fn __libc_calloc(count: usize, size: usize) -> *mut c_void;
    fn __libc_realloc(block: *mut c_void, size: usize) -> *mut c_void;
    fn __libc_memalign(alignment: usize, size: usize) -> *mut c_void;
}

/// `malloc(3)`.
// SAFETY: it takes the place of glibc's on purpose, and does what glibc's does.
#[unsafe(no_mangle)]
pub extern "C" fn malloc(size: usize) -> *mut c_void {
    count(size);
    // SAFETY: any size may be asked for.
    unsafe { __libc_malloc(size) }
}

/// `calloc(3)`.
// SAFETY: it takes the place of glibc's on purpose, and does what glibc's does.
#[unsafe(no_mangle)]
pub extern "C" fn calloc(number: usize, size: usize) -> *mut c_void {
    count(number.saturating_mul(size));
    // SAFETY: any number and size may be asked for.
    unsafe { __libc_calloc(number, size) }
}

/// `realloc(3)`.
///
/// # Safety
///
/// As glibc's: `block` is null or a block of this heap, which is not used afterwards.
// SAFETY: it takes the place of glibc's on purpose, and does what glibc's does.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn realloc(block: *mut c_void, size: usize) -> *mut c_void {
    count(size);
    // SAFETY: the caller keeps realloc's contract.
    unsafe { __libc_realloc(block, size) }
}

/// `memalign(3)`.
// SAFETY: it takes the place of glibc's on purpose, and does what glibc's does.
#[unsafe(no_mangle)]
pub extern "C" fn memalign(alignment: usize, size: usize) -> *mut c_void {
    count(size);
    // SAFETY: a wrong alignment is refused there.
    unsafe { __libc_memalign(alignment, size) }
}

/// `aligned_alloc(3)`.
// SAFETY: it takes the place of glibc's on purpose, and does what glibc's does.
#[unsafe(no_mangle)]
pub extern "C" fn aligned_alloc(alignment: usize, size: usize) -> *mut c_void {
    memalign(alignment, size)
}

/// `posix_memalign(3)`.
///
/// # Safety
///
/// `out` can be written to.
// SAFETY: it takes the place of glibc's on purpose, and does what glibc's does.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn posix_memalign(
    out: *mut *mut c_void,
    alignment: usize,
    size: usize,
) -> c_int {
    const EINVAL: c_int = 22;
    const ENOMEM: c_int = 12;
    if !alignment.is_power_of_two() || !alignment.is_multiple_of(size_of::<*mut c_void>()) {
        return EINVAL;
    }
    let block = memalign(alignment, size);
    if block.is_null() {
        return ENOMEM;
    }
    // SAFETY: the caller gave a place to write to.
    unsafe { out.write(block) };
    0
}
