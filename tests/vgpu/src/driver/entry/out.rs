//! Where a call puts its results.

use crate::driver::Code;

/// A pointer of the caller's to room for a result: null or valid, as its maker promises.
#[derive(Clone, Copy, Debug)]
#[repr(transparent)]
pub struct Out<T>(*mut T);

impl<T> Out<T> {
    /// # Safety
    ///
    /// The pointer is null, or valid for writes (and, for arguments, reads) of a `T` while the value is in use.
    pub unsafe fn new(pointer: *mut T) -> Out<T> {
        Out(pointer)
    }

    /// Whether the caller wants no result.
    pub(super) fn is_null(&self) -> bool {
        self.0.is_null()
    }

    /// Puts a result.
    ///
    /// # Errors
    ///
    /// `InvalidValue` when the pointer is null.
    pub(super) fn set(&self, value: T) -> Result<(), Code> {
        if self.0.is_null() {
            return Err(Code::InvalidValue);
        }
        // SAFETY: not null, so valid for a write: who made this value promised it (an entry point's caller, by C).
        unsafe { self.0.write(value) };
        Ok(())
    }

    /// Puts a result if it is wanted.
    pub(super) fn set_if_wanted(&self, value: T) {
        // Null means that it is not.
        let _ = self.set(value);
    }

    /// Asks for a result's room before anything is done.
    ///
    /// # Errors
    ///
    /// `InvalidValue` when the pointer is null.
    pub(super) fn wanted(&self) -> Result<(), Code> {
        if self.0.is_null() { Err(Code::InvalidValue) } else { Ok(()) }
    }

    /// Puts an element of an array result.
    ///
    /// # Safety
    ///
    /// The caller's array has room for it.
    pub(super) unsafe fn set_at(&self, index: usize, value: T) {
        // SAFETY: as this function's caller promises.
        unsafe { self.0.wrapping_add(index).write(value) };
    }
}

impl<T: Copy> Out<T> {
    /// What stands there now, for results that are arguments too.
    ///
    /// # Errors
    ///
    /// `InvalidValue` when the pointer is null.
    pub(super) fn get(&self) -> Result<T, Code> {
        if self.0.is_null() {
            return Err(Code::InvalidValue);
        }
        // SAFETY: not null, so valid for a read, as in `set`.
        Ok(unsafe { self.0.read() })
    }

    /// An element of an array argument.
    ///
    /// # Safety
    ///
    /// The array is not null and has that element.
    pub(super) unsafe fn at(&self, index: usize) -> T {
        // SAFETY: as this function's caller promises.
        unsafe { self.0.wrapping_add(index).read() }
    }
}
