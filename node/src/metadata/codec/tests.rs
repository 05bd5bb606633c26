//! Bytes: what stays as it is, what round-trips, and what garbage does (nothing but an error).

mod garbage;
mod golden;

use super::*;
use crate::metadata::apply::tests::player::{operations, play};
use crate::metadata::apply::tests::world::*;
use crate::metadata::command::*;
use crate::metadata::state::State;
use proptest::prelude::*;
use weir_api::StreamId;

fn bytes_of(state: &State) -> Vec<u8> {
    let mut bytes = Vec::new();
    write_state(state, &mut bytes).unwrap();
    bytes
}

fn restored(mut bytes: &[u8]) -> State {
    read_state(&mut bytes).unwrap()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 32, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn whatever_a_log_holds_round_trips(operations in operations(60)) {
        let (log, state) = play(&operations);
        for entry in &log {
            prop_assert_eq!(&decode_batch(&encode_batch(entry, format::FOUNDED)).unwrap(), entry);
        }
        let bytes = bytes_of(&state);
        prop_assert_eq!(bytes_of(&restored(&bytes)), bytes);
    }
}

#[test]
fn an_entry_of_one_term_names_it_and_no_bit_of_it_can_change() {
    let batch = Batch { time_ms: 7, commands: Vec::new() };
    let bytes = encode_batch_of_term(&batch, format::FOUNDED, 0x0102_0304_0506);
    assert_eq!(decode_entry(&bytes).unwrap(), (batch.clone(), Some(0x0102_0304_0506)));
    assert_eq!(decode_entry(&encode_batch(&batch, format::FOUNDED)).unwrap(), (batch, None));
    assert!(decode_batch(&bytes).is_err(), "nobody may send one to a leader");
    for bit in 0..bytes.len() * 8 {
        let mut changed = bytes.clone();
        changed[bit / 8] ^= 1 << (bit % 8);
        assert!(decode_entry(&changed).is_err(), "bit {bit}");
    }
    for end in 0..bytes.len() {
        assert!(decode_entry(&bytes[..end]).is_err(), "cut at {end}");
    }
}

#[test]
fn an_empty_state_round_trips() {
    let bytes = bytes_of(&State::default());
    assert_eq!(bytes_of(&restored(&bytes)), bytes);
}

#[test]
fn reading_stops_at_the_end_of_the_state() {
    let bytes = [bytes_of(&State::default()), b"and more".to_vec()].concat();
    let mut rest = bytes.as_slice();
    read_state(&mut rest).unwrap();
    assert_eq!(rest, b"and more");
}

/// Many streams, many extents, more configurations than are kept at hand.
#[test]
fn a_state_of_many_chunks_round_trips() {
    let (mut w, [a]) = World::with(["a"]);
    let (x, e) = w.opened(&a, "x");
    for i in 0..1500 {
        let batch = |command| Batch { time_ms: START_MS, commands: vec![command] };
        let create = w.envelope(&a, create_expiring(&format!("stream-{i:04}"), Expiry::At(i % 100)));
        crate::metadata::apply::apply(&mut w.state, &batch(create));
        let commit = w.envelope(&a, commit(CommitOrigin::Own, i, &[range(x, e, i, i + 1)], Some(i)));
        crate::metadata::apply::apply(&mut w.state, &batch(commit));
    }
    let bytes = bytes_of(&w.state);
    assert!(bytes.len() > 100_000, "{} bytes", bytes.len());
    let again = restored(&bytes);
    crate::metadata::consistency::check_consistency(&again).unwrap();
    assert_eq!(again.stream(x).unwrap().extents.len(), 1500);
    assert_eq!(bytes_of(&again), bytes);
    assert_eq!(state_hash(&again), state_hash(&w.state));
}

#[test]
fn equal_hashes_mean_equal_states_and_any_difference_shows() {
    let (mut w, [a]) = World::with(["a"]);
    let (x, e) = w.opened(&a, "x");
    let mut seen = vec![state_hash(&w.state)];
    let close = SegmentRange { closed: true, ..range(x, e, 0, 0) };
    w.commit(&a, 1, &[close]).unwrap();
    seen.push(state_hash(&w.state));
    w.create(&a, "y");
    seen.push(state_hash(&w.state));
    w.state.time_ms += 1;
    seen.push(state_hash(&w.state));
    assert_eq!(state_hash(&w.state.clone()), seen[3]);
    seen.sort_unstable();
    seen.dedup();
    assert_eq!(seen.len(), 4);
}

/// Nothing grows with the state: what is handed over at once is a chunk.
#[test]
fn a_snapshot_is_written_in_bounded_pieces() {
    struct Largest(usize);
    impl io::Write for Largest {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0 = self.0.max(bytes.len());
            Ok(bytes.len())
        }
        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }
    let (mut w, [a]) = World::with(["a"]);
    for i in 0..3000 {
        let create = w.envelope(&a, create(&format!("{i:0>100}")));
        crate::metadata::apply::apply(&mut w.state, &Batch { time_ms: START_MS, commands: vec![create] });
    }
    let mut largest = Largest(0);
    write_state(&w.state, &mut largest).unwrap();
    assert!(largest.0 < 70 * 1024, "{} bytes at once", largest.0);
}
