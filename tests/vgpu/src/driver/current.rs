//! Which context a thread's calls mean.

use std::cell::RefCell;
use std::sync::Arc;

use super::code::Code;
use super::context::Context;
use super::driver::{Driver, driver};

thread_local! {
    /// The stack of current contexts, by handle; 0 is none.
    static STACK: RefCell<Vec<u64>> = const { RefCell::new(Vec::new()) };
}

/// The handle of the current context; 0: none.
pub(super) fn handle() -> u64 {
    STACK.with_borrow(|stack| stack.last().copied().unwrap_or(0))
}

/// Makes a context current in place of the current one.
pub(super) fn set(handle: u64) {
    STACK.with_borrow_mut(|stack| {
        stack.pop();
        stack.push(handle);
    });
}

/// Makes a context current; the one before comes back with [`pop`].
pub(super) fn push(handle: u64) {
    STACK.with_borrow_mut(|stack| stack.push(handle));
}

/// Takes the current context off.
pub(super) fn pop() -> Option<u64> {
    STACK.with_borrow_mut(Vec::pop)
}

/// The driver and the current context, failed or not.
///
/// # Errors
///
/// `NotInitialized`, `InvalidContext` without a current context, `ContextIsDestroyed`.
pub(super) fn any() -> Result<(&'static Driver, Arc<Context>), Code> {
    let driver = driver()?;
    let handle = handle();
    if handle == 0 {
        return Err(Code::InvalidContext);
    }
    let context = driver.contexts.get(handle).map_err(|_| Code::ContextIsDestroyed)?;
    Ok((driver, context))
}

/// The driver and the current context, which works.
///
/// # Errors
///
/// As [`any`], and what the context failed with.
pub(super) fn working() -> Result<(&'static Driver, Arc<Context>), Code> {
    let (driver, context) = any()?;
    context.check()?;
    Ok((driver, context))
}
