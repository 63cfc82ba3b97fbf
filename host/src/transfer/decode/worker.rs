//! A decode worker: the memory that pages arrive in.

use std::sync::Arc;

use super::arrival::Expected;
use super::shard::{Registrations, Shard};
use super::{ArrivalError, DecodeOptions, Inbox, WorkerError};
use crate::device::{Device, DeviceBuffer};
use crate::model::ModelSpec;
use crate::transfer::handshake::InboxMemory;
use crate::transfer::{Destination, Geometry, Offer, TransferEngine, WorkerHello};

/// A decode worker: its shard of the decode group's pages and its inboxes, registered with an engine.
///
/// Drop it when its directory has no transfer any more: what arrives later is refused by the engine.
pub struct DecodeWorker {
    // Before the memory: it is dropped in this order.
    _registrations: Registrations,
    shard: Shard,
    inboxes: DeviceBuffer,
    device: Arc<dyn Device>,
    options: DecodeOptions,
    hello: WorkerHello,
}

impl DecodeWorker {
    /// Allocates the worker's memory on `device`, zeroed, and registers it with `engine`.
    ///
    /// # Errors
    /// [`WorkerError`]: an option or the model; the device has no memory; the engine refuses it. Nothing stays registered.
    pub fn start(
        device: Arc<dyn Device>,
        engine: &Arc<dyn TransferEngine>,
        model: &ModelSpec,
        options: DecodeOptions,
    ) -> Result<Self, WorkerError> {
        options.check()?;
        let geometry = Geometry::of(model)?;
        let worker = options.worker;
        let DecodeOptions { num_inboxes, num_words, .. } = options;
        let group_size = options.prefill_group_size.get();
        let inbox_memory = InboxMemory { addr: 0, num_inboxes, group_size, num_words };
        let bytes = inbox_memory.bytes().ok_or(WorkerError::Inboxes { worker, num_inboxes, num_words })?;
        let inboxes = device.alloc(bytes)?;
        let shard = Shard::alloc(&*device, model, options.placement().num_shard_pages())?;
        let registrations = Registrations::of(engine, shard.memory().chain([&inboxes]))?;
        let hello = WorkerHello {
            worker: worker.0,
            num_workers: options.num_workers.get(),
            geometry,
            pool: shard.map(),
            inboxes: InboxMemory { addr: inboxes.addr(), ..inbox_memory },
            engine: engine.info().name.to_owned(),
            // After everything was registered: it says what can be written.
            engine_metadata: engine.metadata()?,
        };
        Ok(Self { _registrations: registrations, shard, inboxes, device, options, hello })
    }

    /// What the directory and the prefill ranks must know of it.
    pub const fn hello(&self) -> &WorkerHello {
        &self.hello
    }

    /// The memory of the page at `destination` in `layer`'s buffer number `buffer_idx`, `[page_bytes]`. Read it when it has
    /// arrived, before it is freed.
    ///
    /// # Errors
    /// [`WorkerError::NoSuchPage`], for another worker's page too.
    pub fn page(
        &self,
        layer: usize,
        buffer_idx: usize,
        destination: Destination,
    ) -> Result<DeviceBuffer, WorkerError> {
        let worker = self.options.worker;
        let page = match destination.worker == worker.0 {
            true => self.shard.page(layer, buffer_idx, destination.page_idx),
            false => None,
        };
        page.ok_or(WorkerError::NoSuchPage { worker, layer, buffer_idx, destination })
    }

    /// Fills all pages with `byte`, for tests: what does not arrive is then seen. Nothing is in flight.
    ///
    /// # Errors
    /// [`WorkerError::Device`].
    pub fn fill_pages(&self, byte: u8) -> Result<(), WorkerError> {
        for memory in self.shard.memory() {
            self.device.write(&vec![byte; memory.bytes() as usize], memory)?;
        }
        Ok(())
    }

    /// Where this worker's part of the request in `offer` arrives.
    ///
    /// # Errors
    /// [`ArrivalError::ForeignInbox`] for an offer that names no inbox of this worker.
    pub fn inbox(&self, offer: &Offer) -> Result<Inbox, ArrivalError> {
        let memory = self.inbox_memory(offer);
        let (request, worker) = (offer.request, self.options.worker);
        let memory = memory.ok_or(ArrivalError::ForeignInbox { request, worker })?;
        let expected = Expected::of(offer, &self.hello, self.options.prefill_group_size);
        Ok(Inbox::new(Arc::clone(&self.device), memory, worker, expected))
    }

