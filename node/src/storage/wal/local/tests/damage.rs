//! Files that end anywhere, hold anything, or are missing.

use std::collections::BTreeSet;
use std::os::unix::fs::FileExt;

use super::*;
use crate::storage::wal::tests::rig::{object, seal, seal_without};

/// Writes records of these sizes and lets the process go.
async fn write(bench: &Bench, sizes: &[usize]) {
    let (wals, faults) = bench.process();
    let s = session(1);
    let writer = wals.create(&s).await.unwrap();
    for (i, &size) in sizes.iter().enumerate() {
        let seq = i as u64 + 1;
        writer.put(seq, object(&s, seq, size)).await.unwrap();
    }
    drop((writer, wals));
    until_dead(&faults);
}

/// Seals as a new process would; takes the seal away again.
async fn read(bench: &Bench) -> Result<u64, WalError> {
    let (wals, _) = bench.process();
    let sealed = seal(&wals, &session(1), 1, 1).await;
    bench.unseal();
    sealed.map(|(end, _)| end)
}

#[tokio::test]
async fn a_record_cut_off_anywhere_is_the_end_of_the_row() {
    let bench = Bench::new();
    write(&bench, &[100, 200, 300]).await;
    let log = bench.logs().remove(0);
    let whole = std::fs::read(&log).unwrap();
    let at = |n: u64| (1..n).map(|seq| object(&session(1), seq, seq as usize * 100).len()).sum::<usize>();
    let (start, end) = (at(3), at(4));
    for cut in start..end {
        // A file that was filled before it got its name is not cut by a crash.
        std::fs::write(&log, &whole[..cut]).unwrap();
        assert!(matches!(read(&bench).await, Err(WalError::Corrupt { .. })), "file cut at {cut}");
        // As a write that reached the disk in part, into a preallocated file.
        let mut torn = whole.clone();
        torn[cut..end].fill(0);
        std::fs::write(&log, &torn).unwrap();
        assert_eq!(read(&bench).await, Ok(3), "zeros from {cut}");
        // Or with other bytes in it.
        torn[cut..end].fill(0xa5);
        std::fs::write(&log, &torn).unwrap();
        assert_eq!(read(&bench).await, Ok(3), "garbage from {cut}");
    }
    // The first part lost, the rest written.
    for lost in 1..end - start {
        let mut torn = whole.clone();
        torn[start..start + lost].fill(0);
        std::fs::write(&log, &torn).unwrap();
        assert_eq!(read(&bench).await, Ok(3), "first {lost} bytes lost");
    }
    for cut in (0..whole.len()).step_by(4096) {
        std::fs::write(&log, &whole[..cut]).unwrap();
        assert!(matches!(read(&bench).await, Err(WalError::Corrupt { .. })), "file cut at {cut}");
    }
    std::fs::write(&log, &whole).unwrap();
    assert_eq!(read(&bench).await, Ok(4), "whole");
    std::fs::remove_file(&log).unwrap();
    let gone = read(&bench).await.unwrap_err();
    assert!(gone.to_string().contains("no file holds record 1"), "{gone}");
}

#[tokio::test]
async fn a_flipped_bit_is_noticed_unless_it_is_in_the_last_record() {
    let bench = Bench::new();
    write(&bench, &[20, 30, 0, 40]).await;
    let log = bench.logs().remove(0);
    let whole = std::fs::read(&log).unwrap();
    let last: usize = [20, 30, 0].iter().zip(1..).map(|(&size, n)| object(&session(1), n, size).len()).sum();
    let end = last + object(&session(1), 4, 40).len();
    // One bit of every byte; the codec's own tests flip all of them.
    for bit in (0..end + 64).map(|byte| byte * 8 + byte % 8) {
        let mut bad = whole.clone();
        bad[bit / 8] ^= 1 << (bit % 8);
        std::fs::write(&log, &bad).unwrap();
        match read(&bench).await {
            Err(WalError::Corrupt { object, position, why, .. }) => {
                assert!(bit / 8 < last, "bit {bit}: {why}");
                assert_eq!(object, log.display().to_string());
                assert!(position as usize <= bit / 8, "bit {bit}: at {position}");
            }
            Ok(4) => assert!((last..end).contains(&(bit / 8)), "bit {bit}"),
            Ok(5) => assert!(bit / 8 >= end, "bit {bit}"),
            other => panic!("bit {bit}: {other:?}"),
        }
    }
}

