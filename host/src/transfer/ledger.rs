//! The ledger of one request on one rank: for every layer and page that this rank is to send, how far it is. Pure.
//!
//! | state | means | leaves by |
//! |---|---|---|
//! | *unsent* | the engine was not asked | `claim`: in flight |
//! | *in flight* | the engine has it | `settle`: sent; `lose`: unknown; `give_back` (it was refused whole): unsent |
//! | *sent* | the engine says that it is complete | never |
//! | *unknown* | it failed, and may have been written, or may be yet: its pages are not to be reused | `forgive`: unsent |
//!
//! Only `claim` leads to a send, and only from *unsent*: that is the proof of "exactly once".

use std::collections::BTreeSet;

use thiserror::Error;

/// How far a page of a layer is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum PageState {
    /// The engine was not asked to send it.
    Unsent,
    /// The engine has it.
    InFlight,
    /// It is complete.
    Sent,
    /// It failed: nobody knows what was written.
    Unknown,
}

impl PageState {
    const ALL: [Self; 4] = [Self::Unsent, Self::InFlight, Self::Sent, Self::Unknown];
}

/// A part of a request: pages that become complete together, by their positions in the request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PartIdx(pub usize);

/// What must not happen.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum LedgerError {
    /// A page would be sent a second time.
    #[error("layer {layer}, page {position} of the request is {state:?} and would be sent again")]
    Twice {
        /// The layer.
        layer: usize,
        /// The page's position in the request.
        position: u32,
        /// Its state.
        state: PageState,
    },
    /// A page that is not in flight came to an end.
    #[error("layer {layer}, page {position} of the request is {state:?}, not in flight, and came to an end")]
    NotInFlight {
        /// The layer.
        layer: usize,
        /// The page's position in the request.
        position: u32,
        /// Its state.
        state: PageState,
    },
    /// There is no such page.
    #[error("part {part} of the request has no page {idx} in layer {layer}")]
    NoPage {
        /// The part.
        part: usize,
        /// The layer.
        layer: usize,
        /// The page's index in the part.
        idx: u32,
    },
    /// A page belongs to two parts.
    #[error("page {position} of the request is part of it already: a page becomes complete once")]
    Repeated {
        /// Its position in the request.
        position: u32,
    },
}

struct Part {
    positions: Vec<u32>,
    /// `[num_layers, positions]`.
    states: Vec<PageState>,
}

/// The ledger of one request.
pub struct Ledger {
    num_layers: usize,
    parts: Vec<Part>,
    positions: BTreeSet<u32>,
    counts: [u64; 4],
}

impl Ledger {
    /// A ledger without pages, for a model of `num_layers` layers.
    pub const fn new(num_layers: usize) -> Self {
        Self { num_layers, parts: Vec::new(), positions: BTreeSet::new(), counts: [0; 4] }
    }

    /// Adds the pages at `positions` of the request, unsent in every layer.
    ///
    /// # Errors
    /// [`LedgerError::Repeated`], with nothing added.
    pub fn add(&mut self, positions: Vec<u32>) -> Result<PartIdx, LedgerError> {
        let mut seen = BTreeSet::new();
        for &position in &positions {
            if self.positions.contains(&position) || !seen.insert(position) {
                return Err(LedgerError::Repeated { position });
            }
        }
        self.positions.extend(seen);
        let states = vec![PageState::Unsent; self.num_layers * positions.len()];
        self.counts[PageState::Unsent as usize] += states.len() as u64;
        self.parts.push(Part { positions, states });
        Ok(PartIdx(self.parts.len() - 1))
    }

    /// Takes pages to send them: `which` are indices into the part's positions.
    ///
    /// # Errors
    /// [`LedgerError::Twice`], [`LedgerError::NoPage`], with nothing taken.
    pub fn claim(&mut self, part: PartIdx, layer: usize, which: &[u32]) -> Result<(), LedgerError> {
        self.change(part, layer, which, PageState::Unsent, PageState::InFlight)
    }

