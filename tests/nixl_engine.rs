//! The NIXL engine among real processes, over TCP on the loopback interface.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests")]

#[path = "nixl_engine/exact.rs"]
mod exact;
#[path = "nixl_engine/lost_peers.rs"]
mod lost_peers;
#[path = "nixl_engine/player.rs"]
mod player;
#[path = "nixl_engine/protocol.rs"]
mod protocol;
#[path = "nixl_engine/refusals.rs"]
mod refusals;
#[path = "nixl_engine/stage.rs"]
mod stage;
mod support;
