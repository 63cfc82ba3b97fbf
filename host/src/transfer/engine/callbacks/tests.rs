//! Functions of the caller that answer, fail, and break their word.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use super::functions::PANICKED;
use super::*;
use crate::device::{CpuDevice, Device};

/// An engine that is done at once.
fn done() -> EngineCallbacks {
    EngineCallbacks::new(Box::new(|_, _, _, _| Ok(7)), Box::new(|_| Ok(true)))
}

/// The engine with one peer, memory of 64 bytes, and a block from it.
fn engine(callbacks: EngineCallbacks) -> (CallbackEngine, PeerId, DeviceBuffer, Block) {
    let engine = CallbackEngine::new(callbacks);
    let memory = CpuDevice.alloc(64).unwrap();
    engine.register(&memory).unwrap();
    let peer = engine.add_peer(b"10.0.0.7:1234").unwrap();
    let block = Block { src: memory.addr(), dst: 4096, bytes: 16 };
    (engine, peer, memory, block)
}

/// What one batch of an engine with this `poll` ends with.
fn end_of(poll: PollFn) -> (CallbackEngine, BatchId, Result<BatchState, EngineError>) {
    let (engine, peer, _, block) = engine(EngineCallbacks { poll, ..done() });
    let batch = engine.submit(peer, &[block]).unwrap();
    let outcome = engine.poll(batch);
    (engine, batch, outcome)
}

#[test]
fn submit_gets_the_peer_and_every_block_that_has_bytes() {
    let submit: SubmitFn = Box::new(|peer, srcs, dsts, lens| {
        assert_eq!(peer, b"10.0.0.7:1234");
        assert_eq!((srcs.len(), dsts, lens), (2, &[4096, 6000][..], &[16, 3][..]));
        assert_eq!(srcs[1] - srcs[0], 1);
        Ok(0)
    });
    let (engine, peer, _memory, block) = engine(EngineCallbacks { submit, ..done() });
    let blocks = [block, Block { bytes: 0, ..block }, Block { src: block.src + 1, dst: 6000, bytes: 3 }];
    let batch = engine.submit(peer, &blocks).unwrap();
    assert_eq!(engine.poll(batch), Ok(BatchState::Done));
}

#[test]
fn handles_may_repeat_and_our_ids_never_do() {
    let (engine, peer, _memory, block) = engine(done());
    let batches: Vec<BatchId> = (0..3).map(|_| engine.submit(peer, &[block]).unwrap()).collect();
    assert_eq!(batches, [BatchId(0), BatchId(1), BatchId(2)]);
    for batch in batches {
        assert_eq!(engine.poll(batch), Ok(BatchState::Done));
        assert_eq!(engine.poll(batch).unwrap_err().problem, EngineProblem::UnknownBatch);
    }
}

#[test]
fn an_empty_batch_is_done_and_never_reaches_the_caller() {
    let callbacks =
        EngineCallbacks::new(Box::new(|_, _, _, _| panic!("called")), Box::new(|_| panic!("called")));
    let (engine, peer, _memory, block) = engine(callbacks);
    for blocks in [&[][..], &[Block { bytes: 0, ..block }]] {
        let batch = engine.submit(peer, blocks).unwrap();
        assert_eq!(engine.poll(batch), Ok(BatchState::Done));
        let batch = engine.submit(peer, blocks).unwrap();
        assert!(engine.abandon(batch));
    }
}

#[test]
fn codes_of_the_caller_are_kept() {
    let submit = |failure| -> EngineProblem {
        let submit: SubmitFn = Box::new(move |_, _, _, _| Err(failure));
        let (engine, peer, _memory, block) = engine(EngineCallbacks { submit, ..done() });
        let error = engine.submit(peer, &[block]).unwrap_err();
        assert_eq!((error.call, error.peer.as_deref()), ("submit", Some("10.0.0.7:1234")));
        error.problem
    };
    assert!(matches!(submit(CallbackFailure::Failed(-5)), EngineProblem::Foreign { code: -5, .. }));
    let refused = EngineProblem::Refused { addr: 4096, bytes: 16, code: 3 };
    assert_eq!(submit(CallbackFailure::Refused(3)), refused);
    assert_eq!(submit(CallbackFailure::PeerLost(-1)), EngineProblem::PeerLost { code: -1 });

    let (engine, batch, outcome) = end_of(Box::new(|handle| {
        assert_eq!(handle, 7);
        Err(CallbackFailure::PeerLost(-2))
    }));
    let error = outcome.unwrap_err();
    assert_eq!((error.problem, error.call), (EngineProblem::PeerLost { code: -2 }, "poll"));
    assert_eq!(error.peer.as_deref(), Some("10.0.0.7:1234"));
    assert_eq!(engine.poll(batch).unwrap_err().problem, EngineProblem::UnknownBatch);
}

#[test]
fn a_function_that_panics_is_an_error_with_its_message() {
    let (engine, _, outcome) = end_of(Box::new(|_| panic!("no luck")));
    let reason = "the caller's function panicked: no luck".into();
    assert_eq!(outcome.unwrap_err().problem, EngineProblem::Foreign { code: PANICKED, reason });
    assert!(engine.submit(PeerId(0), &[]).is_ok());

    let submit: SubmitFn = Box::new(|_, _, _, _| panic!("{} blocks", 1));
    let (engine, peer, _memory, block) = self::engine(EngineCallbacks { submit, ..done() });
    // It may have been taken: accepted, and never quiet.
    let batch = engine.submit(peer, &[block]).unwrap();
    let error = engine.poll(batch).unwrap_err().to_string();
    assert!(error.ends_with("the caller's function panicked: 1 blocks"), "{error}");
    let batch = engine.submit(peer, &[block]).unwrap();
    assert!(!engine.abandon(batch));
}

