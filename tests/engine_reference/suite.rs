//! What every transfer engine must do, put to a pair of engines that reach each other.

use std::ops::Range;
use std::thread;
use std::time::Duration;

use cpkv::deadline::Deadline;
use cpkv::device::{CpuDevice, Device, DeviceBuffer};
use cpkv::transfer::{BatchId, Block, EngineProblem, PeerId, RegistrationId, TransferEngine};

/// What destinations hold before a test.
const POISON: u8 = 0xA5;

fn soon() -> Deadline {
    Deadline::after(Duration::from_secs(60))
}

/// Bytes that differ from place to place and from `seed` to `seed`.
pub(crate) fn pattern(bytes: u64, seed: u64) -> Vec<u8> {
    let byte =
        |at: u64| (at.wrapping_mul(0x9E37_79B9).wrapping_add(seed.wrapping_mul(0x85EB_CA6B)) >> 13) as u8;
    (0..bytes).map(byte).collect()
}

pub(crate) fn filled(contents: &[u8]) -> DeviceBuffer {
    let memory = CpuDevice.alloc(contents.len() as u64).unwrap();
    CpuDevice.write(contents, &memory).unwrap();
    memory
}

pub(crate) fn contents(memory: &DeviceBuffer) -> Vec<u8> {
    let mut bytes = vec![0; memory.bytes() as usize];
    CpuDevice.read(memory, &mut bytes).unwrap();
    bytes
}

/// A source with a pattern and a poisoned destination of one size, registered; `from` knows `to`.
struct Link<'a> {
    from: &'a dyn TransferEngine,
    to: &'a dyn TransferEngine,
    src: DeviceBuffer,
    dst: DeviceBuffer,
    registrations: [RegistrationId; 2],
    peer: PeerId,
}

impl<'a> Link<'a> {
    fn new(from: &'a dyn TransferEngine, to: &'a dyn TransferEngine, bytes: u64) -> Self {
        let (src, dst) = (filled(&pattern(bytes, 1)), filled(&vec![POISON; bytes as usize]));
        let registrations = [from.register(&src).unwrap(), to.register(&dst).unwrap()];
        let peer = from.add_peer(&to.metadata().unwrap()).unwrap();
        Self { from, to, src, dst, registrations, peer }
    }

    fn block(&self, src: u64, dst: u64, bytes: u64) -> Block {
        Block { src: self.src.addr() + src, dst: self.dst.addr() + dst, bytes }
    }

    fn write(&self, blocks: &[Block]) {
        let batch = self.from.submit(self.peer, blocks).unwrap();
        self.from.wait(batch, soon()).unwrap();
    }

    fn refusal(&self, blocks: &[Block]) -> EngineProblem {
        let error = self.from.submit(self.peer, blocks).unwrap_err();
        assert_eq!((error.engine, error.call), (self.from.info().name, "submit"));
        error.problem
    }

    /// What the destination holds once exactly `blocks` were copied, one after another.
    fn expected(&self, blocks: &[Block]) -> Vec<u8> {
        let (src, mut dst) = (contents(&self.src), vec![POISON; self.dst.bytes() as usize]);
        let range = |start: u64, bytes: u64| -> Range<usize> { start as usize..(start + bytes) as usize };
        for block in blocks {
            let from = range(block.src - self.src.addr(), block.bytes);
            dst[range(block.dst - self.dst.addr(), block.bytes)].copy_from_slice(&src[from]);
        }
        dst
    }

    fn assert_holds(&self, blocks: &[Block]) {
        assert!(contents(&self.dst) == self.expected(blocks), "other bytes than serial copies give");
    }

    fn end(self) {
        self.from.remove_peer(self.peer).unwrap();
        self.from.unregister(self.registrations[0]).unwrap();
        self.to.unregister(self.registrations[1]).unwrap();
    }
}

