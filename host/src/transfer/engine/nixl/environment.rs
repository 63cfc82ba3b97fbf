//! What UCX, the transport inside NIXL, reads from the environment when its library is loaded.
//!
//! | variable | set to | why |
//! |---|---|---|
//! | `UCX_MODULES` | `^ib`, where the machine has no InfiniBand | a library of that module crashes the process at its exit |
//! | `UCX_NET_DEVICES` | `lo`, for [`NixlEnvironment::loopback`] | its listeners would bind every network interface |
//! | `UCX_TLS` | `tcp`, for [`NixlEnvironment::tcp_only`] | within a machine it would copy inside the call that submits |
//! | `UCX_LOG_FILE` | `stderr` | standard output is the program's |

use std::ffi::{OsStr, OsString};
use std::path::Path;

/// Where Linux lists InfiniBand and RoCE devices.
const INFINIBAND: &str = "/sys/class/infiniband";

/// What UCX is to use.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct NixlEnvironment {
    /// Only the loopback interface: nothing of it can be reached from another machine.
    pub loopback: bool,
    /// Only TCP.
    pub tcp_only: bool,
}

impl NixlEnvironment {
    /// Sets what is not set already. Programs call this at the start of `main`; who uses the library from a process of
    /// another language sets `UCX_MODULES=^ib` before that process starts (not where there is InfiniBand: see
    /// [`exit`](super::exit())).
    ///
    /// # Safety
    /// No other thread of the process runs: one could read the environment meanwhile.
    pub unsafe fn set(self) {
        for (name, value) in self.variables(has_infiniband()) {
            if std::env::var_os(name).is_none() {
                // SAFETY: the caller's promise.
                unsafe { std::env::set_var(name, value) };
            }
        }
    }

    /// Names and values.
    fn variables(self, has_infiniband: bool) -> Vec<(&'static str, &'static str)> {
        let all = [
            ("UCX_MODULES", "^ib", !has_infiniband),
            ("UCX_NET_DEVICES", "lo", self.loopback),
            ("UCX_TLS", "tcp", self.tcp_only),
            ("UCX_LOG_FILE", "stderr", true),
        ];
        all.into_iter().filter(|(.., wanted)| *wanted).map(|(name, value, _)| (name, value)).collect()
    }
}

/// Whether the machine has an InfiniBand or RoCE device.
pub(super) fn has_infiniband() -> bool {
    std::fs::read_dir(Path::new(INFINIBAND)).is_ok_and(|mut devices| devices.next().is_some())
}

/// Refuses an environment in which the process would crash at its exit.
pub(super) fn check() -> Result<(), String> {
    check_modules(std::env::var_os("UCX_MODULES").as_deref(), has_infiniband())
}

/// A value that somebody chose is let through: it may name other modules.
fn check_modules(modules: Option<&OsStr>, has_infiniband: bool) -> Result<(), String> {
    if has_infiniband || modules.is_some() {
        return Ok(());
    }
    Err("UCX_MODULES is not set, and the process would crash at its exit: call NixlEnvironment::set at the start of \
         main, or start it with UCX_MODULES=^ib"
        .to_owned())
}

/// What UCX uses and binds, for people.
pub(super) fn describe() -> String {
    let words = |name: &str, otherwise: &str| {
        std::env::var_os(name).unwrap_or_else(|| OsString::from(otherwise)).to_string_lossy().into_owned()
    };
    let transports = words("UCX_TLS", "all it finds");
    let interfaces = words("UCX_NET_DEVICES", "every network interface");
    format!("UCX, transports: {transports}, listening on {interfaces}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_infiniband_module_is_left_out_only_where_there_is_no_infiniband() {
        let tests = NixlEnvironment { loopback: true, tcp_only: true };
        let names = |environment: NixlEnvironment, has_infiniband| {
            let variables = environment.variables(has_infiniband).into_iter();
            variables.map(|(name, value)| format!("{name}={value}")).collect::<Vec<_>>()
        };
        assert_eq!(
            names(tests, false),
            ["UCX_MODULES=^ib", "UCX_NET_DEVICES=lo", "UCX_TLS=tcp", "UCX_LOG_FILE=stderr"]
        );
        assert_eq!(names(NixlEnvironment::default(), false), ["UCX_MODULES=^ib", "UCX_LOG_FILE=stderr"]);
        assert_eq!(names(NixlEnvironment::default(), true), ["UCX_LOG_FILE=stderr"]);
    }

    #[test]
    fn an_environment_that_ends_in_a_crash_is_refused_and_a_chosen_one_is_not() {
        let reason = check_modules(None, false).unwrap_err();
        assert!(reason.contains("UCX_MODULES=^ib"), "{reason}");
        assert_eq!(check_modules(None, true), Ok(()));
        assert_eq!(check_modules(Some(OsStr::new("all")), false), Ok(()));
    }
}
