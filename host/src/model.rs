//! Models as data: which layers there are, and which buffers each of them has.

use serde::Serialize;
use thiserror::Error;

use crate::pages::{BufferKind, BufferSpec, GeometryError};

/// Index into [`ModelSpec::buffers`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(transparent)]
pub struct BufferId(pub u32);

impl BufferId {
    /// Token-KV: every model's first buffer.
    pub const TOKEN_KV: Self = Self(0);
    /// Index-K: the second buffer of models that have one.
    pub const INDEX_K: Self = Self(1);

    /// The id as an index into per-buffer arrays.
    pub const fn idx(self) -> usize {
        self.0 as usize
    }
}

/// One buffer of a model, with the name that reports give it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct NamedBuffer {
    /// `token-kv` or `index-k`.
    pub name: String,
    /// Its pages.
    pub spec: BufferSpec,
}

/// One layer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct LayerSpec {
    /// The buffers the layer has, ascending.
    pub buffers: Vec<BufferId>,
    /// Whether this is a draft model's layer, which follows the layers of the model itself.
    pub draft: bool,
}

/// A model: its distinct buffers, and its layers in the order they run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ModelSpec {
    /// The preset's name.
    pub name: String,
    /// Tokens a page, the same in every buffer.
    pub page_size: u32,
    /// The distinct buffers, by [`BufferId`].
    pub buffers: Vec<NamedBuffer>,
    /// The layers, draft layers last.
    pub layers: Vec<LayerSpec>,
}

/// A preset's name and what it stands for, for `--help`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Preset {
    /// What [`ModelSpec::preset`] takes.
    pub name: &'static str,
    /// One line.
    pub description: &'static str,
}

/// All presets.
pub const PRESETS: [Preset; 4] = [
    Preset {
        name: "mla-fp8-78",
        description: "78 layers + 1 draft, 656 B a token, page 64, index-K in every second layer",
    },
    Preset {
        name: "mla-fp8-61",
        description: "61 layers + 1 draft, 656 B a token, page 64, index-K in every layer",
    },
    Preset { name: "mla-bf16-61", description: "61 layers + 1 draft, 1152 B a token, page 64, no index-K" },
    Preset {
        name: "tiny",
        description: "3 layers + 1 draft, 32 B a token, page 4, index-K in every second layer: for tests",
    },
];

/// A model that cannot be had.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum ModelError {
    /// No preset has that name.
    #[error("no model preset `{name}`: choose one of {}", names())]
    UnknownPreset {
        /// The refused name.
        name: String,
    },
    /// A number of layers the model cannot be cut to.
    #[error("model {model}: cannot take {got} layers: choose between 1 and {num_layers}")]
    NumLayers {
        /// The model.
        model: String,
        /// The refused number.
        got: usize,
        /// Layers the model has.
        num_layers: usize,
    },
    /// A buffer whose pages hold another number of tokens than the model's.
    #[error(
        "model {model}: buffer `{buffer}` has pages of {got} tokens, the model of {expected}: make them equal"
    )]
    PageSize {
        /// The model.
        model: String,
        /// The buffer.
        buffer: String,
        /// Tokens of the model's pages.
        expected: u32,
        /// Tokens of the buffer's.
        got: u32,
    },
    /// A layer that names buffers the model does not have, or not in ascending order.
    #[error(
        "model {model}: layer {layer} names buffers {buffers:?}: name each once, ascending, below {num_buffers}"
    )]
    LayerBuffers {
        /// The model.
        model: String,
        /// The layer.
        layer: usize,
        /// What it names.
        buffers: Vec<u32>,
        /// Buffers of the model.
        num_buffers: usize,
    },
    /// A buffer's pages cannot be laid out.
    #[error("model {model}: {problem}")]
    Geometry {
        /// The model.
        model: String,
        /// Why.
        problem: GeometryError,
    },
}

/// Which layers have index-K.
#[derive(Clone, Copy)]
enum IndexK {
    No,
    /// Layers 0, 2, 4, ...; no draft layer.
    EverySecond,
    /// All, draft layers too.
    Every,
}

fn names() -> String {
    PRESETS.map(|preset| preset.name).join(", ")
}

impl ModelSpec {
    /// The preset called `name`.
    ///
    /// # Errors
    /// [`ModelError::UnknownPreset`], which lists the names there are.
    pub fn preset(name: &str) -> Result<Self, ModelError> {
        match name {
            "mla-fp8-78" => Self::with_one_draft(name, 64, 656, 78, IndexK::EverySecond),
            "mla-fp8-61" => Self::with_one_draft(name, 64, 656, 61, IndexK::Every),
            "mla-bf16-61" => Self::with_one_draft(name, 64, 1152, 61, IndexK::No),
            "tiny" => Self::with_one_draft(name, 4, 32, 3, IndexK::EverySecond),
            _ => Err(ModelError::UnknownPreset { name: name.to_owned() }),
        }
    }