/// Puts `a` and `b`, two engines of one kind, through everything. Both reach host memory of this process.
pub(crate) fn check(a: &dyn TransferEngine, b: &dyn TransferEngine) {
    blocks_of_any_length_and_offset_arrive_exactly(a, b);
    blocks_of_any_length_and_offset_arrive_exactly(b, a);
    long_blocks_arrive_exactly(a, b);
    a_batch_of_nothing_is_done_and_its_end_is_told_once(a, b);
    a_source_that_is_not_registered_is_refused_whole(a, b);
    a_foreign_destination_is_refused_whole(a, b);
    what_is_unknown_is_said_to_be(a, b);
    a_peer_that_is_added_anew_has_a_new_id(a, b);
    many_threads_write_side_by_side(a, b);
    a_batch_that_is_given_up_is_forgotten(a, b);
}

fn blocks_of_any_length_and_offset_arrive_exactly(a: &dyn TransferEngine, b: &dyn TransferEngine) {
    let link = Link::new(a, b, 64 << 10);
    let mut written = Vec::new();
    let mut dst = 3;
    for (i, bytes) in [1, 7, 8, 9, 16, 63, 64, 65, 511, 4097].into_iter().enumerate() {
        for (src, gap) in [(0, 1), (1, 8), (8, 5), (13, 3)] {
            let block = link.block(src + 100 * i as u64, dst, bytes);
            written.push(block);
            // A gap to the next block, which stays as it was.
            dst += bytes + gap;
        }
    }
    let aligned = dst.next_multiple_of(64);
    written.extend([link.block(64, aligned, 64), link.block(8, aligned + 72, 8)]);
    // One batch of all, then batches of one.
    let (whole, single) = written.split_at(written.len() / 2);
    link.write(whole);
    link.assert_holds(whole);
    single.iter().for_each(|&block| link.write(&[block]));
    link.assert_holds(&written);
    link.end();
}

fn long_blocks_arrive_exactly(a: &dyn TransferEngine, b: &dyn TransferEngine) {
    let link = Link::new(a, b, 3 << 20);
    let blocks = [link.block(5, 1, (1 << 20) + 3), link.block(1 << 20, 2 << 20, (1 << 20) - 7)];
    link.write(&blocks);
    link.assert_holds(&blocks);
    link.end();
}

fn a_batch_of_nothing_is_done_and_its_end_is_told_once(a: &dyn TransferEngine, b: &dyn TransferEngine) {
    let link = Link::new(a, b, 64);
    for blocks in [&[][..], &[link.block(0, 0, 0)], &[link.block(0, 0, 8)]] {
        let batch = a.submit(link.peer, blocks).unwrap();
        a.wait(batch, soon()).unwrap();
        assert_eq!(a.poll(batch).unwrap_err().problem, EngineProblem::UnknownBatch);
        assert!(a.abandon(batch));
    }
    link.assert_holds(&[link.block(0, 0, 8)]);
    link.end();
}

fn a_source_that_is_not_registered_is_refused_whole(a: &dyn TransferEngine, b: &dyn TransferEngine) {
    let link = Link::new(a, b, 256);
    let good = link.block(0, 0, 64);
    let stranger = filled(&[1; 64]);
    for block in [Block { src: stranger.addr(), ..good }, link.block(200, 64, 57), link.block(0, 0, u64::MAX)]
    {
        let Block { src: addr, bytes, .. } = block;
        assert_eq!(link.refusal(&[good, block]), EngineProblem::NotRegistered { addr, bytes });
    }
    let registration = a.register(&stranger).unwrap();
    a.unregister(registration).unwrap();
    let ended = Block { src: stranger.addr(), ..good };
    assert!(matches!(link.refusal(&[ended]), EngineProblem::NotRegistered { .. }));
    link.assert_holds(&[]);
    link.end();
}

