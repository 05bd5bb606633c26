//! What a client may send: names, queries, header fields, JSON bodies, framing. Refused or read, never a panic.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| weir::http::fuzzing::request(data));
