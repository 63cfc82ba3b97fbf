//! Where the page is written: made before anything is measured, so that nobody waits two minutes for an error.

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};

use super::page::page;
use super::report::BenchReport;
use crate::error::RunError;
use crate::output_file::OutputFile;

/// The page's file.
const FILE: &str = "index.html";

/// A folder that can be written to.
pub(crate) struct ReportFolder {
    path: PathBuf,
    file: OutputFile,
}

impl ReportFolder {
    /// Makes the folder where there is none, and sees whether the page can be written. A page that is there stays, and none is
    /// made.
    pub(crate) fn open(folder: &Path) -> Result<Self, RunError> {
        let path = folder.join(FILE);
        let failed = |error| RunError::ReportFolder { path: path.clone(), error };
        fs::create_dir_all(folder).map_err(failed)?;
        let file = OutputFile::open(&path, None).map_err(failed)?;
        Ok(Self { path, file })
    }

    /// Writes the page.
    pub(crate) fn write(&self, report: &BenchReport) -> Result<(), RunError> {
        let page = page(report).map_err(std::io::Error::from)?;
        let written = self.file.write(|out| out.write_all(page.as_bytes()));
        written.map_err(|error| RunError::ReportFolder { path: self.path.clone(), error })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_is_made_and_a_page_that_is_there_stays_until_it_is_written() {
        let temp = tempfile::tempdir().unwrap();
        let folder = temp.path().join("a/b");
        ReportFolder::open(&folder).unwrap();
        assert_eq!(fs::read_dir(&folder).unwrap().count(), 0);
        fs::write(folder.join(FILE), "before").unwrap();
        ReportFolder::open(&folder).unwrap();
        assert_eq!(fs::read_to_string(folder.join(FILE)).unwrap(), "before");
    }

    #[test]
    fn what_is_no_folder_is_refused_with_its_path() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let refused = ReportFolder::open(file.path()).err().unwrap().to_string();
        assert!(refused.contains(file.path().to_str().unwrap()), "{refused}");
    }
}
