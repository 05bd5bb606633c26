//! Chance and time of the whole process, from a seed and a hand: what libraries ask the system for past all doors.
//!
//! Invariant: a program that links this has `getrandom` and `clock_gettime` from here. Until [`take_over`] they are the
//! system's; from then on every byte of chance follows from the seed, in the order in which it is asked for, and every
//! clock stands at what [`tell`] said last. That is deterministic only for a program of one thread. Hash maps draw their
//! order with it, openraft its time-outs; HTTP/2 reads the clock.
//!
//! `mad-turmoil` does the same, and was not taken: its clocks stand at 1970 until a simulation runs, and a library that
//! measures the processor's clock before `main` (fastant, under foyer) then waits for ever. Linked by `weir-sim`'s
//! program alone.

use std::ffi::{c_int, c_uint, c_void};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use rustix::time::{ClockId, clock_gettime as system_time};

static TAKEN: AtomicBool = AtomicBool::new(false);
static CHANCE: AtomicU64 = AtomicU64::new(0);
static NOW_NS: AtomicU64 = AtomicU64::new(0);

/// From now on chance follows from `seed`, and clocks stand still but for [`tell`].
pub fn take_over(seed: u64) {
    CHANCE.store(seed, Ordering::SeqCst);
    TAKEN.store(true, Ordering::SeqCst);
}

/// It is so many nanoseconds after the beginning of time.
pub fn tell(now_ns: u64) {
    NOW_NS.fetch_max(now_ns, Ordering::SeqCst);
}

/// splitmix64.
fn draw() -> u64 {
    const STEP: u64 = 0x9E37_79B9_7F4A_7C15;
    let mut z = CHANCE.fetch_add(STEP, Ordering::SeqCst).wrapping_add(STEP);
    z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    z ^ (z >> 31)
}

/// libc's.
///
/// # Safety
/// `buffer` points to `length` bytes that may be written.
#[unsafe(no_mangle)]
#[inline(never)]
pub unsafe extern "C" fn getrandom(buffer: *mut c_void, length: usize, flags: c_uint) -> isize {
    if buffer.is_null() {
        return -1;
    }
    // SAFETY: the caller's promise.
    let bytes = unsafe { std::slice::from_raw_parts_mut(buffer.cast::<u8>(), length) };
    if TAKEN.load(Ordering::SeqCst) {
        for piece in bytes.chunks_mut(8) {
            piece.copy_from_slice(&draw().to_le_bytes()[..piece.len()]);
        }
        return isize::try_from(length).unwrap_or(isize::MAX);
    }
    let flags = rustix::rand::GetRandomFlags::from_bits_retain(flags);
    match rustix::rand::getrandom(bytes, flags) {
        Ok(n) => isize::try_from(n).unwrap_or(isize::MAX),
        Err(_) => -1,
    }
}

/// libc's, on 64-bit Linux.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct Timespec {
    seconds: i64,
    nanoseconds: i64,
}

/// libc's.
///
/// # Safety
/// `into` points to a timespec that may be written.
#[unsafe(no_mangle)]
#[inline(never)]
pub unsafe extern "C" fn clock_gettime(clock: c_int, into: *mut Timespec) -> c_int {
    let id = match clock {
        0 => ClockId::Realtime,
        1 => ClockId::Monotonic,
        2 => ClockId::ProcessCPUTime,
        3 => ClockId::ThreadCPUTime,
        4 => ClockId::MonotonicRaw,
        5 => ClockId::RealtimeCoarse,
        6 => ClockId::MonotonicCoarse,
        7 => ClockId::Boottime,
        _ => return -1,
    };
    let time = if TAKEN.load(Ordering::SeqCst) {
        let now = NOW_NS.load(Ordering::SeqCst);
        let part = |n: u64| i64::try_from(n).unwrap_or(i64::MAX);
        Timespec { seconds: part(now / 1_000_000_000), nanoseconds: part(now % 1_000_000_000) }
    } else {
        let now = system_time(id);
        Timespec { seconds: now.tv_sec, nanoseconds: now.tv_nsec }
    };
    // SAFETY: the caller's promise.
    unsafe { into.write(time) };
    0
}
