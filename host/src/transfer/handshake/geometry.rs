//! What pages are made of: the same on both sides, or nothing can be sent.

use serde::{Deserialize, Serialize};

use super::HandshakeError;
use crate::model::{BufferId, ModelError, ModelSpec};
use crate::transfer::record::WIRE_VERSION;
use crate::transfer::{LayerBuffer, PoolMap};

/// One buffer of a model.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct BufferGeometry {
    /// Its name: `token-kv`, `index-k`.
    pub name: String,
    /// Bytes of the parts that a row consists of, in page order: `[656]`, or `[128, 4]` for keys and scales.
    pub row_parts_bytes: Vec<u64>,
    /// Bytes of one page.
    pub page_bytes: u64,
}

/// What pages are made of.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Geometry {
    /// [`WIRE_VERSION`] of the side.
    pub version: u32,
    /// Tokens a page.
    pub page_size: u32,
    /// The distinct buffers, in the model's order.
    pub buffers: Vec<BufferGeometry>,
    /// By layer (draft layers last): the names of its buffers, in the order of the layer's
    /// [`PoolMap`] entry.
    pub layers: Vec<Vec<String>>,
}

impl BufferGeometry {
    /// Bytes of one row, all parts together.
    pub fn row_bytes(&self) -> u64 {
        self.row_parts_bytes.iter().fold(0, |sum, &bytes| sum.saturating_add(bytes))
    }

    fn row_format(&self) -> String {
        let parts: Vec<_> = self.row_parts_bytes.iter().map(u64::to_string).collect();
        parts.join(" + ")
    }
}

impl Geometry {
    /// The geometry of `model`, in this version.
    ///
    /// # Errors
    /// [`ModelError`] where the model's parts do not fit together.
    pub fn of(model: &ModelSpec) -> Result<Self, ModelError> {
        model.check()?;
        let buffers = model.buffers.iter().map(|buffer| BufferGeometry {
            name: buffer.name.clone(),
            row_parts_bytes: buffer.spec.row_parts().map(|part| part.bytes).collect(),
            page_bytes: buffer.spec.page_bytes(),
        });
        let name = |&id: &BufferId| model.buffer(id).map(|buffer| buffer.name.clone());
        let layers = model.layers.iter().map(|layer| layer.buffers.iter().filter_map(name).collect());
        Ok(Self {
            version: WIRE_VERSION,
            page_size: model.page_size,
            buffers: buffers.collect(),
            layers: layers.collect(),
        })
    }

    /// A shard of these pages at no address: for comparison with one that has memory.
    pub(super) fn shard(&self, num_pages: u32) -> PoolMap {
        let page_bytes = |name: &String| {
            let buffer = self.buffers.iter().find(|buffer| buffer.name == *name);
            buffer.map_or(0, |buffer| buffer.page_bytes)
        };
        let layer = |names: &Vec<String>| {
            let page_bytes = names.iter().map(page_bytes);
            page_bytes.map(|page_bytes| LayerBuffer { addr: 0, page_bytes }).collect()
        };
        PoolMap { num_pages, layers: self.layers.iter().map(layer).collect() }
    }

    fn buffer_names(&self) -> String {
        let names: Vec<_> = self.buffers.iter().map(|buffer| buffer.name.as_str()).collect();
        format!("[{}]", names.join(", "))
    }
}

/// Whether pages of `mine` and `theirs` are the same.
///
/// # Errors
/// [`HandshakeError`]: the first field that differs, with both values.
pub fn check(mine: &Geometry, theirs: &Geometry) -> Result<(), HandshakeError> {
    // First: everything else may mean something else in another version.
    if mine.version != theirs.version {
        return Err(HandshakeError::Version { mine: mine.version, theirs: theirs.version });
    }
    if mine.page_size != theirs.page_size {
        return Err(HandshakeError::PageSize { mine: mine.page_size, theirs: theirs.page_size });
    }
    if !mine.buffers.iter().map(|buffer| &buffer.name).eq(theirs.buffers.iter().map(|buffer| &buffer.name)) {
        let (mine, theirs) = (mine.buffer_names(), theirs.buffer_names());
        return Err(HandshakeError::Buffers { mine, theirs });
    }
    for (mine, theirs) in mine.buffers.iter().zip(&theirs.buffers) {
        check_buffer(mine, theirs)?;
    }
    if mine.layers.len() != theirs.layers.len() {
        let (mine, theirs) = (mine.layers.len(), theirs.layers.len());
        return Err(HandshakeError::NumLayers { mine, theirs });
    }
    let pairs = mine.layers.iter().zip(&theirs.layers).enumerate();
    match pairs.into_iter().find(|(_, (mine, theirs))| mine != theirs) {
        None => Ok(()),
        Some((layer, (mine, theirs))) => {
            let names = |names: &[String]| format!("[{}]", names.join(", "));
            Err(HandshakeError::LayerBuffers { layer, mine: names(mine), theirs: names(theirs) })
        }
    }
}

