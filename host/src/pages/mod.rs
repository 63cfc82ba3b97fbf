//! Pages: how they are laid out, who owns them, who computes them. Pure.

pub mod geometry;
pub mod ownership;
pub mod pool_map;
pub mod split;
pub mod token_indices;

pub use geometry::{BufferKind, BufferSpec, GeometryError, INDEX_K_DIM, RowPart};
pub use ownership::Ownership;
pub use pool_map::{LayerBuffer, PoolMap, PoolMapError};
pub use split::ZigzagSplit;
pub use token_indices::{TokenIndexError, TokenIndices};
