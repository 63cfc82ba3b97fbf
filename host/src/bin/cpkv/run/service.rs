//! A decode worker as `run` uses it: receives pages, and knows from its own oracle what they must hold.

use std::sync::Arc;
use std::time::Duration;

use cpkv::deadline::Deadline;
use cpkv::device::{CpuDevice, Device, Stream};
use cpkv::plan::{BatchPlan, PlanShape};
use cpkv::transfer::decode::DecodeWorker;
use cpkv::transfer::{Destination, Offer, SystemClock, TransferEngine};
use cpkv::units::{PageId, Rank};
use cpkv::verify::Oracle;
use xxhash_rust::xxh3::Xxh3;

use super::aux::{AuxMemory, aux_bytes, aux_worker, entry_of};
use super::job::RunJob;
use super::message::{Command, Greeting, Reply, Seen};
use crate::error::RunError;

/// What pages hold before they arrive.
const POISON: u8 = 0xC3;

/// A decode worker.
pub(crate) struct DecodeService<'a> {
    job: &'a RunJob,
    device: Arc<dyn Device>,
    stream: Arc<dyn Stream>,
    // Before the engine that its memory is registered with.
    worker: DecodeWorker,
    number: u32,
    aux: AuxMemory,
    oracle: Oracle,
    _engine: Arc<dyn TransferEngine>,
}

impl<'a> DecodeService<'a> {
    /// Starts worker `number` with `engine`.
    pub(crate) fn start(
        job: &'a RunJob,
        engine: Arc<dyn TransferEngine>,
        number: u32,
    ) -> Result<Self, RunError> {
        let device: Arc<dyn Device> = Arc::new(CpuDevice);
        let aux = AuxMemory::of_worker(&*device, job)?;
        // Before the worker starts: its hello says what can be written.
        engine.register(aux.memory())?;
        let worker =
            DecodeWorker::start(Arc::clone(&device), &engine, &job.base.model, job.decode_options(number)?)?;
        let stream = device.stream()?;
        let oracle = oracle_of(job, job.seed(0));
        Ok(Self { job, device, stream, worker, number, aux, oracle, _engine: engine })
    }

    /// How it can be reached.
    pub(crate) fn greeting(&self) -> Greeting {
        Greeting {
            hello: self.worker.hello().clone(),
            aux_addr: self.aux.memory().addr(),
            pid: std::process::id(),
        }
    }

    /// Does what it is told.
    pub(crate) fn answer(&mut self, command: &Command) -> Reply {
        self.try_answer(command).unwrap_or_else(|error| Reply::Failed { message: error.to_string() })
    }

    fn try_answer(&mut self, command: &Command) -> Result<Reply, RunError> {
        match command {
            Command::Poison { offer } => self.poison(offer)?,
            Command::Verify { offer, pages } => {
                return Ok(Reply::Seen(self.verify(offer, pages)?));
            }
            Command::Persisted { batch_idx } => self.persisted(*batch_idx)?,
            Command::Restart { seed } => self.oracle = oracle_of(self.job, *seed),
        }
        Ok(Reply::Done)
    }

    /// The oracle follows the ranks: writers are the same in every rank's plan.
    fn persisted(&mut self, batch_idx: usize) -> Result<(), RunError> {
        let Some(planned) = self.job.base.batches.get(batch_idx) else { return Ok(()) };
        let shape = PlanShape {
            group_size: self.job.base.group_size,
            page_size: self.job.base.model.page_size,
            num_logical_pages: self.job.base.num_pool_pages,
        };
        let plan =
            BatchPlan::build(shape, Rank(0), &planned.batch).map_err(cpkv::compose::ComposeError::from)?;
        self.oracle.persisted(&plan.slots);
        Ok(())
    }

    fn poison(&self, offer: &Offer) -> Result<(), RunError> {
        for (_, place) in self.places(offer) {
            for layer in 0..self.job.num_layers() {
                for buffer_idx in 0..self.job.base.model.buffers_of(layer).len() {
                    let page = self.worker.page(layer, buffer_idx, place)?;
                    self.stream.upload(vec![POISON; page.bytes() as usize], &page)?;
                }
            }
        }
        Ok(self.stream.synchronize(self.deadline())?)
    }

    fn verify(&self, offer: &Offer, pages: &[PageId]) -> Result<Seen, RunError> {
        self.worker.inbox(offer)?.wait(&SystemClock, self.job.base.timeout)?;
        let mut seen = Seen::default();
        if aux_worker(offer.request, self.job.args.decode_workers) == self.number {
            self.verify_aux(offer, &mut seen)?;
        }
        for (position, place) in self.places(offer) {
            let page = pages.get(position as usize).copied().unwrap_or(PageId::PAD);
            let digest = self.look(offer, place, (position, page), &mut seen)?;
            seen.digests.push((position, format!("{digest:032x}")));
        }
        Ok(seen)
    }

    /// A hash of a page in all layers, whose bytes are compared with the oracle's.
    fn look(
        &self,
        offer: &Offer,
        place: Destination,
        (position, page): (u32, PageId),
        seen: &mut Seen,
    ) -> Result<u128, RunError> {
        let mut hash = Xxh3::new();
        for layer in 0..self.job.num_layers() {
            for (buffer_idx, &buffer) in self.job.base.model.buffers_of(layer).iter().enumerate() {
                let memory = self.worker.page(layer, buffer_idx, place)?;
                let mut bytes = vec![0; memory.bytes() as usize];
                self.stream.download(&memory, &mut bytes, self.deadline())?;
                hash.update(&bytes);
                seen.checked_bytes += bytes.len() as u64;
                let expected = self.oracle.pool_page(layer, buffer, page);
                if let Some(byte) = bytes.iter().zip(&expected).position(|(a, b)| a != b)
                    && seen.difference.is_none()
                {
                    seen.difference = Some(format!(
                        "decode worker {}, request {}, page {position} of it, layer {layer}, buffer {}, byte {byte}: {:#04x} \
                         instead of {:#04x}",
                        self.number, offer.request, buffer.0, bytes[byte], expected[byte]
                    ));
                }
            }
        }
        Ok(hash.digest128())
    }

    fn verify_aux(&self, offer: &Offer, seen: &mut Seen) -> Result<(), RunError> {
        for rank in self.job.base.group_size.ranks() {
            let memory = self.aux.buffer(entry_of(offer.request), rank.0)?;
            let mut bytes = vec![0; memory.bytes() as usize];
            self.device.read(&memory, &mut bytes)?;
            if bytes != aux_bytes(offer.epoch, rank) && seen.difference.is_none() {
                let request = offer.request;
                seen.difference =
                    Some(format!("request {request}: the extra buffer of rank {rank} is wrong"));
            }
        }
        Ok(())
    }

    /// The positions of a request that come to this worker, and their places.
    fn places(&self, offer: &Offer) -> impl Iterator<Item = (u32, Destination)> {
        let number = self.number;
        let places = (0..).zip(offer.destinations.clone());
        places.filter_map(move |(position, place)| {
            Some((position, place.filter(|place| place.worker == number)?))
        })
    }

    fn deadline(&self) -> Deadline {
        Deadline::after(self.job.base.timeout.max(Duration::from_secs(1)))
    }
}

fn oracle_of(job: &RunJob, seed: u64) -> Oracle {
    Oracle::new(job.base.model.clone(), job.base.num_pool_pages, seed)
}