    /// The engine refused pages that were claimed: it has none of them.
    ///
    /// # Errors
    /// [`LedgerError::NotInFlight`], [`LedgerError::NoPage`], with nothing changed.
    pub fn give_back(&mut self, part: PartIdx, layer: usize, which: &[u32]) -> Result<(), LedgerError> {
        self.change(part, layer, which, PageState::InFlight, PageState::Unsent)
    }

    /// Pages in flight are complete.
    ///
    /// # Errors
    /// [`LedgerError::NotInFlight`], [`LedgerError::NoPage`], with nothing changed.
    pub fn settle(&mut self, part: PartIdx, layer: usize, which: &[u32]) -> Result<(), LedgerError> {
        self.change(part, layer, which, PageState::InFlight, PageState::Sent)
    }

    /// Pages in flight failed.
    ///
    /// # Errors
    /// [`LedgerError::NotInFlight`], [`LedgerError::NoPage`], with nothing changed.
    pub fn lose(&mut self, part: PartIdx, layer: usize, which: &[u32]) -> Result<(), LedgerError> {
        self.change(part, layer, which, PageState::InFlight, PageState::Unknown)
    }

    /// Whoever reads or writes the pages in flight and the lost ones is gone.
    pub fn forgive(&mut self) {
        for state in self.parts.iter_mut().flat_map(|part| &mut part.states) {
            if matches!(state, PageState::InFlight | PageState::Unknown) {
                self.counts[*state as usize] -= 1;
                self.counts[PageState::Unsent as usize] += 1;
                *state = PageState::Unsent;
            }
        }
    }

    /// Takes pages from one state to another, all or none.
    fn change(
        &mut self,
        part: PartIdx,
        layer: usize,
        which: &[u32],
        from: PageState,
        to: PageState,
    ) -> Result<(), LedgerError> {
        let (num_layers, counts) = (self.num_layers, &mut self.counts);
        let Some(Part { positions, states }) = self.parts.get_mut(part.0).filter(|_| layer < num_layers)
        else {
            let first = which.first();
            return first.map_or(Ok(()), |&idx| Err(LedgerError::NoPage { part: part.0, layer, idx }));
        };
        let first = layer * positions.len();
        let mut seen = BTreeSet::new();
        for &idx in which {
            let Some(&position) = positions.get(idx as usize) else {
                return Err(LedgerError::NoPage { part: part.0, layer, idx });
            };
            // Named twice, it is in the next state by then.
            let state = if seen.insert(idx) { states[first + idx as usize] } else { to };
            match from {
                _ if state == from => {}
                PageState::Unsent => return Err(LedgerError::Twice { layer, position, state }),
                _ => return Err(LedgerError::NotInFlight { layer, position, state }),
            }
        }
        counts[from as usize] -= which.len() as u64;
        counts[to as usize] += which.len() as u64;
        which.iter().for_each(|&idx| states[first + idx as usize] = to);
        Ok(())
    }

    /// (layer, page) pairs in `state`.
    pub const fn num(&self, state: PageState) -> u64 {
        self.counts[state as usize]
    }

    /// (layer, page) pairs in all.
    pub fn num_pairs(&self) -> u64 {
        PageState::ALL.map(|state| self.num(state)).iter().sum()
    }

    /// The state of the page at `position` of the request in `layer`; `None` where this rank does not send it.
    pub fn state(&self, layer: usize, position: u32) -> Option<PageState> {
        self.parts.iter().find_map(|part| {
            let idx = part.positions.iter().position(|&at| at == position)?;
            part.states.get(layer * part.positions.len() + idx).copied()
        })
    }

    /// The first layer in which a page is unsent.
    pub fn first_unsent(&self) -> Option<usize> {
        let of_part = |part: &Part| {
            let at = part.states.iter().position(|state| *state == PageState::Unsent)?;
            Some(at / part.positions.len().max(1))
        };
        self.parts.iter().filter_map(of_part).min()
    }

