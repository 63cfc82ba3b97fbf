//! Graphs of the CPU device: kernels and copies, to be queued again.

use std::any::Any;

use cpkv_kernels::Kernel;

use super::work::Work;
use crate::device::{DeviceBuffer, DeviceError, Graph, Keep};

/// One piece of captured work.
enum Node {
    Kernel { kernel: Kernel, keep: Keep },
    Copy { src: DeviceBuffer, dst: DeviceBuffer },
}

/// Captured work.
#[derive(Default)]
pub(super) struct CpuGraph {
    nodes: Vec<Node>,
    /// Work that could not be captured.
    refused: Option<&'static str>,
}

impl CpuGraph {
    /// Takes `work` into the graph.
    pub(super) fn capture(&mut self, work: Work) -> Result<(), DeviceError> {
        let call = work.name();
        match work {
            Work::Kernel { kernel, keep } => self.nodes.push(Node::Kernel { kernel, keep }),
            Work::Copy { src, dst } => self.nodes.push(Node::Copy { src, dst }),
            _ => {
                self.refused.get_or_insert(call);
                return Err(DeviceError::NotCapturable { call });
            }
        }
        Ok(())
    }

    /// The graph, unless something was refused.
    pub(super) fn end(self) -> Result<Self, DeviceError> {
        match self.refused {
            Some(call) => Err(DeviceError::NotCapturable { call }),
            None => Ok(self),
        }
    }

    /// The work once more.
    pub(super) fn works(&self) -> impl Iterator<Item = Work> {
        self.nodes.iter().map(|node| match node {
            Node::Kernel { kernel, keep } => Work::Kernel { kernel: *kernel, keep: Keep::clone(keep) },
            Node::Copy { src, dst } => Work::Copy { src: src.clone(), dst: dst.clone() },
        })
    }
}

impl Graph for CpuGraph {
    fn as_any(&self) -> &dyn Any {
        self
    }
}
