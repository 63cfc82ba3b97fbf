//! Barriers of which one rank is late in each, and what everybody reads behind them.

use std::sync::Arc;
use std::thread;
use std::time::Duration;

use cpkv::deadline::Deadline;
use cpkv::device::{DeviceBuffer, Keep};
use cpkv::group::Group;
use cpkv::plan::TablePacker;
use cpkv::symm::{ArenaLayout, Registered, RegistrationRecord, SymmRegion};
use cpkv_kernels::Kernel;
use cpkv_kernels::abi::{Descriptor, GatherParams, HalfSelect};

use super::{PATIENT, group_options};
use crate::fixture::{LONG, on_threads};

/// How late the late rank writes.
const DELAY: Duration = Duration::from_millis(8);
/// Bytes that a rank publishes for a barrier.
const BYTES: u64 = 128;
/// What the epoch's parity selects.
const HALVES: [&str; 2] = ["even", "odd"];

pub(crate) fn look() {
    for num_ranks in [3, 8] {
        on_threads(num_ranks, |setup| {
            let (bootstrap, device) = (Arc::clone(&setup.bootstrap), Arc::clone(&setup.device));
            let group = Group::register(bootstrap, device, setup.backend.clone(), group_options(PATIENT));
            late_ranks(group.unwrap(), 2 * num_ranks + 2);
        });
    }
}

/// `num_barriers` barriers; a rank publishes before each, and reads everybody's bytes after it. Collective.
pub(crate) fn late_ranks(mut group: Group, num_barriers: u32) {
    let (rank, num_ranks) = (group.rank().0, group.group_size().get());
    let mut layout = ArenaLayout::default();
    let halves = HALVES.map(|name| layout.carve(name, BYTES, 128).unwrap());
    let registered = SymmRegion::register(
        "late ranks",
        group.bootstrap(),
        group.device(),
        &**group.backend(),
        &RegistrationRecord::default(),
        layout,
        Deadline::after(LONG),
    );
    let Registered::Mapped(region) = registered.unwrap() else { panic!("peers are not in reach") };
    let region = Arc::new(region);
    let read = group.device().alloc(u64::from(num_barriers * num_ranks) * BYTES).unwrap();
    // All of it is queued first: no wait of the host hides what a barrier lets through.
    for barrier in 0..num_barriers {
        let half = &halves[(barrier % 2) as usize];
        if barrier % num_ranks == rank {
            let late = || {
                thread::sleep(DELAY);
                Ok(())
            };
            group.stream().host_call("late", Box::new(late)).unwrap();
        }
        group.stream().upload(published(barrier, rank), &region.own(half)).unwrap();
        group.barrier(barrier).unwrap();
        gather(&group, &region, &region.addrs(half), &read, barrier);
    }
    group.synchronize().unwrap();
    let mut bytes = vec![0; read.bytes() as usize];
    group.stream().download(&read, &mut bytes, Deadline::after(LONG)).unwrap();
    for (at, bytes) in bytes.chunks_exact(BYTES as usize).enumerate() {
        let (barrier, peer) = (at as u32 / num_ranks, at as u32 % num_ranks);
        assert!(
            bytes == published(barrier, peer),
            "rank {rank} passed barrier {barrier} of {num_ranks} ranks before rank {peer} had come"
        );
    }
    assert_eq!(group.epoch().0, u64::from(num_barriers), "epochs passed");
    group.bootstrap().barrier("all have left", Deadline::after(LONG)).unwrap();
    assert_eq!(group.words_not_zero().unwrap(), [], "words that are not at rest");
    SymmRegion::close_shared(region, group.bootstrap(), Deadline::after(LONG)).unwrap();
    group.close().unwrap();
}

/// Queues a copy of everybody's page to the place of `barrier` in `read`.
fn gather(group: &Group, region: &Arc<SymmRegion>, bases: &[u64], read: &DeviceBuffer, barrier: u32) {
    let num_ranks = group.group_size().get();
    let mut packer = TablePacker::default();
    let slots: Vec<_> = (0..num_ranks as i32).map(|base| Descriptor { base, page: 0 }).collect();
    let descriptors = packer.push(&slots).offset;
    let bases = packer.push(bases).offset;
    let bytes = packer.finish().bytes;
    let tables = group.device().alloc(bytes.len() as u64).unwrap();
    group.stream().upload(bytes, &tables).unwrap();
    let kernel = Kernel::Gather(GatherParams {
        dst: read.addr() + u64::from(barrier * num_ranks) * BYTES,
        descriptors: tables.addr() + descriptors,
        bases: tables.addr() + bases,
        pool_offset: 0,
        src_half: HalfSelect::default(),
        dst_half: HalfSelect::default(),
        page_bytes: BYTES,
        poison: 0,
        num_slots: num_ranks,
        first_halved: num_ranks,
    });
    let keep: Keep = Arc::new((tables, read.clone(), Arc::clone(region)));
    // SAFETY: all addresses are of memory that `keep` holds. A page is written again two barriers later, which its rank
    // reaches after everybody has read it; where a barrier does not keep that, the bytes are found to be wrong.
    unsafe { group.stream().launch(kernel, &keep) }.unwrap();
}

/// What `rank` publishes for `barrier`: no two pages agree in any word.
fn published(barrier: u32, rank: u32) -> Vec<u8> {
    let stamp = u64::from(barrier) << 40 | u64::from(rank) << 20;
    (1..=BYTES / 8).flat_map(|i| (stamp + i).wrapping_mul(0xD6E8_FEB8_6659_FD93).to_le_bytes()).collect()
}