    /// Positions of pages that are in flight or unknown in some layer, ascending; with `sent`, of those too that are sent.
    pub fn unsettled(&self, sent: bool) -> Vec<u32> {
        let of_part = |part: &Part| -> Vec<u32> {
            let num = part.positions.len();
            let busy = |idx: &usize| {
                let states = part.states.iter().skip(*idx).step_by(num.max(1));
                states.into_iter().any(|state| match state {
                    PageState::InFlight | PageState::Unknown => true,
                    PageState::Sent => sent,
                    PageState::Unsent => false,
                })
            };
            (0..num).filter(busy).map(|idx| part.positions[idx]).collect()
        };
        let mut positions: Vec<u32> = self.parts.iter().flat_map(of_part).collect();
        positions.sort_unstable();
        positions
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_is_claimed_once_in_each_layer_and_never_again() {
        let mut ledger = Ledger::new(2);
        let part = ledger.add(vec![4, 6, 9]).unwrap();
        ledger.claim(part, 1, &[0, 2]).unwrap();
        assert_eq!((ledger.num(PageState::InFlight), ledger.num(PageState::Unsent)), (2, 4));
        let twice = ledger.claim(part, 1, &[1, 2]).unwrap_err();
        assert_eq!(twice, LedgerError::Twice { layer: 1, position: 9, state: PageState::InFlight });
        assert_eq!(ledger.state(1, 6), Some(PageState::Unsent), "all or nothing");
        ledger.settle(part, 1, &[0, 2]).unwrap();
        assert!(ledger.claim(part, 1, &[0]).is_err());
        ledger.claim(part, 0, &[0, 1, 2]).unwrap();
        ledger.lose(part, 0, &[0, 1, 2]).unwrap();
        assert!(ledger.claim(part, 0, &[1]).is_err());
        assert_eq!(ledger.unsettled(false), [4, 6, 9]);
        assert_eq!((ledger.num(PageState::Sent), ledger.num_pairs()), (2, 6));
        assert_eq!(ledger.state(0, 5), None);
        ledger.forgive();
        assert_eq!((ledger.unsettled(false), ledger.num(PageState::Unsent)), (Vec::new(), 4));
    }

    #[test]
    fn what_was_refused_whole_may_be_claimed_again() {
        let mut ledger = Ledger::new(1);
        let part = ledger.add(vec![0, 1]).unwrap();
        ledger.claim(part, 0, &[0, 1]).unwrap();
        ledger.give_back(part, 0, &[0, 1]).unwrap();
        assert_eq!(ledger.claim(part, 0, &[1]), Ok(()));
        assert_eq!(ledger.unsettled(false), [1]);
    }

    #[test]
    fn what_is_not_in_flight_comes_to_no_end_and_what_is_not_there_to_nothing() {
        let mut ledger = Ledger::new(2);
        let part = ledger.add(vec![4, 6]).unwrap();
        ledger.claim(part, 0, &[0]).unwrap();
        let unsent = LedgerError::NotInFlight { layer: 0, position: 6, state: PageState::Unsent };
        let sent = LedgerError::NotInFlight { layer: 0, position: 4, state: PageState::Sent };
        assert_eq!(ledger.settle(part, 0, &[0, 1]), Err(unsent));
        assert_eq!(ledger.num(PageState::InFlight), 1, "all or nothing");
        ledger.settle(part, 0, &[0]).unwrap();
        assert_eq!(ledger.give_back(part, 0, &[0]), Err(sent));
        assert_eq!(ledger.lose(part, 0, &[0]), Err(sent));
        assert!(matches!(ledger.claim(part, 1, &[1, 1]), Err(LedgerError::Twice { position: 6, .. })));
        for (part, layer, idx) in [(part, 0, 2), (part, 2, 0), (PartIdx(1), 0, 0)] {
            let missing = LedgerError::NoPage { part: part.0, layer, idx };
            assert_eq!(ledger.claim(part, layer, &[idx]), Err(missing));
        }
        assert_eq!((ledger.num(PageState::Unsent), ledger.num(PageState::Sent)), (3, 1));
    }

    #[test]
    fn a_page_belongs_to_one_part() {
        let mut ledger = Ledger::new(1);
        ledger.add(vec![0, 1]).unwrap();
        assert_eq!(ledger.add(vec![2, 1]), Err(LedgerError::Repeated { position: 1 }));
        assert_eq!(ledger.add(vec![2, 2]), Err(LedgerError::Repeated { position: 2 }));
        assert!(ledger.add(vec![2, 3]).is_ok());
        assert_eq!(ledger.num_pairs(), 4);
    }
}
