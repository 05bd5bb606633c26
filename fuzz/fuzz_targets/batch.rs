//! A log entry that decodes can be applied to an empty state, and decodes again from its own encoding.
#![no_main]

use libfuzzer_sys::fuzz_target;
use weir::metadata::apply::apply;
use weir::metadata::codec::{decode_batch, encode_batch};
use weir::metadata::state::State;

fuzz_target!(|data: &[u8]| {
    if let Ok(batch) = decode_batch(data) {
        assert_eq!(decode_batch(&encode_batch(&batch)).expect("what was encoded decodes"), batch);
        let mut state = State::default();
        assert_eq!(apply(&mut state, &batch).len(), batch.commands.len());
    }
});
