//! A virtual GPU for the tests of cpkv: an interpreter of the PTX that ships, and a stand-in for `libcuda.so.1`
//! under the CUDA host code that ships. Test support: never shipped, never linked into the library.

pub mod driver;
pub mod exec;
pub mod machine;
pub mod ptx;
