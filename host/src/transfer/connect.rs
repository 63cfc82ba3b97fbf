//! Making decode workers known to a prefill rank: compared first, then in the order of their numbers.

use std::collections::BTreeMap;

use thiserror::Error;

use super::engine::{EngineError, TransferEngine};
use super::failure::Cause;
use super::handshake::{Geometry, HandshakeError, WorkerHello};
use super::route::{DecodeGroup, Source, WorkerRoute};

/// Why a decode group cannot be sent to.
#[derive(Clone, Debug, PartialEq, Error)]
#[non_exhaustive]
pub enum ConnectError {
    /// A worker that does not fit this side.
    #[error(transparent)]
    Handshake(#[from] HandshakeError),
    /// Workers that have not said hello.
    #[error("worker {worker} of {num_workers} has not said hello: wait for all of them")]
    Missing {
        /// The first that is missing.
        worker: u32,
        /// Workers of the group.
        num_workers: u32,
    },
    /// A worker that said hello twice, or one of another group.
    #[error("worker {worker} of {num_workers} is one too many: were two decode groups started?")]
    TooMany {
        /// The worker.
        worker: u32,
        /// Workers of its group.
        num_workers: u32,
    },
    /// The engine does not reach a worker.
    #[error("worker {worker}: {source}")]
    Engine {
        /// The worker.
        worker: u32,
        /// Why.
        source: EngineError,
    },
    /// A worker whose pages are not like this side's.
    #[error(transparent)]
    Pool(#[from] Cause),
}

impl DecodeGroup {
    /// Makes the workers whose `hellos` these are, in any order, known to `engine`, once each of them fits `source` and its
    /// `geometry`. Each has an engine of its own. A worker that `engine` knew already, started anew or not, is known anew:
    /// requests to it from before fail at their next submit.
    ///
    /// # Errors
    /// [`ConnectError`]: the first that does not fit; the engine then knows none of them.
    pub fn connect(
        source: &Source,
        engine: &dyn TransferEngine,
        geometry: &Geometry,
        hellos: &[WorkerHello],
    ) -> Result<Self, ConnectError> {
        let name = engine.info().name;
        for hello in hellos {
            hello.check(geometry, name)?;
            hello.check_group_size(source.group_size)?;
        }
        let hellos = in_order(hellos)?;
        let mut routes: Vec<WorkerRoute> = Vec::with_capacity(hellos.len());
        let forget = |routes: &[WorkerRoute]| {
            for route in routes {
                // The first failure is the one to tell.
                let _ = engine.remove_peer(route.peer);
            }
        };
        for hello in hellos {
            match engine.add_peer(&hello.engine_metadata) {
                Ok(peer) => routes.push(WorkerRoute { peer, pool: hello.pool.clone() }),
                Err(source) => {
                    forget(&routes);
                    return Err(ConnectError::Engine { worker: hello.worker, source });
                }
            }
        }
        let group = Self::new(source, routes.clone());
        group.inspect_err(|_| forget(&routes)).map_err(ConnectError::from)
    }
}

/// The workers of one group by number, each once.
fn in_order(hellos: &[WorkerHello]) -> Result<Vec<&WorkerHello>, ConnectError> {
    let num_workers = hellos.first().map_or(1, |hello| hello.num_workers);
    let mut by_worker = BTreeMap::new();
    for hello in hellos {
        let is_new = by_worker.insert(hello.worker, hello).is_none();
        if !is_new || hello.num_workers != num_workers {
            return Err(ConnectError::TooMany { worker: hello.worker, num_workers: hello.num_workers });
        }
    }
    match (0..num_workers).find(|worker| !by_worker.contains_key(worker)) {
        Some(worker) => Err(ConnectError::Missing { worker, num_workers }),
        None => Ok(by_worker.into_values().collect()),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::device::CpuDevice;
    use crate::model::ModelSpec;
    use crate::transfer::{
        Block, DecodeOptions, DecodeWorker, EngineProblem, Fabric, InProcessEngine, PeerId,
    };
    use crate::units::{GroupSize, Rank};

    /// A prefill rank's side, and the workers of a decode group of two.
    struct Sides {
        source: Source,
        engine: InProcessEngine,
        geometry: Geometry,
        hellos: Vec<WorkerHello>,
        _workers: Vec<DecodeWorker>,
    }

    fn sides() -> Sides {
        let (fabric, model) = (Fabric::new(), ModelSpec::preset("tiny").unwrap());
        let geometry = Geometry::of(&model).unwrap();
        let start = |number: u32| {
            let engine: Arc<dyn TransferEngine> =
                Arc::new(fabric.endpoint(&format!("decode {number}")).unwrap());
            let options = DecodeOptions {
                worker: Rank(number),
                num_workers: GroupSize::new(2).unwrap(),
                num_pages: 8,
                prefill_group_size: GroupSize::new(3).unwrap(),
                num_inboxes: 1,
                num_words: 4,
            };
            DecodeWorker::start(Arc::new(CpuDevice), &engine, &model, options).unwrap()
        };
        let workers: Vec<_> = (0..2).map(start).collect();
        let hellos: Vec<_> = workers.iter().map(|worker| worker.hello().clone()).collect();
        let group_size = GroupSize::new(3).unwrap();
        let source = Source { rank: Rank(1), group_size, pool: hellos[0].pool.clone() };
        let engine = fabric.endpoint("prefill").unwrap();
        Sides { source, engine, geometry, hellos, _workers: workers }
    }

    impl Sides {
        fn connect(&self, hellos: &[WorkerHello]) -> Result<DecodeGroup, ConnectError> {
            DecodeGroup::connect(&self.source, &self.engine, &self.geometry, hellos)
        }

        /// Whether the engine knows this peer.
        fn knows(&self, peer: u32) -> bool {
            let problem =
                self.engine.submit(PeerId(peer), &[Block { src: 0, dst: 0, bytes: 8 }]).unwrap_err();
            problem.problem != EngineProblem::UnknownPeer
        }
    }

    #[test]
    fn workers_are_routed_by_their_number_in_whatever_order_they_said_hello() {
        let sides = sides();
        let [first, second] = &sides.hellos[..] else { panic!("two workers") };
        let group = sides.connect(&[second.clone(), first.clone()]).unwrap();
        let pools: Vec<_> = group.workers().iter().map(|route| &route.pool).collect();
        assert_eq!(pools, [&first.pool, &second.pool]);
        assert!(sides.knows(0) && sides.knows(1) && !sides.knows(2));
    }

    #[test]
    fn groups_that_are_not_whole_or_do_not_fit_are_refused_and_nobody_is_made_known() {
        let sides = sides();
        let [first, second] = &sides.hellos[..] else { panic!("two workers") };
        let changed = |change: &dyn Fn(&mut WorkerHello)| {
            let mut hello = second.clone();
            change(&mut hello);
            [first.clone(), hello]
        };
        let cases = [
            (vec![], "worker 0 of 1 has not said hello"),
            (vec![second.clone()], "worker 0 of 2 has not said hello"),
            (vec![first.clone(); 2], "worker 0 of 2 is one too many"),
            (changed(&|hello| hello.num_workers = 3).to_vec(), "worker 1 of 3 is one too many"),
            (
                changed(&|hello| hello.engine = "other".to_owned()).to_vec(),
                "engine `in-process` here, `other`",
            ),
            (changed(&|hello| hello.geometry.page_size = 8).to_vec(), "page size 4 here, 8 there"),
            (changed(&|hello| hello.inboxes.group_size = 2).to_vec(), "this prefill group has 3 ranks"),
        ];
        for (hellos, message) in cases {
            let error = sides.connect(&hellos).unwrap_err().to_string();
            assert!(error.contains(message), "{error}");
        }
        assert!(!sides.knows(0), "a worker of a group that was refused");
    }

    #[test]
    fn a_worker_that_cannot_be_reached_is_named_and_the_others_are_forgotten() {
        let sides = sides();
        let mut hellos = sides.hellos.clone();
        hellos[1].engine_metadata.truncate(1);
        let error = sides.connect(&hellos).unwrap_err();
        assert!(matches!(&error, ConnectError::Engine { worker: 1, .. }), "{error}");
        assert!(!sides.knows(0));
        sides.connect(&sides.hellos).unwrap();
    }

    #[test]
    fn a_source_whose_pages_are_not_those_of_its_geometry_is_refused() {
        let mut sides = sides();
        sides.source.pool.layers[0][0].page_bytes = 96;
        let error = sides.connect(&sides.hellos).unwrap_err();
        assert!(matches!(error, ConnectError::Pool(Cause::Pool { worker: 0, .. })), "{error}");
        assert!(!sides.knows(0) && !sides.knows(1));
    }
}