#[tokio::test]
async fn a_damaged_record_is_passed_over_only_if_told_so_and_nothing_else_is() {
    let sizes = [20, 30, 0, 40, 50];
    for damaged in 1..sizes.len() as u64 {
        let bench = Bench::new();
        write(&bench, &sizes).await;
        let log = bench.logs().remove(0);
        let from: usize = (1..damaged).map(|n| object(&session(1), n, sizes[n as usize - 1]).len()).sum();
        let whole = std::fs::read(&log).unwrap();
        let length = object(&session(1), damaged, sizes[damaged as usize - 1]).len();
        for at in [from, from + 9, from + length - 1] {
            let mut bad = whole.clone();
            bad[at] ^= 0x40;
            std::fs::write(&log, &bad).unwrap();
            let (wals, _) = bench.process();
            let error = seal(&wals, &session(1), 1, 1).await.unwrap_err();
            assert!(matches!(error, WalError::Corrupt { seq: Some(seq), .. } if seq == damaged), "{error}");
            let another = BTreeSet::from([damaged + 1]);
            assert_eq!(seal_without(&wals, &session(1), 1, 1, &another).await.unwrap_err(), error);
            let skip = BTreeSet::from([damaged]);
            let (end, objects) = seal_without(&wals, &session(1), 1, 1, &skip).await.unwrap();
            assert_eq!(end, 6, "record {damaged} at {at}");
            for o in objects {
                assert_eq!(o.frames.is_empty(), o.seq == damaged, "record {}", o.seq);
            }
            bench.unseal();
        }
    }
}

#[tokio::test]
async fn damaged_records_in_a_row_are_named_one_by_one() {
    let bench = Bench::new();
    write(&bench, &[100; 5]).await;
    let log = bench.logs().remove(0);
    let mut bad = std::fs::read(&log).unwrap();
    let length = object(&session(1), 2, 100).len();
    bad[length + 5] ^= 1;
    bad[2 * length + 5] ^= 1;
    std::fs::write(&log, &bad).unwrap();
    let (wals, _) = bench.process();
    let two = BTreeSet::from([2]);
    let error = seal_without(&wals, &session(1), 1, 1, &two).await.unwrap_err();
    assert!(matches!(error, WalError::Corrupt { seq: Some(3), .. }), "{error}");
    let both = BTreeSet::from([2, 3]);
    let (end, objects) = seal_without(&wals, &session(1), 1, 1, &both).await.unwrap();
    let with: Vec<u64> = objects.iter().filter(|o| !o.frames.is_empty()).map(|o| o.seq).collect();
    assert_eq!((end, with), (6, vec![1, 4, 5]));
}

#[tokio::test]
async fn a_missing_or_damaged_file_in_the_row_is_named() {
    let bench = Bench::new();
    write(&bench, &[1500; 20]).await;
    let logs = bench.logs();
    assert!(logs.len() >= 3, "{logs:?}");
    assert_eq!(read(&bench).await, Ok(21));
    for (i, log) in logs.iter().enumerate() {
        let aside = bench.file("aside");
        std::fs::rename(log, &aside).unwrap();
        let outcome = read(&bench).await;
        if i + 1 < logs.len() {
            assert!(matches!(outcome, Err(WalError::Corrupt { .. })), "without {log:?}: {outcome:?}");
        }
        std::fs::rename(&aside, log).unwrap();
        // All zeros: as if never written, which only the last file may be.
        let whole = std::fs::read(log).unwrap();
        let mut zeros = vec![0; whole.len()];
        let fence = whole.len() - spare::FENCE.len();
        zeros[fence..].copy_from_slice(&whole[fence..]);
        std::fs::write(log, zeros).unwrap();
        let outcome = read(&bench).await;
        let first = log_number(log.file_name().unwrap().to_str().unwrap()).unwrap();
        if i + 1 == logs.len() {
            assert_eq!(outcome, Ok(first));
        } else {
            assert!(matches!(outcome, Err(WalError::Corrupt { .. })), "{log:?} zeroed: {outcome:?}");
        }
        std::fs::write(log, whole).unwrap();
    }
    assert_eq!(read(&bench).await, Ok(21));
}

