//! Graphs that were captured. Graphs that are built node by node are not supported.

use std::ffi::{c_char, c_int, c_ulonglong};
use std::sync::Arc;

use super::out::Out;
use super::stream;
use crate::driver::Code;
use crate::driver::current;
use crate::driver::driver::driver;
use crate::driver::graph::Exec;
use crate::driver::work::Work;

fn instantiate(exec: Out<u64>, graph: u64) -> Result<(), Code> {
    let (driver, _) = current::working()?;
    exec.wanted()?;
    let graph = driver.graphs.get(graph)?;
    exec.set(driver.execs.insert(Arc::new(Exec::new(&graph))))
}

/// A node's `CUgraphNodeType`.
fn node_type(work: &Work) -> c_int {
    match work {
        Work::Kernel(_) => 0,
        Work::Copy { .. } => 1,
        Work::Set { .. } => 2,
        Work::Host { .. } => 3,
        Work::Graph(_) => 4,
        Work::Mark => 5,
        // CU_GRAPH_NODE_TYPE_BATCH_MEM_OP is newer than the bindings' enum; "empty" is the nearest they know.
        Work::WaitValue { .. } | Work::WriteValue { .. } => 5,
    }
}

entries! {
    /// Makes a graph launchable. There is no error node: what was captured is valid.
    fn cuGraphInstantiate(exec: Out<u64>, graph: u64, error: Out<u64>, _log: Out<c_char>, _room: usize) {
        error.set_if_wanted(0);
        instantiate(exec, graph)
    }

    /// Makes a graph launchable.
    fn cuGraphInstantiate_v2(exec: Out<u64>, graph: u64, error: Out<u64>, _log: Out<c_char>, _room: usize) {
        error.set_if_wanted(0);
        instantiate(exec, graph)
    }

    /// Makes a graph launchable.
    fn cuGraphInstantiateWithFlags(exec: Out<u64>, graph: u64, _flags: c_ulonglong) {
        instantiate(exec, graph)
    }

    /// Puts a graph on a stream.
    fn cuGraphLaunch(exec: u64, on: u64) {
        let (driver, stream) = stream(on)?;
        driver.execs.get(exec)?.launch(driver, &stream)
    }

    /// Nothing has to be brought to the device.
    fn cuGraphUpload(exec: u64, on: u64) {
        stream(on)?.0.execs.get(exec).map(drop)
    }

    /// Destroys a launchable graph. Launches under way are finished.
    fn cuGraphExecDestroy(exec: u64) {
        driver()?.execs.remove(exec).map(drop)
    }

    /// Destroys a graph. Launchable ones made from it stay.
    fn cuGraphDestroy(graph: u64) {
        driver()?.graphs.remove(graph).map(drop)
    }

    /// The nodes of a graph; without room for them, their number.
    fn cuGraphGetNodes(graph: u64, nodes: Out<u64>, count: Out<usize>) {
        let graph = driver()?.graphs.get(graph)?;
        if nodes.is_null() {
            return count.set(graph.handles.len());
        }
        let room = count.get()?;
        for index in 0..room {
            // SAFETY: the caller's array has `count` elements.
            unsafe { nodes.set_at(index, graph.handles.get(index).copied().unwrap_or(0)) };
        }
        count.set(room.min(graph.handles.len()))
    }

    /// The type of a node.
    fn cuGraphNodeGetType(node: u64, kind: Out<c_int>) {
        let (_, graph) = driver()?.graphs.find(|graph| graph.handles.contains(&node)).ok_or(Code::InvalidValue)?;
        let at = graph.handles.iter().position(|&handle| handle == node).ok_or(Code::InvalidValue)?;
        kind.set(node_type(&graph.nodes[at]))
    }
}
