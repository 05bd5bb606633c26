//! A WAL object that decodes encodes to itself; one that does not is refused without a panic.
#![no_main]

use bytes::Bytes;
use libfuzzer_sys::fuzz_target;
use weir::storage::record::codec;

fuzz_target!(|data: &[u8]| {
    if let Ok((header, frames)) = codec::decode(&Bytes::copy_from_slice(data)) {
        let again = codec::encode(header.cluster, &header.session, header.seq, &frames);
        let (read, same) = codec::decode(&again).expect("what was encoded decodes");
        assert_eq!((read.seq, same), (header.seq, frames));
    }
});