    fn inbox_memory(&self, offer: &Offer) -> Option<DeviceBuffer> {
        let map = offer.inboxes.get(self.options.worker.idx())?;
        let own = self.hello.inboxes;
        let start = map.addr.checked_sub(own.addr)?;
        let inbox_idx = u32::try_from(start.checked_div(own.inbox(0)?.bytes())?).ok()?;
        if own.inbox(inbox_idx)? != *map {
            return None;
        }
        self.inboxes.slice(start..start + map.bytes()).ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::device::CpuDevice;
    use crate::transfer::decode::idle_engine::IdleEngine;
    use crate::transfer::{RequestId, TransferEpoch};
    use crate::units::{GroupSize, Rank};

    fn options() -> DecodeOptions {
        DecodeOptions {
            worker: Rank(1),
            num_workers: GroupSize::new(3).unwrap(),
            num_pages: 10,
            prefill_group_size: GroupSize::new(2).unwrap(),
            num_inboxes: 2,
            num_words: 5,
        }
    }

    fn start(engine: &Arc<IdleEngine>, options: DecodeOptions) -> Result<DecodeWorker, WorkerError> {
        let engine: Arc<dyn TransferEngine> = Arc::clone(engine) as _;
        DecodeWorker::start(Arc::new(CpuDevice), &engine, &ModelSpec::preset("tiny").unwrap(), options)
    }

    #[test]
    fn its_hello_passes_the_check_and_names_registered_memory_only() {
        let engine = Arc::new(IdleEngine::default());
        let worker = start(&engine, options()).unwrap();
        let hello = worker.hello();
        let geometry = Geometry::of(&ModelSpec::preset("tiny").unwrap()).unwrap();
        assert_eq!(hello.check(&geometry, "idle"), Ok(()));
        assert_eq!(hello.pool.num_pages, 4);
        let buffers = hello.pool.layers.iter().flatten();
        let mut named: Vec<_> = buffers.map(|buffer| (buffer.addr, 4 * buffer.page_bytes)).collect();
        named.push((hello.inboxes.addr, hello.inboxes.bytes().unwrap()));
        assert_eq!(engine.registered(), named);
        // The metadata of this engine count what is registered.
        assert_eq!(hello.engine_metadata, [7]);
        drop(worker);
        assert_eq!(engine.registered(), []);
    }

    #[test]
    fn a_worker_that_cannot_register_leaves_nothing_registered() {
        let engine = Arc::new(IdleEngine::that_takes(3));
        let error = start(&engine, options()).err().unwrap();
        assert!(matches!(error, WorkerError::Engine(_)), "{error}");
        assert_eq!((engine.registered(), engine.num_unregistered()), (Vec::new(), 3));
    }

    #[test]
    fn options_that_cannot_be_are_refused_by_name() {
        let cases = [
            (DecodeOptions { worker: Rank(3), ..options() }, "worker is 3, choose below num_workers"),
            (DecodeOptions { num_pages: 0, ..options() }, "num_pages is 0"),
            (DecodeOptions { num_pages: u32::MAX, ..options() }, "num_pages is 4294967295"),
            (DecodeOptions { num_inboxes: 0, ..options() }, "num_inboxes is 0"),
            (DecodeOptions { num_words: 0, ..options() }, "num_words is 0"),
            (DecodeOptions { num_inboxes: u32::MAX, num_words: u32::MAX, ..options() }, "too large"),
        ];
        for (options, message) in cases {
            let error = start(&Arc::default(), options).err().unwrap().to_string();
            assert!(error.contains(message), "{error}");
        }
    }

    #[test]
    fn a_page_is_the_memory_that_the_hello_names_and_others_are_refused() {
        let worker = start(&Arc::default(), options()).unwrap();
        let here = |page_idx| Destination { worker: 1, page_idx };
        let page = worker.page(2, 1, here(3)).unwrap();
        let buffer = worker.hello().pool.layers[2][1];
        assert_eq!((page.addr(), page.bytes()), (buffer.addr + 3 * buffer.page_bytes, buffer.page_bytes));
        worker.fill_pages(0xa5).unwrap();
        let mut bytes = vec![0; page.bytes() as usize];
        CpuDevice.read(&page, &mut bytes).unwrap();
        assert!(bytes.iter().all(|&byte| byte == 0xa5));
        let elsewhere = Destination { worker: 0, page_idx: 0 };
        for (layer, buffer_idx, place) in
            [(4, 0, here(0)), (1, 1, here(0)), (0, 0, here(4)), (0, 0, elsewhere)]
        {
            let error = worker.page(layer, buffer_idx, place).unwrap_err();
            assert!(matches!(error, WorkerError::NoSuchPage { worker: Rank(1), .. }), "{error}");
        }
    }

    #[test]
    fn only_offers_that_name_an_own_inbox_are_taken() {
        let worker = start(&Arc::default(), options()).unwrap();
        let own = worker.hello().inboxes.inbox(0).unwrap();
        let last = worker.hello().inboxes.inbox(1).unwrap();
        let offer = |inboxes| Offer {
            request: RequestId(7),
            epoch: TransferEpoch(1),
            destinations: Vec::new(),
            inboxes,
        };
        assert!(worker.inbox(&offer(vec![own; 3])).is_ok());
        assert!(worker.inbox(&offer(vec![last; 3])).is_ok());
        let mut moved = own;
        moved.addr += 64;
        let mut reshaped = own;
        reshaped.group_size = 1;
        let mut before = own;
        before.addr = 64;
        let mut behind = last;
        behind.addr += last.bytes();
        for inboxes in [vec![moved; 3], vec![reshaped; 3], vec![before; 3], vec![behind; 3], vec![own]] {
            let error = worker.inbox(&offer(inboxes)).err().unwrap();
            assert_eq!(error, ArrivalError::ForeignInbox { request: RequestId(7), worker: Rank(1) });
        }
    }
}