fn check_buffer(mine: &BufferGeometry, theirs: &BufferGeometry) -> Result<(), HandshakeError> {
    let buffer = mine.name.clone();
    if mine.row_parts_bytes != theirs.row_parts_bytes {
        let (mine, theirs) = (mine.row_format(), theirs.row_format());
        return Err(HandshakeError::RowFormat { buffer, mine, theirs });
    }
    if mine.page_bytes != theirs.page_bytes {
        let (mine, theirs) = (mine.page_bytes, theirs.page_bytes);
        return Err(HandshakeError::PageBytes { buffer, mine, theirs });
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn geometry(preset: &str) -> Geometry {
        Geometry::of(&ModelSpec::preset(preset).unwrap()).unwrap()
    }

    /// The error of a side that is `change`d.
    fn refused(change: impl Fn(&mut Geometry)) -> String {
        let mine = geometry("tiny");
        let mut theirs = mine.clone();
        change(&mut theirs);
        check(&mine, &theirs).unwrap_err().to_string()
    }

    #[test]
    fn a_geometry_has_the_models_pages_and_comes_back_from_json() {
        let mine = geometry("mla-fp8-78");
        assert_eq!((mine.page_size, mine.layers.len()), (64, 79));
        let rows: Vec<_> = mine.buffers.iter().map(BufferGeometry::row_bytes).collect();
        let pages: Vec<_> = mine.buffers.iter().map(|buffer| buffer.page_bytes).collect();
        assert_eq!((rows, pages), (vec![656, 132], vec![41_984, 8_448]));
        assert_eq!(mine.layers[0], ["token-kv", "index-k"]);
        assert_eq!(mine.layers[1], ["token-kv"]);
        let json = serde_json::to_string(&mine).unwrap();
        let theirs: Geometry = serde_json::from_str(&json).unwrap();
        assert_eq!(check(&mine, &theirs), Ok(()));
    }

    #[test]
    fn every_field_that_differs_is_named_with_both_values() {
        let cases = [
            (refused(|theirs| theirs.version = 7), "version 1 here, 7 there"),
            (refused(|theirs| theirs.page_size = 8), "page size 4 here, 8 there"),
            (
                refused(|theirs| theirs.buffers.truncate(1)),
                "buffers [token-kv, index-k] here, [token-kv] there",
            ),
            (
                refused(|theirs| theirs.buffers.reverse()),
                "buffers [token-kv, index-k] here, [index-k, token-kv] there",
            ),
            (
                refused(|theirs| theirs.buffers[0].row_parts_bytes = vec![64]),
                "`token-kv`: rows of 32 bytes here, of 64 there",
            ),
            (
                refused(|theirs| theirs.buffers[1].row_parts_bytes = vec![132]),
                "`index-k`: rows of 128 + 4 bytes here, of 132 there",
            ),
            (
                refused(|theirs| theirs.buffers[1].page_bytes = 1024),
                "`index-k`: pages of 528 bytes here, of 1024 there",
            ),
            (refused(|theirs| theirs.layers.truncate(3)), "4 layers here, 3 there"),
            (
                refused(|theirs| theirs.layers.swap(0, 1)),
                "layer 0 has [token-kv, index-k] here, [token-kv] there",
            ),
            (
                refused(|theirs| theirs.layers[2].reverse()),
                "layer 2 has [token-kv, index-k] here, [index-k, token-kv] there",
            ),
        ];
        for (error, message) in cases {
            assert!(error.contains(message), "{error}");
        }
    }

    #[test]
    fn another_version_is_told_before_anything_else() {
        let error = refused(|theirs| {
            theirs.version = 2;
            theirs.page_size = 128;
            theirs.layers.clear();
        });
        assert!(error.contains("version 1 here, 2 there"), "{error}");
    }

    #[test]
    fn models_of_other_rows_are_refused() {
        let error = check(&geometry("mla-fp8-61"), &geometry("mla-bf16-61")).unwrap_err();
        assert!(matches!(error, HandshakeError::Buffers { .. }), "{error}");
        let error = check(&geometry("mla-fp8-61"), &geometry("mla-fp8-78")).unwrap_err();
        assert_eq!(error, HandshakeError::NumLayers { mine: 62, theirs: 79 });
    }

    #[test]
    fn a_model_whose_parts_do_not_fit_has_no_geometry() {
        let mut model = ModelSpec::preset("tiny").unwrap();
        model.layers[1].buffers = vec![BufferId(5)];
        assert!(matches!(Geometry::of(&model), Err(ModelError::LayerBuffers { layer: 1, .. })));
    }
}