#[tokio::test]
async fn a_start_that_no_file_holds_is_damage_not_the_end() {
    let bench = Bench::new();
    write(&bench, &[100, 100]).await;
    let (wals, _) = bench.process();
    let beyond = seal(&wals, &session(1), 9, 1).await;
    assert!(matches!(beyond, Err(WalError::Corrupt { .. })), "{beyond:?}");
    bench.unseal();
    std::fs::remove_file(bench.logs().remove(0)).unwrap();
    let gone = seal(&wals, &session(1), 2, 1).await;
    assert!(matches!(gone, Err(WalError::Corrupt { .. })), "{gone:?}");
}

#[tokio::test]
async fn a_damaged_seal_is_named_and_never_taken_for_none() {
    let bench = Bench::new();
    write(&bench, &[100, 100]).await;
    let (wals, _) = bench.process();
    seal(&wals, &session(1), 1, 1).await.unwrap();
    for name in ["seal", "end"] {
        let whole = std::fs::read(bench.file(name)).unwrap();
        for cut in [0, 5, whole.len() - 1] {
            std::fs::write(bench.file(name), &whole[..cut]).unwrap();
            let error = seal(&wals, &session(1), 1, 1).await.unwrap_err();
            assert!(matches!(&error, WalError::Corrupt { object, .. } if object.ends_with(name)), "{error}");
        }
        std::fs::write(bench.file(name), whole).unwrap();
    }
    assert_eq!(seal(&wals, &session(1), 1, 1).await.unwrap().0, 3);
}

#[tokio::test]
async fn once_decided_the_end_counts_whatever_is_written_behind_it() {
    let bench = Bench::new();
    write(&bench, &[100, 100]).await;
    let (wals, _) = bench.process();
    assert_eq!(seal(&wals, &session(1), 1, 1).await.unwrap().0, 3);
    // A zombie's write that was in flight.
    let log = std::fs::OpenOptions::new().write(true).open(bench.logs().remove(0)).unwrap();
    let at = 2 * object(&session(1), 1, 100).len() as u64;
    log.write_all_at(&object(&session(1), 3, 100), at).unwrap();
    assert_eq!(seal(&wals, &session(1), 1, 2).await.unwrap().0, 3);
    // And what counts must be there for ever.
    log.write_all_at(&[0; 10], at - 10).unwrap();
    let error = seal(&wals, &session(1), 1, 2).await.unwrap_err();
    assert!(matches!(error, WalError::Corrupt { .. }), "{error}");
}

#[tokio::test]
async fn a_file_used_again_shows_nothing_of_its_first_use() {
    let bench = Bench::new();
    let (wals, faults) = bench.process();
    let s = session(1);
    let writer = wals.create(&s).await.unwrap();
    let mut start = 1;
    for seq in 1..=200 {
        writer.put(seq, object(&s, seq, 700)).await.unwrap();
        if seq % 20 == 0 {
            start = seq - 3;
            wals.trim(&s, start).await.unwrap();
        }
        if seq % 20 == 10 {
            // A process that dies here leaves files with both uses in them.
            let (reader, _) = bench.process();
            let (end, _) = seal(&reader, &s, start, 1).await.unwrap();
            assert_eq!(end, seq + 1);
            bench.unseal();
        }
    }
    assert!(bench.logs().len() < 20, "trimmed");
    drop((writer, wals));
    until_dead(&faults);
    assert!(bench.names().iter().filter(|n| n.starts_with("spare-")).count() <= 3, "{:?}", bench.names());
}
