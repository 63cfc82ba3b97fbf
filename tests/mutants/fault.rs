//! A planted fault: a change of the kernels' sources, by its exact text.

use std::fs;
use std::path::Path;

use crate::detector::Detector;

/// A planted fault.
pub(crate) struct Fault {
    pub(crate) name: &'static str,
    /// Below `kernels/src`.
    pub(crate) file: &'static str,
    /// Texts that each stand once in the file, and what takes their place.
    pub(crate) edits: &'static [(&'static str, &'static str)],
    /// Asked first: the others take longer or see less of it.
    pub(crate) first: Detector,
    /// Whether it is planted without being asked for.
    pub(crate) is_quick: bool,
    /// Why it may be that no detector here sees it, where that is so.
    pub(crate) unseen: Option<&'static str>,
}

/// A fault that `first` is asked about first.
pub(crate) const fn fault(
    first: Detector,
    name: &'static str,
    file: &'static str,
    edits: &'static [(&'static str, &'static str)],
) -> Fault {
    Fault { name, file, edits, first, is_quick: false, unseen: None }
}

impl Fault {
    /// Plants it always.
    pub(crate) const fn quick(mut self) -> Self {
        self.is_quick = true;
        self
    }

    /// Nothing here sees it, but by chance.
    pub(crate) const fn unseen(mut self, reason: &'static str) -> Self {
        self.unseen = Some(reason);
        self
    }

    /// Changes the copy of the sources in `kernels_dir`.
    ///
    /// # Errors
    /// A text does not stand there exactly once: the sources have changed, and the fault must follow.
    pub(crate) fn plant(&self, kernels_dir: &Path) -> Result<(), String> {
        let path = kernels_dir.join("src").join(self.file);
        let mut text = fs::read_to_string(&path).map_err(|error| format!("{}: {error}", self.file))?;
        for (from, to) in self.edits {
            let count = text.matches(from).count();
            if count != 1 {
                return Err(format!("kernels/src/{} has {count} times, not once: {from}", self.file));
            }
            text = text.replacen(from, to, 1);
        }
        fs::write(&path, text).map_err(|error| format!("{}: {error}", path.display()))
    }
}
