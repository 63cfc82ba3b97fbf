//! The barriers of a block.

use super::fault::{Cause, FaultKind};

/// Barriers a block has.
const NUM_BARS: usize = 16;

/// The barriers of a block.
#[derive(Debug, Default)]
pub(crate) struct Bars {
    bars: [Bar; NUM_BARS],
}

#[derive(Debug, Default)]
struct Bar {
    num_arrived: u32,
    waiting: Vec<u32>,
    /// How many threads it waits for; `None`: all that live.
    count: Option<u32>,
}

impl Bars {
    /// `thread` arrives; returns the threads that go on.
    pub(crate) fn arrive(
        &mut self,
        id: u64,
        thread: u32,
        count: Option<u32>,
        waits: bool,
        num_live: u32,
    ) -> Result<Vec<u32>, Box<Cause>> {
        let Some(bar) = usize::try_from(id).ok().and_then(|id| self.bars.get_mut(id)) else {
            return Err(Cause::plain(FaultKind::Other, format!("there is no barrier {id}")));
        };
        if bar.num_arrived > 0 && bar.count != count {
            let what = format!("barrier {id} is used with different numbers of threads at a time");
            return Err(Cause::plain(FaultKind::Other, what));
        }
        if let Some(count) = count
            && (count == 0 || !count.is_multiple_of(32))
        {
            let what = format!("{count} threads at a barrier: it must be a multiple of 32");
            return Err(Cause::plain(FaultKind::Other, what));
        }
        bar.count = count;
        bar.num_arrived += 1;
        if waits {
            bar.waiting.push(thread);
        }
        Ok(bar.complete(num_live))
    }

    /// A thread exited; returns the threads that go on.
    pub(crate) fn exited(&mut self, num_live: u32) -> Vec<u32> {
        self.bars
            .iter_mut()
            .filter(|bar| bar.num_arrived > 0)
            .flat_map(|bar| bar.complete(num_live))
            .collect()
    }
}

impl Bar {
    fn complete(&mut self, num_live: u32) -> Vec<u32> {
        if self.num_arrived < self.count.unwrap_or(num_live) {
            return Vec::new();
        }
        self.num_arrived = 0;
        std::mem::take(&mut self.waiting)
    }
}