#[test]
fn sources_and_peers_are_checked_before_the_caller_is_asked() {
    let submit: SubmitFn = Box::new(|_, _, _, _| panic!("called"));
    let (engine, peer, memory, block) = engine(EngineCallbacks { submit, ..done() });
    let past = Block { src: memory.addr() + 49, ..block };
    let error = engine.submit(peer, &[block, past]).unwrap_err();
    assert_eq!(error.problem, EngineProblem::NotRegistered { addr: past.src, bytes: 16 });
    for (refused, call) in [(PeerId(5), "submit"), (peer, "submit")] {
        let _ = engine.remove_peer(peer);
        let error = engine.submit(refused, &[block]).unwrap_err();
        assert_eq!((error.problem, error.call), (EngineProblem::UnknownPeer, call));
    }
    assert_eq!(engine.remove_peer(peer).unwrap_err().problem, EngineProblem::UnknownPeer);
}

#[test]
fn a_peer_that_is_added_anew_has_a_new_id_and_its_old_one_is_refused() {
    let (engine, old, _memory, block) = engine(done());
    let new = engine.add_peer(b"10.0.0.7:1234").unwrap();
    assert_eq!(engine.submit(old, &[block]).unwrap_err().problem, EngineProblem::UnknownPeer);
    assert!(engine.submit(new, &[block]).is_ok());
}

#[test]
fn what_the_caller_left_out_is_done_without_or_said() {
    let (engine, peer, memory, block) = engine(EngineCallbacks { poll: Box::new(|_| Ok(false)), ..done() });
    assert!(matches!(engine.metadata().unwrap_err().problem, EngineProblem::Unavailable { .. }));
    let registration = engine.register(&memory).unwrap();
    engine.unregister(registration).unwrap();
    let unknown = engine.unregister(registration).unwrap_err();
    assert_eq!(unknown.problem, EngineProblem::UnknownRegistration);
    let batch = engine.submit(peer, &[block]).unwrap();
    assert_eq!(engine.poll(batch), Ok(BatchState::InFlight));
    assert!(!engine.abandon(batch));
    assert_eq!(engine.poll(batch).unwrap_err().problem, EngineProblem::UnknownBatch);
    assert!(engine.abandon(batch));
}

#[test]
fn the_caller_hears_of_memory_peers_and_batches_given_up() {
    let heard: Arc<AtomicU64> = Arc::default();
    let hear = |digit: u64| {
        let heard = Arc::clone(&heard);
        // Relaxed: one thread.
        move || heard.store(heard.load(Ordering::Relaxed) * 10 + digit, Ordering::Relaxed)
    };
    let (register, unregister) = (hear(1), hear(5));
    let (add, remove, abandon) = (hear(2), hear(4), hear(3));
    let callbacks = EngineCallbacks {
        poll: Box::new(|_| Ok(false)),
        abandon: Some(Box::new(move |handle| {
            abandon();
            handle == 7
        })),
        register: Some(Box::new(move |_, bytes| {
            register();
            if bytes == 64 { Ok(()) } else { Err(CallbackFailure::Failed(12)) }
        })),
        unregister: Some(Box::new(move |_, _| {
            unregister();
            Ok(())
        })),
        metadata: Some(Box::new(|| Ok(b"me".to_vec()))),
        add_peer: Some(Box::new(move |_| {
            add();
            Ok(())
        })),
        remove_peer: Some(Box::new(move |_| {
            remove();
            Ok(())
        })),
        ..done()
    };
    let (engine, peer, memory, block) = engine(callbacks);
    let batch = engine.submit(peer, &[block]).unwrap();
    assert!(engine.abandon(batch));
    engine.remove_peer(peer).unwrap();
    engine.unregister(RegistrationId(0)).unwrap();
    assert_eq!(heard.load(Ordering::Relaxed), 12345);
    assert_eq!(engine.metadata().unwrap(), b"me");
    let refused = engine.register(&memory.slice(0..8).unwrap()).unwrap_err();
    assert!(matches!(refused.problem, EngineProblem::Foreign { code: 12, .. }), "{refused}");
    assert!(engine.submit(engine.add_peer(b"x").unwrap(), &[block]).is_err(), "nothing is registered");
}

#[test]
fn a_batch_that_another_thread_asks_for_is_in_flight_and_not_known_to_be_quiet() {
    let (asked, is_asked) = std::sync::mpsc::channel();
    let (answer, answers) = std::sync::mpsc::channel();
    let (asked, answers) = (std::sync::Mutex::new(asked), std::sync::Mutex::new(answers));
    let poll: PollFn = Box::new(move |_| {
        asked.lock().unwrap().send(()).unwrap();
        Ok(answers.lock().unwrap().recv().unwrap())
    });
    let (engine, peer, _memory, block) =
        engine(EngineCallbacks { poll, abandon: Some(Box::new(|_| true)), ..done() });
    let batch = engine.submit(peer, &[block]).unwrap();
    std::thread::scope(|scope| {
        let other = scope.spawn(|| engine.poll(batch));
        is_asked.recv().unwrap();
        assert_eq!(engine.poll(batch), Ok(BatchState::InFlight));
        assert!(!engine.abandon(batch));
        answer.send(true).unwrap();
        assert_eq!(other.join().unwrap(), Ok(BatchState::Done));
    });
}
