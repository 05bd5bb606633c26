//! A seal that decodes encodes to itself.
#![no_main]

use libfuzzer_sys::fuzz_target;
use weir::storage::seal::Seal;

fuzz_target!(|data: &[u8]| {
    if let Ok(seal) = Seal::decode(data) {
        assert_eq!(Seal::decode(&seal.encode()), Ok(seal));
    }
});
