//! A snapshot that decodes writes and reads back to the same state.
#![no_main]

use libfuzzer_sys::fuzz_target;
use weir::metadata::codec::{read_state, state_hash, write_state};

fuzz_target!(|data: &[u8]| {
    if let Ok(state) = read_state(&mut &data[..]) {
        let mut bytes = Vec::new();
        write_state(&state, &mut bytes).expect("writing to memory works");
        let again = read_state(&mut &bytes[..]).expect("what was written reads");
        assert_eq!(state_hash(&again), state_hash(&state));
    }
});
