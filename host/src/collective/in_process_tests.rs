//! Tests of the in-process all-reduce: every byte, unequal shares, missing ranks.

use std::cell::UnsafeCell;
use std::thread;

use super::*;
use crate::units::RankSet;

const LONG: Duration = Duration::from_secs(60);
/// Long enough for ranks that come, on a busy machine.
const SHORT: Duration = Duration::from_secs(3);

/// Memory of a test, shared with the call under test.
struct Memory(UnsafeCell<Box<[u8]>>);

// SAFETY: the tests touch it before and after the call only, on the thread that owns the buffer.
unsafe impl Sync for Memory {}

/// A buffer over `bytes`, with a guard on each side.
fn buffer(bytes: &[u8]) -> (Arc<Memory>, DeviceBuffer) {
    let guarded = [&[0xA5; 64][..], bytes, &[0xA5; 64]].concat().into_boxed_slice();
    let memory = Arc::new(Memory(UnsafeCell::new(guarded)));
    // SAFETY: nobody else holds the memory yet.
    let first = unsafe { (&mut *memory.0.get()).as_mut_ptr() };
    let addr = first.expose_provenance() as u64 + 64;
    // SAFETY: the range is the middle of the memory, which the buffer keeps.
    let buffer = unsafe { DeviceBuffer::from_raw(addr, bytes.len() as u64, memory.clone()) };
    (memory, buffer)
}

fn contents(memory: &Memory) -> Vec<u8> {
    // SAFETY: the call under test is over.
    unsafe { (&*memory.0.get()).to_vec() }
}

fn pattern(rank: u32, round: u32, offset: usize) -> u8 {
    (rank.wrapping_mul(0x9E37_79B1) ^ (offset as u32).wrapping_mul(0x85EB_CA6B) ^ (round * 77)).to_be_bytes()
        [1]
}

fn seats(num_ranks: u32) -> Vec<Seat<Option<DeviceBuffer>>> {
    Seat::group(GroupSize::new(num_ranks).unwrap())
}

#[test]
fn every_byte_is_the_wrapping_sum_and_the_guards_stand() {
    for num_ranks in [1, 2, 3, 8] {
        thread::scope(|scope| {
            for seat in seats(num_ranks) {
                scope.spawn(move || {
                    for (round, len) in
                        [0, 1, 127, 1000, 8 * 128, 3 * BLOCK_BYTES + 77, 1 << 20].into_iter().enumerate()
                    {
                        let round = round as u32;
                        let mine: Vec<u8> = (0..len).map(|at| pattern(seat.rank().0, round, at)).collect();
                        let (memory, buffer) = buffer(&mine);
                        all_reduce(&seat, buffer, LONG).unwrap();
                        let sum = |at| {
                            (0..num_ranks).fold(0_u8, |sum, rank| sum.wrapping_add(pattern(rank, round, at)))
                        };
                        let expected: Vec<u8> = (0..len).map(sum).collect();
                        let got = contents(&memory);
                        assert!(got[64..64 + len] == expected, "{num_ranks} ranks, {len} bytes");
                        assert!(got[..64].iter().chain(&got[64 + len..]).all(|&byte| byte == 0xA5));
                    }
                });
            }
        });
    }
}

#[test]
fn shares_cover_every_byte_once() {
    for num_ranks in [1, 2, 3, 7, 8, 64] {
        let size = GroupSize::new(num_ranks).unwrap();
        for bytes in [0, 1, 128, 129, 1000, 8 * 128, 99_999] {
            let mut next = 0;
            for share in size.ranks().map(|rank| share_of(rank, size, bytes)) {
                assert_eq!(share.start, next);
                assert!(share.end >= share.start);
                next = share.end;
            }
            assert_eq!(next, bytes);
        }
    }
}

#[test]
fn a_missing_rank_is_named_on_every_rank() {
    let mut seats = seats(3);
    let late = seats.pop().unwrap();
    thread::scope(|scope| {
        for seat in seats {
            scope.spawn(move || {
                let error = all_reduce(&seat, buffer(&[1; 100]).1, SHORT).unwrap_err();
                let named: RankSet = [Rank(2)].into_iter().collect();
                assert!(
                    matches!(error, DeviceError::CollectiveTimeout { missing, .. } if missing == named),
                    "{error}"
                );
            });
        }
    });
    assert!(matches!(all_reduce(&late, buffer(&[1]).1, LONG), Err(DeviceError::CollectiveTimeout { .. })));
}

#[test]
fn different_sizes_and_shared_memory_are_errors_on_every_rank() {
    thread::scope(|scope| {
        for (seat, len) in seats(3).into_iter().zip([8, 8, 9]) {
            scope.spawn(move || {
                let error = all_reduce(&seat, buffer(&vec![0; len]).1, LONG).unwrap_err();
                assert!(matches!(error, DeviceError::CollectiveMismatch { .. }), "{error}");
            });
        }
    });
    let (_memory, whole) = buffer(&[0; 300]);
    thread::scope(|scope| {
        for (seat, range) in seats(2).into_iter().zip([0..200, 100..300]) {
            let part = whole.slice(range).unwrap();
            scope.spawn(move || {
                let error = all_reduce(&seat, part, LONG).unwrap_err();
                assert!(matches!(error, DeviceError::CollectiveMismatch { .. }), "{error}");
            });
        }
    });
}
