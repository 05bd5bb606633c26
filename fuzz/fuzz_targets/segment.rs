//! Segment headers and dedupe states are refused or read, never a panic.
#![no_main]

use libfuzzer_sys::fuzz_target;
use weir::storage::record::Dedupe;
use weir::storage::segment::read_header;

fuzz_target!(|data: &[u8]| {
    drop(read_header(data));
    if let Ok(dedupe) = Dedupe::decode(data) {
        let mut bytes = Vec::new();
        dedupe.encode(&mut bytes);
        assert_eq!(Dedupe::decode(&bytes).expect("what was encoded decodes"), dedupe);
    }
});
