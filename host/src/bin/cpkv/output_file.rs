//! A file that the program writes: looked at before the work, so that nobody waits for an error, and replaced in one step
//! behind it: whatever ends the program between the two, what was there stays, and nothing half-written comes.

use std::fs::{self, File, OpenOptions, Permissions};
use std::io::{self, BufWriter, Write};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

use tempfile::{Builder, NamedTempFile};

/// A file to be written.
pub(crate) struct OutputFile {
    path: PathBuf,
    /// Not a file, but a pipe, a terminal, a device: nothing there to be replaced.
    is_stream: bool,
}

impl OutputFile {
    /// Sees whether `path` can be written. It is not `input`, under whatever name. Changes nothing.
    ///
    /// # Errors
    /// The system's; [`io::ErrorKind::AlreadyExists`] for `input`.
    pub(crate) fn open(path: &Path, input: Option<&Path>) -> io::Result<Self> {
        let Ok(there) = fs::metadata(path) else {
            let output = Self { path: path.to_owned(), is_stream: false };
            output.temporary().map(drop)?;
            return Ok(output);
        };
        if there.is_dir() {
            return Err(io::ErrorKind::IsADirectory.into());
        }
        let is_input = |input: &Path| {
            fs::metadata(input).is_ok_and(|input| (input.dev(), input.ino()) == (there.dev(), there.ino()))
        };
        if input.is_some_and(is_input) {
            return Err(io::Error::new(io::ErrorKind::AlreadyExists, "it is what is read"));
        }
        if !there.is_file() {
            return Ok(Self { path: path.to_owned(), is_stream: true });
        }
        // What a link leads to is replaced, not the link.
        let output = Self { path: fs::canonicalize(path)?, is_stream: false };
        // Its folder may be writable where the file is not.
        OpenOptions::new().write(true).open(&output.path)?;
        output.temporary().map(drop)?;
        Ok(output)
    }

    /// Writes what `write` does, whole or not at all.
    pub(crate) fn write(
        &self,
        write: impl FnOnce(&mut BufWriter<&mut File>) -> io::Result<()>,
    ) -> io::Result<()> {
        let written = |file: &mut File| {
            let mut out = BufWriter::new(file);
            write(&mut out)?;
            out.flush()
        };
        if self.is_stream {
            return written(&mut OpenOptions::new().write(true).open(&self.path)?);
        }
        let mut temporary = self.temporary()?;
        written(temporary.as_file_mut())?;
        temporary.persist(&self.path)?;
        Ok(())
    }

    /// A file beside it, gone when it is dropped.
    fn temporary(&self) -> io::Result<NamedTempFile> {
        let folder = self.path.parent().filter(|folder| !folder.as_os_str().is_empty());
        let mut builder = Builder::new();
        // As any new file: less what the user masks.
        builder.prefix(".cpkv-").permissions(Permissions::from_mode(0o666));
        // Not with the name that nobody gave.
        builder.tempfile_in(folder.unwrap_or(Path::new("."))).map_err(|error| {
            let source = error.get_ref().and_then(|told| told.source());
            let code = source
                .and_then(|source| source.downcast_ref::<io::Error>())
                .and_then(io::Error::raw_os_error);
            code.map_or(error, io::Error::from_raw_os_error)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(folder: &Path) -> Vec<String> {
        let entries = fs::read_dir(folder).unwrap();
        entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect()
    }

    #[test]
    fn a_file_is_replaced_by_what_was_written_whole_and_by_nothing_else() {
        let temp = tempfile::tempdir().unwrap();
        let path = temp.path().join("out");
        let output = OutputFile::open(&path, None).unwrap();
        assert_eq!(names(temp.path()), [""; 0]);
        let fails = |out: &mut BufWriter<&mut File>| {
            out.write_all(&[b'x'; 100_000])?;
            Err(io::Error::other("full"))
        };
        assert!(output.write(fails).is_err());
        assert_eq!(names(temp.path()), [""; 0]);
        output.write(|out| out.write_all(b"first")).unwrap();
        let output = OutputFile::open(&path, None).unwrap();
        assert!(output.write(fails).is_err());
        assert_eq!(fs::read(&path).unwrap(), b"first");
        output.write(|out| out.write_all(b"2")).unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"2");
        assert_eq!(names(temp.path()), ["out"]);
    }

    #[test]
    fn what_is_read_is_not_written_under_whatever_name() {
        let temp = tempfile::tempdir().unwrap();
        let [input, soft, hard] = ["in", "soft", "hard"].map(|name| temp.path().join(name));
        fs::write(&input, "kept").unwrap();
        std::os::unix::fs::symlink(&input, &soft).unwrap();
        fs::hard_link(&input, &hard).unwrap();
        for name in [&input, &soft, &hard] {
            let refused = OutputFile::open(name, Some(&input)).err().unwrap();
            assert_eq!(refused.kind(), io::ErrorKind::AlreadyExists);
        }
        // A link to another file stays one.
        OutputFile::open(&soft, None).unwrap().write(|out| out.write_all(b"new")).unwrap();
        assert_eq!(
            (fs::read(&input).unwrap(), fs::read(&hard).unwrap()),
            (b"new".to_vec(), b"kept".to_vec())
        );
        assert!(fs::symlink_metadata(&soft).unwrap().is_symlink());
    }

    #[test]
    fn folders_and_what_has_no_folder_are_refused_and_devices_are_written_to() {
        let temp = tempfile::tempdir().unwrap();
        assert!(OutputFile::open(temp.path(), None).is_err());
        assert!(OutputFile::open(&temp.path().join("none/out"), None).is_err());
        OutputFile::open(Path::new("/dev/null"), None).unwrap().write(|out| out.write_all(b"x")).unwrap();
        assert!(!fs::metadata("/dev/null").unwrap().is_file());
    }
}