fn a_foreign_destination_is_refused_whole(a: &dyn TransferEngine, b: &dyn TransferEngine) {
    let link = Link::new(a, b, 256);
    let good = link.block(0, 0, 64);
    let stranger = filled(&[POISON; 64]);
    for block in [Block { dst: stranger.addr(), ..good }, link.block(0, 200, 57)] {
        let problem = link.refusal(&[good, block]);
        assert!(matches!(problem, EngineProblem::Refused { bytes: 64..=128, .. }), "{problem}");
    }
    assert_eq!(contents(&stranger), [POISON; 64]);
    link.assert_holds(&[]);
    link.write(&[good]);
    link.assert_holds(&[good]);
    link.end();
}

fn what_is_unknown_is_said_to_be(a: &dyn TransferEngine, b: &dyn TransferEngine) {
    let link = Link::new(a, b, 64);
    let (peer, batch, registration) = (PeerId(u32::MAX), BatchId(u64::MAX), RegistrationId(u64::MAX));
    let block = link.block(0, 0, 8);
    assert_eq!(a.submit(peer, &[block]).unwrap_err().problem, EngineProblem::UnknownPeer);
    assert_eq!(a.remove_peer(peer).unwrap_err().problem, EngineProblem::UnknownPeer);
    assert_eq!(a.poll(batch).unwrap_err().problem, EngineProblem::UnknownBatch);
    assert_eq!(a.unregister(registration).unwrap_err().problem, EngineProblem::UnknownRegistration);
    assert!(matches!(a.add_peer(&[]).unwrap_err().problem, EngineProblem::BadMetadata { bytes: 0 }));
    let peer = link.peer;
    link.end();
    assert_eq!(a.submit(peer, &[block]).unwrap_err().problem, EngineProblem::UnknownPeer);
}

fn a_peer_that_is_added_anew_has_a_new_id(a: &dyn TransferEngine, b: &dyn TransferEngine) {
    let mut link = Link::new(a, b, 64);
    let old = link.peer;
    link.peer = a.add_peer(&b.metadata().unwrap()).unwrap();
    assert_ne!(link.peer, old);
    let block = link.block(0, 8, 16);
    assert_eq!(a.submit(old, &[block]).unwrap_err().problem, EngineProblem::UnknownPeer);
    link.write(&[block]);
    link.assert_holds(&[block]);
    link.end();
}

fn many_threads_write_side_by_side(a: &dyn TransferEngine, b: &dyn TransferEngine) {
    const NUM_THREADS: u64 = 6;
    const NUM_BATCHES: u64 = 20;
    let link = Link::new(a, b, 128 << 10);
    // Each batch is 3 blocks in 256 bytes of its own; sources overlap.
    let batch_of =
        |i: u64| [(0, 100), (100, 7), (112, 130)].map(|(at, bytes)| link.block(31 * i, 256 * i + at, bytes));
    thread::scope(|scope| {
        for t in 0..NUM_THREADS {
            let (link, batch_of) = (&link, &batch_of);
            scope.spawn(move || {
                let submit = |i| link.from.submit(link.peer, &batch_of(NUM_BATCHES * t + i)).unwrap();
                let batches: Vec<BatchId> = (0..NUM_BATCHES).map(submit).collect();
                batches.into_iter().for_each(|batch| link.from.wait(batch, soon()).unwrap());
            });
        }
    });
    let written: Vec<Block> = (0..NUM_THREADS * NUM_BATCHES).flat_map(batch_of).collect();
    link.assert_holds(&written);
    link.end();
}

fn a_batch_that_is_given_up_is_forgotten(a: &dyn TransferEngine, b: &dyn TransferEngine) {
    let link = Link::new(a, b, 1 << 20);
    let blocks = [link.block(0, 0, 1 << 20)];
    let batch = a.submit(link.peer, &blocks).unwrap();
    let is_quiet = a.abandon(batch);
    assert_eq!(a.poll(batch).unwrap_err().problem, EngineProblem::UnknownBatch);
    let before = contents(&link.dst);
    link.write(&[]);
    // Quiet means that nothing is written from now on.
    assert!(!is_quiet || contents(&link.dst) == before, "written after it was said to be quiet");
    link.end();
}
