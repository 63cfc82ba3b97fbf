//! The stand-in for `libcuda.so.1`: the part of the CUDA driver API that `cust` 0.3.2 programs reach, on virtual devices.
//!
//! A program needs nothing but this library under the names `libcuda.so.1` and `libcuda.so` in a folder of
//! `LD_LIBRARY_PATH`. What it declares and does not do answers `CUDA_ERROR_NOT_SUPPORTED`.
//!
//! # The environment
//!
//! | variable | meaning | default |
//! |---|---|---|
//! | `CPKV_VGPU_DEVICES` | number of devices, up to 64 | 1 |
//! | `CUDA_VISIBLE_DEVICES` | which of them the process sees: indices or UUIDs | all |
//! | `CPKV_VGPU_MEMORY_MB` | memory of a device, for each process | 1024 |
//! | `CPKV_VGPU_WATCHDOG_S` | a wait of the host longer than this is reported, and gives `CUDA_ERROR_LAUNCH_TIMEOUT` for ever | 120 |
//! | `CPKV_VGPU_MAX_THREADS` | the most threads of one launch: all blocks are resident, more is refused | 262144 |
//! | `CPKV_VGPU_UNINITIALISED` | 1: a kernel's read of never-written memory is a fault | 0 |
//! | `CPKV_VGPU_MODULE` | a file with PTX that is loaded in place of whatever modules the process loads; said once on stderr | none |
//! | `CPKV_VGPU_FAULT_LOG` | a file that faults are appended to | none |
//! | `CPKV_VGPU_FAULTS` | faults to stage, see below | none |
//!
//! # Faults
//!
//! What breaks a rule of the machine is a line `vgpu: fault: ...` on stderr and in the fault log, and fails the context
//! for ever. What a person should know beside that is `vgpu: note: ...`.
//!
//! `CPKV_VGPU_FAULTS` stages more: a list `name[=value][@target]` with commas between; the target is a device's place on
//! the machine (`@1`) or a rank (`@rank3`, compared with `OMPI_COMM_WORLD_RANK`).
//!
//! | name | what goes wrong |
//! |---|---|
//! | `peer-lies` | `cuDeviceCanAccessPeer` says yes; `cuIpcOpenMemHandle` (205) and `cuCtxEnablePeerAccess` (217) fail |
//! | `peer-off` | `cuDeviceCanAccessPeer` says no; opening another device's memory and enabling access fail (217) |
//! | `peer-garbage` | `cuIpcOpenMemHandle` opens other memory, poisoned |
//! | `lost-adds` | what this process writes to memory it opens does not reach the owner (copied on the first write to a page) |
//! | `export-fails` | `cuIpcGetMemHandle` fails (205) |
//! | `alloc-fails=n` | the n-th `cuMemAlloc` fails (2) |
//! | `host-alloc-fails=n` | the n-th allocation of pinned memory fails (2) |
//! | `module-fails` | modules are refused (218) |
//! | `stream-fails=n` | the n-th stream fails (2) |
//! | `event-fails=n` | the n-th event fails (2) |
//! | `launch-fails=n` | the n-th launch fails (701) |
//! | `slow=us` | every kernel begins so many microseconds late |
//! | `slow-host=us` | every host function begins so many microseconds late |
//! | `stuck=kernel` | the kernel of this name never ends; `stuck=kernel:n`: from its n-th launch on |
//! | `ecc=n` | after n launches the context fails (214) |
//!
//! # Limits
//!
//! Memory is limited for each process, not for a device that processes share. Priorities are kept and not acted on. There
//! are no textures, arrays, pools, memory maps, managed memory, IPC events, and no graphs other than captured ones, which
//! replay in the order of capture.

mod block;
mod capture;
mod code;
mod context;
mod copying;
mod current;
mod device;
mod done;
#[expect(clippy::module_inception, reason = "the driver's state is its own file")]
mod driver;
#[allow(non_snake_case, reason = "the names are CUDA's")]
pub mod entry;
mod event;
mod graph;
mod host_function;
mod ipc;
mod launch;
mod lock;
mod mapping;
mod module;
mod options;
mod report;
mod space;
mod staged;
mod stream;
mod table;
mod view;
mod work;

pub use code::Code;
pub use entry::device::Uuid;
pub use entry::out::Out;
pub use ipc::IpcHandle;
