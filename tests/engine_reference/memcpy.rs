//! A caller's engine behind the callbacks: copies within the process, at the second question for a batch.

use std::collections::BTreeMap;
use std::ptr;
use std::sync::{Arc, Mutex};

use cpkv::transfer::{CallbackEngine, CallbackFailure, EngineCallbacks};

/// The caller's code of a destination that is not registered.
const OUTSIDE: i64 = -22;

/// What all sessions share.
#[derive(Default)]
struct Wire {
    /// By session: address and bytes of its registered memory.
    registered: BTreeMap<Vec<u8>, Vec<(u64, u64)>>,
    num_handles: u64,
    /// By handle: addresses, bytes, and whether the batch was asked for.
    batches: BTreeMap<u64, (Vec<[u64; 3]>, bool)>,
}

impl Wire {
    fn submit(&mut self, peer: &[u8], blocks: Vec<[u64; 3]>) -> Result<u64, CallbackFailure> {
        let ranges = self.registered.get(peer).ok_or(CallbackFailure::PeerLost(-1))?;
        let is_inside = |&[_, dst, len]: &[u64; 3]| {
            ranges.iter().any(|&(addr, bytes)| addr <= dst && dst + len <= addr + bytes)
        };
        if !blocks.iter().all(is_inside) {
            return Err(CallbackFailure::Refused(OUTSIDE));
        }
        self.num_handles += 1;
        self.batches.insert(self.num_handles, (blocks, false));
        Ok(self.num_handles)
    }

    fn poll(&mut self, handle: u64) -> Result<bool, CallbackFailure> {
        let (blocks, asked) = self.batches.get_mut(&handle).ok_or(CallbackFailure::Failed(-2))?;
        if !std::mem::replace(asked, true) {
            return Ok(false);
        }
        for &[src, dst, len] in &*blocks {
            let from = ptr::with_exposed_provenance::<u8>(src as usize);
            let to = ptr::with_exposed_provenance_mut::<u8>(dst as usize);
            // SAFETY: registered memory of this test on both sides, which it leaves alone until the batch is done.
            unsafe { ptr::copy(from, to, len as usize) };
        }
        self.batches.remove(&handle);
        Ok(true)
    }
}

/// Engines of the sessions `names`, which reach each other.
pub(crate) fn engines<const N: usize>(names: [&'static str; N]) -> [CallbackEngine; N] {
    let wire: Arc<Mutex<Wire>> = Arc::default();
    names.map(|name| engine(&wire, name.as_bytes()))
}

fn engine(wire: &Arc<Mutex<Wire>>, session: &'static [u8]) -> CallbackEngine {
    let share = || Arc::clone(wire);
    let (submits, polls, abandons) = (share(), share(), share());
    let (registers, unregisters) = (share(), share());
    let callbacks = EngineCallbacks {
        details: "memcpy".to_owned(),
        abandon: Some(Box::new(move |handle| abandons.lock().unwrap().batches.remove(&handle).is_some())),
        register: Some(Box::new(move |addr, bytes| {
            registers.lock().unwrap().registered.entry(session.to_vec()).or_default().push((addr, bytes));
            Ok(())
        })),
        unregister: Some(Box::new(move |addr, bytes| {
            let mut wire = unregisters.lock().unwrap();
            let ranges = wire.registered.entry(session.to_vec()).or_default();
            let at = ranges.iter().position(|&range| range == (addr, bytes));
            ranges.remove(at.ok_or(CallbackFailure::Failed(-3))?);
            Ok(())
        })),
        metadata: Some(Box::new(move || Ok(session.to_vec()))),
        ..EngineCallbacks::new(
            Box::new(move |peer, srcs, dsts, lens| {
                let columns = srcs.iter().zip(dsts).zip(lens);
                let blocks = columns.map(|((&src, &dst), &len)| [src, dst, len]).collect();
                submits.lock().unwrap().submit(peer, blocks)
            }),
            Box::new(move |handle| polls.lock().unwrap().poll(handle)),
        )
    };
    CallbackEngine::new(callbacks)
}
