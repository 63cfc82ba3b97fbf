//! cpkv composes a shared, paged KV cache across the ranks of a context-parallel group, byte for byte.
//!
//! Each rank holds a shard of the paged pool. Before a layer's attention, every rank needs the whole KV of the
//! batch in one dense buffer: [`compose::Composer`] builds it, the same bytes on every rank, in one of six ways
//! ([`plan::Strategy`]). Calls that wait have a deadline, and a rank that stops is named by the others.
//!
//! After prefill, and while it runs, [`transfer::TransferManager`] hands the pages to decode workers layer by layer, over a
//! [`transfer::TransferEngine`].
//!
//! # Life of a group
//!
//! 1. Every rank brings a [`group::Bootstrap`] (threads, MPI, or the caller's own exchange), a
//!    [`device::Device`] and a [`symm::SymmBackend`], and registers: [`group::Group`], [`compose::SharedPool`],
//!    [`compose::Composer`]. Registration is collective, and probes what it will use.
//! 2. For each batch: [`compose::Composer::begin`] plans it once, then for each layer
//!    [`compose::BatchInFlight::compose_layer`] and [`compose::BatchInFlight::persist_layer`] queue the work and
//!    return at once; [`compose::BatchInFlight::finish`] waits.
//! 3. [`compose::Composer::close`] ends it on all ranks together. A group that met a fault cannot be closed or
//!    used: it is registered anew.
//!
//! # Example: two ranks as threads
//!
//! ```
//! use std::sync::Arc;
//! use std::time::Duration;
//! use cpkv::compose::{Composer, ComposerOptions, LayerInputs, SharedPool, StrategyChoice};
//! use cpkv::deadline::Deadline;
//! use cpkv::device::{CpuDevice, Device};
//! use cpkv::group::{Group, GroupOptions, ThreadBootstrap};
//! use cpkv::model::{BufferId, ModelSpec};
//! use cpkv::plan::{Batch, RequestPages};
//! use cpkv::symm::LocalBackend;
//! use cpkv::units::{GroupSize, PageId};
//!
//! fn rank(bootstrap: ThreadBootstrap) -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
//!     let device = Arc::new(CpuDevice);
//!     let options = GroupOptions::default();
//!     let group = Group::register(Arc::new(bootstrap), device.clone(), Arc::new(LocalBackend), options)?;
//!     let model = ModelSpec::preset("tiny")?.take_layers(1)?;
//!     let pool = SharedPool::register(&group, model, 16)?;
//!     // No collective: without it there is no fallback where peers' memory is out of reach.
//!     let mut composer = Composer::register(group, pool, None, ComposerOptions::default())?;
//!
//!     // One request of 10 new tokens: pages 5, 2 and 9 of 4 tokens each.
//!     let request = RequestPages {
//!         new_tokens: 10,
//!         current_pages: vec![PageId(5), PageId(2), PageId(9)],
//!         ..RequestPages::default()
//!     };
//!     let batch = Batch { requests: vec![request], num_pad_slots: 0 };
//!     let mut flight = composer.begin(&batch, StrategyChoice::Auto)?;
//!     // The rows this rank computes: token-KV of 32 bytes, index-K keys of 128 bf16. All bytes 7, to see them again.
//!     let num_rows = flight.plan().rows.num_rows() as usize;
//!     let mut inputs = LayerInputs::default();
//!     for (buffer, row_bytes) in [(BufferId::TOKEN_KV, 32), (BufferId::INDEX_K, 2 * 128)] {
//!         let rows = device.alloc((num_rows * row_bytes) as u64)?;
//!         flight.stream().upload(vec![7; num_rows * row_bytes], &rows)?;
//!         inputs = inputs.with(buffer, rows);
//!     }
//!     flight.compose_layer(0, &inputs)?;
//!     flight.persist_layer(0)?;
//!     // Every rank has every rank's rows: 10 tokens, then zeros to the end of the third page.
//!     let dense = flight.dense(BufferId::TOKEN_KV)?;
//!     let mut bytes = vec![0; dense.bytes() as usize];
//!     flight.stream().download(&dense, &mut bytes, Deadline::after(Duration::from_secs(10)))?;
//!     assert_eq!(bytes, [vec![7; 10 * 32], vec![0; 2 * 32]].concat());
//!     flight.finish()?;
//!     composer.close()?;
//!     Ok(())
//! }
//!
//! let ranks = ThreadBootstrap::group(GroupSize::new(2)?).into_iter();
//! let ranks: Vec<_> = ranks.map(|bootstrap| std::thread::spawn(|| rank(bootstrap))).collect();
//! for rank in ranks {
//!     rank.join().expect("no panic")?;
//! }
//! # Ok::<(), Box<dyn std::error::Error + Send + Sync>>(())
//! ```

pub mod collective;
pub mod compose;
pub mod deadline;
pub mod device;
pub mod error;
pub mod group;
pub mod model;
pub mod pages;
pub mod plan;
mod priority;
pub mod symm;
pub mod transfer;
pub mod units;
pub mod verify;
pub mod workload;