    fn with_one_draft(
        name: &str,
        page_size: u32,
        row_bytes: u32,
        num_target_layers: usize,
        index_k: IndexK,
    ) -> Result<Self, ModelError> {
        let named = |buffer: &str, kind| match BufferSpec::new(kind, page_size) {
            Ok(spec) => Ok(NamedBuffer { name: buffer.to_owned(), spec }),
            Err(problem) => Err(ModelError::Geometry { model: name.to_owned(), problem }),
        };
        let mut buffers = vec![named("token-kv", BufferKind::TokenKv { row_bytes })?];
        if !matches!(index_k, IndexK::No) {
            buffers.push(named("index-k", BufferKind::IndexK)?);
        }
        let layer = |layer: usize| {
            let draft = layer == num_target_layers;
            let has_index_k = match index_k {
                IndexK::No => false,
                IndexK::EverySecond => !draft && layer.is_multiple_of(2),
                IndexK::Every => true,
            };
            let buffers = match has_index_k {
                true => vec![BufferId::TOKEN_KV, BufferId::INDEX_K],
                false => vec![BufferId::TOKEN_KV],
            };
            LayerSpec { buffers, draft }
        };
        let layers = (0..=num_target_layers).map(layer).collect();
        Ok(Self { name: name.to_owned(), page_size, buffers, layers })
    }

    /// The model cut to its first `num_layers` layers; draft layers are the last ones, so they go first.
    ///
    /// # Errors
    /// [`ModelError::NumLayers`] for 0, or more than there are.
    pub fn take_layers(mut self, num_layers: usize) -> Result<Self, ModelError> {
        if num_layers == 0 || num_layers > self.num_layers() {
            let there_are = self.num_layers();
            return Err(ModelError::NumLayers { model: self.name, got: num_layers, num_layers: there_are });
        }
        self.layers.truncate(num_layers);
        Ok(self)
    }

    /// Whether the parts fit together: plans count rows by the model's page size, kernels by the buffer's.
    ///
    /// # Errors
    /// [`ModelError::PageSize`], [`ModelError::LayerBuffers`].
    pub fn check(&self) -> Result<(), ModelError> {
        if let Some(buffer) = self.buffers.iter().find(|buffer| buffer.spec.page_size() != self.page_size) {
            let (model, name) = (self.name.clone(), buffer.name.clone());
            let (expected, got) = (self.page_size, buffer.spec.page_size());
            return Err(ModelError::PageSize { model, buffer: name, expected, got });
        }
        for (layer, spec) in self.layers.iter().enumerate() {
            let ascending = spec.buffers.is_sorted_by(|a, b| a < b);
            if !ascending || spec.buffers.iter().any(|buffer| buffer.idx() >= self.buffers.len()) {
                return Err(ModelError::LayerBuffers {
                    model: self.name.clone(),
                    layer,
                    buffers: spec.buffers.iter().map(|buffer| buffer.0).collect(),
                    num_buffers: self.buffers.len(),
                });
            }
        }
        Ok(())
    }

    /// The layers in short, equal exactly where they are: `0+1,0,0+1` are the buffers of three layers.
    pub fn describe_layers(&self) -> String {
        let buffers = |layer: &LayerSpec| -> String {
            let ids: Vec<_> = layer.buffers.iter().map(|buffer| buffer.0.to_string()).collect();
            ids.join("+")
        };
        let layers: Vec<_> = self.layers.iter().map(buffers).collect();
        layers.join(",")
    }

    /// Everything that compose depends on, in short: equal exactly where it is.
    pub fn describe(&self) -> String {
        let buffers: Vec<_> = self.buffers.iter().map(|buffer| format!("{:?}", buffer.spec)).collect();
        format!("{}\n{}\n{}", self.name, buffers.join("\n"), self.describe_layers())
    }

    /// The number of layers, draft layers included.
    pub const fn num_layers(&self) -> usize {
        self.layers.len()
    }

    /// The ids of the model's buffers, in order.
    pub fn buffer_ids(&self) -> impl ExactSizeIterator<Item = BufferId> + use<> {
        (0..self.buffers.len() as u32).map(BufferId)
    }

    /// A buffer by its id; none where the model has no such buffer.
    pub fn buffer(&self, buffer: BufferId) -> Option<&NamedBuffer> {
        self.buffers.get(buffer.idx())
    }

    /// The buffers that layer `layer` has, ascending; none for a layer that is not there.
    pub fn buffers_of(&self, layer: usize) -> &[BufferId] {
        self.layers.get(layer).map_or(&[], |layer| &layer.buffers)
    }

    /// Whether layer `layer` has buffer `buffer`.
    pub fn has_buffer(&self, layer: usize, buffer: BufferId) -> bool {
        self.buffers_of(layer).contains(&buffer)
    }

