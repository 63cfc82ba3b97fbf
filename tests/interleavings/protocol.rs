//! A protocol as a pure value, and the program that every rank of it runs.

use crate::state::Stamp;

/// Where the staging half of one step comes from. Only `Epoch` is right for every number of layers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum HalfBy {
    Epoch,
    Layer,
    Batch,
    Single,
}

/// When a rank reads its peers' prefix pages, relative to the barrier of that layer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PrefixReads {
    AfterBarrier,
    BeforeBarrier,
}

/// When an owner writes its pool page, relative to the barrier of that layer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PoolWrites {
    AfterGather,
    BeforeBarrier,
}

/// One planted fault. A check that cannot find it is worth nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fault {
    None,
    /// Rank 0 never adds -1 to its peers' words.
    MissingPeerAdd,
    /// Rank 0 leaves the barrier without waiting.
    MissingWait,
    /// A barrier that timed out returns and poisons nobody.
    TimeoutWithoutPoison,
    /// A barrier that timed out poisons its own rank only.
    PoisonStaysLocal,
    /// A barrier that timed out poisons its peers only.
    PoisonMissesSelf,
    /// `fill` does not look at the poison word.
    FillIgnoresPoison,
    /// `gather` does not look at the poison word.
    GatherIgnoresPoison,
    /// `persist` does not look at the poison word.
    PersistIgnoresPoison,
    /// The barrier does not look at the poison word once more after its wait succeeded.
    NoCheckAfterWait,
}

/// Everything a search depends on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Protocol {
    pub(crate) num_ranks: u8,
    pub(crate) num_layers: u8,
    pub(crate) num_batches: u8,
    pub(crate) half: HalfBy,
    pub(crate) prefix_reads: PrefixReads,
    pub(crate) pool_writes: PoolWrites,
    /// One more barrier at the end of every batch. It is an epoch like any other.
    pub(crate) closing_barrier: bool,
    /// How many waits may time out in one run. Zero: poison is not modelled, no kernel looks for it.
    pub(crate) max_timeouts: u8,
    /// One rank may halt for ever, at any moment except while it spreads poison.
    pub(crate) may_halt: bool,
    /// Leave out interleavings that differ in nothing a rank can see (`Model::moves` says which).
    pub(crate) reduced: bool,
    pub(crate) fault: Fault,
}

/// One launch on a rank's stream. Kernels of a rank run one after another, lanes of a kernel in any order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kernel {
    /// Writes `stamp` to this rank's own staging half. One lane.
    Fill { half: u8, stamp: Stamp },
    /// One lane per peer.
    Barrier,
    /// Reads the peers' pool pages, apart from the gather. One lane per peer.
    ReadPrefix(PrefixPage),
    /// Reads the peers' staging halves and, where given, their pool pages. One lane per read.
    Gather { half: u8, stamp: Stamp, prefix: Option<PrefixPage> },
    /// Writes `stamp` to this rank's own pool page. One lane.
    Persist { layer: u8, page: u8, stamp: Stamp },
}

/// The page of one layer that an earlier batch persisted, and what must be found there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct PrefixPage {
    pub(crate) layer: u8,
    pub(crate) page: u8,
    pub(crate) stamp: Stamp,
}

/// Pages each owner has in one layer's pool. Two is the tightest reuse the rules allow: a page is current in
/// batch k, prefix in batch k + 1, recycled and current again in batch k + 2.
pub(crate) const NUM_POOL_PAGES: u8 = 2;

impl Protocol {
    /// The order of `staging_fill`: the one that has to be right.
    pub(crate) const fn staging_fill(num_ranks: u8, num_layers: u8, num_batches: u8) -> Self {
        Self {
            num_ranks,
            num_layers,
            num_batches,
            half: HalfBy::Epoch,
            prefix_reads: PrefixReads::AfterBarrier,
            pool_writes: PoolWrites::AfterGather,
            closing_barrier: false,
            max_timeouts: 0,
            may_halt: false,
            reduced: false,
            fault: Fault::None,
        }
    }

    /// The program of every rank: the ranks differ only in which of the words and pages are their own.
    pub(crate) fn program(&self) -> Vec<Kernel> {
        let mut program = Vec::new();
        let mut epoch = 0;
        for batch in 0..self.num_batches {
            for layer in 0..self.num_layers {
                self.push_layer(&mut program, batch, layer, epoch);
                epoch += 1;
            }
            if self.closing_barrier {
                program.push(Kernel::Barrier);
                epoch += 1;
            }
        }
        program
    }

    fn push_layer(&self, program: &mut Vec<Kernel>, batch: u8, layer: u8, epoch: u8) {
        let stamp = Stamp::new(batch, layer);
        let half = match self.half {
            HalfBy::Epoch => epoch % 2,
            HalfBy::Layer => layer % 2,
            HalfBy::Batch => batch % 2,
            HalfBy::Single => 0,
        };
        let prefix = batch.checked_sub(1).map(|previous| PrefixPage {
            layer,
            page: previous % NUM_POOL_PAGES,
            stamp: Stamp::new(previous, layer),
        });
        let persist = Kernel::Persist { layer, page: batch % NUM_POOL_PAGES, stamp };

        program.push(Kernel::Fill { half, stamp });
        if self.prefix_reads == PrefixReads::BeforeBarrier {
            program.extend(prefix.map(Kernel::ReadPrefix));
        }
        if self.pool_writes == PoolWrites::BeforeBarrier {
            program.push(persist);
        }
        program.push(Kernel::Barrier);
        let gathered = prefix.filter(|_| self.prefix_reads == PrefixReads::AfterBarrier);
        program.push(Kernel::Gather { half, stamp, prefix: gathered });
        if self.pool_writes == PoolWrites::AfterGather {
            program.push(persist);
        }
    }
}
