//! Entry points by name.

use std::ffi::{c_char, c_int, c_ulonglong, c_void};

use super::out::Out;
use super::{text, unsupported};
use crate::driver::Code;

/// The entry point that a name without a version means, for a caller of a CUDA version.
fn find(name: &str, version: c_int) -> Result<*const c_void, Code> {
    let symbols = [super::symbols(), unsupported::symbols()].concat();
    let known = |name: &str| symbols.iter().find(|(symbol, _)| *symbol == name).map(|(_, address)| *address);
    let newest = match name {
        "cuGraphInstantiate" if version >= 12000 => known("cuGraphInstantiateWithFlags"),
        "cuGetProcAddress" if version < 12000 => known("cuGetProcAddress"),
        _ => known(&format!("{name}_v2")),
    };
    newest.or_else(|| known(name)).ok_or(Code::NotFound)
}

entries! {
    /// The address of an entry point.
    fn cuGetProcAddress(name: *const c_char, address: Out<*const c_void>, version: c_int, _flags: c_ulonglong) {
        address.set(find(text(name)?, version)?)
    }

    /// The address of an entry point; the status says 0 (found) or 1 (not found), and the call succeeds either way.
    fn cuGetProcAddress_v2(
        name: *const c_char,
        address: Out<*const c_void>,
        version: c_int,
        _flags: c_ulonglong,
        status: Out<c_int>,
    ) {
        let found = find(text(name)?, version);
        status.set_if_wanted(c_int::from(found.is_err()));
        if status.is_null() { address.set(found?) } else { address.set(found.unwrap_or(std::ptr::null())) }
    }
}

#[cfg(test)]
mod tests {
    use super::find;
    use crate::driver::Code;

    #[test]
    fn a_name_without_a_version_means_the_newest_entry_point() {
        assert_eq!(find("cuMemAlloc", 12000), find("cuMemAlloc_v2", 12000));
        assert!(find("cuInit", 12000).is_ok());
        assert!(find("cuTexRefCreate", 12000).is_ok());
        assert_ne!(find("cuGraphInstantiate", 12000), find("cuGraphInstantiate", 11040));
        assert_eq!(find("cuNoSuchCall", 12000), Err(Code::NotFound));
    }
}