    /// The layers that have `buffer`, ascending: the layers its pool holds.
    pub fn layers_with(&self, buffer: BufferId) -> impl Iterator<Item = usize> {
        (0..self.num_layers()).filter(move |&layer| self.has_buffer(layer, buffer))
    }

    /// How many layers have `buffer`.
    pub fn num_layers_with(&self, buffer: BufferId) -> usize {
        self.layers_with(buffer).count()
    }

    /// Position of layer `layer` among the layers that have `buffer`, so in its pool; none where the layer
    /// does not have it.
    pub fn pool_layer_idx(&self, layer: usize, buffer: BufferId) -> Option<usize> {
        self.layers_with(buffer).position(|with| with == layer)
    }

    /// Bytes of one page in all layers and buffers together.
    pub fn page_bytes_all_layers(&self) -> u64 {
        let bytes = |id: BufferId| self.buffer(id).map_or(0, |buffer| buffer.spec.page_bytes());
        self.layers.iter().flat_map(|layer| &layer.buffers).map(|&id| bytes(id)).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn preset(name: &str) -> ModelSpec {
        ModelSpec::preset(name).unwrap()
    }

    #[test]
    fn every_listed_preset_can_be_made_and_ends_with_one_draft_layer() {
        for Preset { name, .. } in PRESETS {
            let model = preset(name);
            assert_eq!(model.name, name);
            assert_eq!(model.layers.iter().filter(|layer| layer.draft).count(), 1, "{name}");
            assert!(model.layers.last().unwrap().draft, "{name}");
            assert_eq!(model.num_layers_with(BufferId::TOKEN_KV), model.num_layers(), "{name}");
            assert!(model.buffers.iter().all(|buffer| buffer.spec.page_size() == model.page_size), "{name}");
        }
    }

    #[test]
    fn index_k_is_in_the_layers_the_preset_says() {
        let half = preset("mla-fp8-78");
        assert_eq!(half.num_layers(), 79);
        assert!(half.layers_with(BufferId::INDEX_K).eq((0..78).step_by(2)));
        assert_eq!(half.buffers_of(78), [BufferId::TOKEN_KV]);
        assert_eq!(half.buffer(BufferId::TOKEN_KV).unwrap().spec.page_bytes(), 41_984);

        let all = preset("mla-fp8-61");
        assert!(all.layers_with(BufferId::INDEX_K).eq(0..62));

        let none = preset("mla-bf16-61");
        assert_eq!((none.num_layers(), none.buffers.len()), (62, 1));
        assert_eq!(none.num_layers_with(BufferId::INDEX_K), 0);
        assert_eq!(none.buffer(BufferId::TOKEN_KV).unwrap().spec.row_bytes(), 1152);

        assert!(preset("tiny").layers_with(BufferId::INDEX_K).eq([0, 2]));
    }

    #[test]
    fn a_pool_counts_only_the_layers_that_have_its_buffer() {
        let model = preset("mla-fp8-78");
        assert_eq!(model.pool_layer_idx(4, BufferId::INDEX_K), Some(2));
        assert_eq!(model.pool_layer_idx(5, BufferId::INDEX_K), None);
        assert_eq!(model.pool_layer_idx(78, BufferId::TOKEN_KV), Some(78));
        assert_eq!(model.pool_layer_idx(79, BufferId::TOKEN_KV), None);
        assert_eq!(preset("tiny").page_bytes_all_layers(), 4 * (4 * 32) + 2 * (4 * 132));
    }

    #[test]
    fn taking_layers_keeps_the_first_ones_and_refuses_none_or_too_many() {
        let model = preset("tiny").take_layers(3).unwrap();
        assert_eq!(model.num_layers(), 3);
        assert!(model.layers.iter().all(|layer| !layer.draft));
        assert!(preset("tiny").take_layers(4).is_ok());
        for refused in [0, 5] {
            let error = preset("tiny").take_layers(refused).unwrap_err().to_string();
            assert!(error.contains("between 1 and 4"), "{error}");
        }
    }

    #[test]
    fn an_unknown_preset_is_answered_with_the_names() {
        let error = ModelSpec::preset("mla").unwrap_err().to_string();
        assert!(PRESETS.iter().all(|preset| error.contains(preset.name)), "{error}");
    }

    #[test]
    fn parts_that_do_not_fit_together_are_refused() {
        let mut model = preset("tiny");
        assert_eq!(model.check(), Ok(()));
        model.page_size = 8;
        assert!(matches!(model.check(), Err(ModelError::PageSize { expected: 8, got: 4, .. })));
        for buffers in [vec![BufferId(2)], vec![BufferId(1), BufferId(0)], vec![BufferId(0), BufferId(0)]] {
            let mut model = preset("tiny");
            model.layers[1].buffers = buffers;
            assert!(matches!(model.check(), Err(ModelError::LayerBuffers { layer: 1, .. })));
        }
    }
}
