//! The driver API as the tests call it: through the C entry points, in this process or in child processes.
#![allow(dead_code, reason = "every test file uses some of it")]

use std::ffi::{CString, c_void};
use std::io::Read;
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use cpkv_vgpu::driver::entry::{context, copy, device, error, event, ipc, launch, memory, module, stream};
use cpkv_vgpu::driver::{Code, IpcHandle, Out};

/// Kernels for the tests.
pub(crate) const PTX: &str = r#"
.version 8.3
.target sm_90
.address_size 64

.visible .global .align 4 .u32 seven = 7;

// out[i] = value + i for i < n, one thread an element.
.visible .entry count_up(.param .u64 out, .param .u32 value, .param .u32 n)
{
    .reg .pred %p<2>;
    .reg .b32 %r<8>;
    .reg .b64 %rd<5>;
    ld.param.u64 %rd1, [out];
    ld.param.u32 %r1, [value];
    ld.param.u32 %r2, [n];
    mov.u32 %r3, %ctaid.x;
    mov.u32 %r4, %ntid.x;
    mov.u32 %r5, %tid.x;
    mad.lo.s32 %r6, %r3, %r4, %r5;
    setp.ge.u32 %p1, %r6, %r2;
    @%p1 bra $done;
    cvta.to.global.u64 %rd2, %rd1;
    mul.wide.u32 %rd3, %r6, 4;
    add.s64 %rd4, %rd2, %rd3;
    add.s32 %r7, %r1, %r6;
    st.global.u32 [%rd4], %r7;
$done:
    ret;
}

// to = from, one word.
.visible .entry copy_word(.param .u64 to, .param .u64 from)
{
    .reg .b32 %r<2>;
    .reg .b64 %rd<3>;
    ld.param.u64 %rd1, [to];
    ld.param.u64 %rd2, [from];
    ld.global.u32 %r1, [%rd2];
    st.global.u32 [%rd1], %r1;
    ret;
}

// Adds to a word that others use too.
.visible .entry bump(.param .u64 word, .param .u32 by)
{
    .reg .b32 %r<2>;
    .reg .b64 %rd<2>;
    ld.param.u64 %rd1, [word];
    ld.param.u32 %r1, [by];
    red.release.sys.global.add.s32 [%rd1], %r1;
    ret;
}

// The same, visible to this device alone.
.visible .entry bump_here(.param .u64 word, .param .u32 by)
{
    .reg .b32 %r<2>;
    .reg .b64 %rd<2>;
    ld.param.u64 %rd1, [word];
    ld.param.u32 %r1, [by];
    red.release.gpu.global.add.s32 [%rd1], %r1;
    ret;
}

// Waits until a word is not 0.
.visible .entry wait_word(.param .u64 word)
{
    .reg .pred %p<2>;
    .reg .b32 %r<2>;
    .reg .b64 %rd<2>;
    ld.param.u64 %rd1, [word];
$again:
    ld.acquire.sys.global.s32 %r1, [%rd1];
    setp.ne.s32 %p1, %r1, 0;
    @%p1 bra $done;
    nanosleep.u32 1000;
    bra.uni $again;
$done:
    ret;
}

.visible .entry trap_now()
{
    trap;
    ret;
}
"#;

/// Asks for success.
#[track_caller]
pub(crate) fn ok(code: Code) {
    assert_eq!(code, Code::Success);
}

/// Room for a result.
pub(crate) fn out<T>(value: &mut T) -> Out<T> {
    // SAFETY: the tests use it up in the call that it is made for.
    unsafe { Out::new(value) }
}

/// Calls an entry point.
macro_rules! cu {
    ($($call:tt)*) => {{
        // SAFETY: every pointer in the call is of live values of the test, as large as the call wants.
        unsafe { $($call)* }
    }};
}

pub(crate) use cu;

/// Starts the driver and makes a device's primary context current.
pub(crate) fn start_on(ordinal: i32) -> u64 {
    ok(cu!(error::cuInit(0)));
    let mut handle = 0;
    ok(cu!(device::cuDevicePrimaryCtxRetain(out(&mut handle), ordinal)));
    ok(cu!(context::cuCtxSetCurrent(handle)));
    handle
}

/// Starts the driver with a context of the test's own, so that a failure in it hurts no other test.
pub(crate) fn start() -> u64 {
    ok(cu!(error::cuInit(0)));
    let mut handle = 0;
    ok(cu!(context::cuCtxCreate_v2(out(&mut handle), 0, 0)));
    handle
}

/// New device memory.
pub(crate) fn alloc(bytes: usize) -> u64 {
    let mut address = 0;
    ok(cu!(memory::cuMemAlloc_v2(out(&mut address), bytes)));
    address
}

/// Copies to the device.
pub(crate) fn upload(to: u64, bytes: &[u8]) -> Code {
    cu!(copy::cuMemcpyHtoD_v2(to, bytes.as_ptr() as u64, bytes.len()))
}

/// Copies from the device.
pub(crate) fn download(from: u64, bytes: usize) -> Result<Vec<u8>, Code> {
    let mut seen = vec![0; bytes];
    match cu!(copy::cuMemcpyDtoH_v2(seen.as_mut_ptr() as u64, from, bytes)) {
        Code::Success => Ok(seen),
        code => Err(code),
    }
}

/// Copies words from the device.
#[track_caller]
pub(crate) fn words(from: u64, count: usize) -> Vec<u32> {
    let bytes = download(from, count * 4).unwrap();
    bytes.chunks_exact(4).map(|word| u32::from_le_bytes(word.try_into().unwrap())).collect()
}

/// Loads the test kernels.
pub(crate) fn load() -> u64 {
    let (mut handle, text) = (0, CString::new(PTX).unwrap());
    ok(cu!(module::cuModuleLoadData(out(&mut handle), text.as_ptr().cast())));
    handle
}

/// A kernel of them.
pub(crate) fn kernel(module: u64, name: &str) -> u64 {
    let (mut handle, name) = (0, CString::new(name).unwrap());
    ok(cu!(module::cuModuleGetFunction(out(&mut handle), module, name.as_ptr())));
    handle
}

/// A parameter of a launch.
pub(crate) enum Arg {
    /// 32 bits.
    Word(u32),
    /// 64 bits.
    Long(u64),
}

/// Puts a kernel on a stream.
pub(crate) fn run(function: u64, blocks: u32, threads: u32, on: u64, args: &[Arg]) -> Code {
    let pointer = |arg: &Arg| match arg {
        Arg::Word(word) => std::ptr::from_ref(word).cast::<u8>(),
        Arg::Long(long) => std::ptr::from_ref(long).cast::<u8>(),
    };
    let mut pointers: Vec<*const u8> = args.iter().map(pointer).collect();
    let params = cu!(Out::new(pointers.as_mut_ptr()));
    cu!(launch::cuLaunchKernel(
        function,
        blocks,
        1,
        1,
        threads,
        1,
        1,
        0,
        on,
        params,
        std::ptr::null::<c_void>()
    ))
}

/// A new stream; `flags` 1: non-blocking.
pub(crate) fn new_stream(flags: u32) -> u64 {
    let mut handle = 0;
    ok(cu!(stream::cuStreamCreate(out(&mut handle), flags)));
    handle
}

/// Waits for a stream.
pub(crate) fn sync(on: u64) -> Code {
    cu!(stream::cuStreamSynchronize(on))
}

/// A new event.
pub(crate) fn new_event() -> u64 {
    let mut handle = 0;
    ok(cu!(event::cuEventCreate(out(&mut handle), 0)));
    handle
}

/// The variable that says which part of a test a child process plays.
pub(crate) const ROLE: &str = "VGPU_TEST_ROLE";

/// This process's part, if it is a child.
pub(crate) fn role() -> Option<String> {
    std::env::var(ROLE).ok()
}

/// Starts this test again in a child process with a part to play.
pub(crate) fn spawn(test: &str, role: &str, environment: &[(&str, &str)]) -> Child {
    Command::new(std::env::current_exe().unwrap())
        .args(["--exact", test, "--nocapture", "--test-threads=1"])
        .env(ROLE, role)
        .envs(environment.iter().copied())
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap()
}

/// Waits for a child, at most a minute.
#[track_caller]
pub(crate) fn finish(mut child: Child) -> Output {
    drop(child.stdin.take());
    let read = |mut from: Box<dyn Read + Send>| {
        std::thread::spawn(move || {
            let mut text = Vec::new();
            from.read_to_end(&mut text).map(|_| text)
        })
    };
    let stdout = read(Box::new(child.stdout.take().unwrap()));
    let stderr = read(Box::new(child.stderr.take().unwrap()));
    let deadline = Instant::now() + Duration::from_secs(60);
    let status = loop {
        if let Some(status) = child.try_wait().unwrap() {
            break status;
        }
        assert!(
            Instant::now() < deadline || child.kill().is_err(),
            "a child process did not end in a minute"
        );
        std::thread::sleep(Duration::from_millis(5));
    };
    Output { status, stdout: stdout.join().unwrap().unwrap(), stderr: stderr.join().unwrap().unwrap() }
}

/// Runs `body` in a child process with this environment; what the child wrote to stderr. In the child it does not return.
#[track_caller]
pub(crate) fn in_child(test: &str, environment: &[(&str, &str)], body: impl FnOnce()) -> String {
    if role().is_some() {
        body();
        std::process::exit(0);
    }
    let output = finish(spawn(test, "child", environment));
    let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{}\n{stderr}", String::from_utf8_lossy(&output.stdout));
    stderr
}

/// An IPC handle as text.
pub(crate) fn hex(handle: &IpcHandle) -> String {
    handle.bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// An IPC handle from text.
pub(crate) fn unhex(text: &str) -> IpcHandle {
    let mut bytes = [0; 64];
    for (at, byte) in bytes.iter_mut().enumerate() {
        *byte = u8::from_str_radix(&text[2 * at..2 * at + 2], 16).unwrap();
    }
    IpcHandle { bytes }
}

/// Exports memory.
#[track_caller]
pub(crate) fn export(address: u64) -> IpcHandle {
    let mut handle = IpcHandle { bytes: [0; 64] };
    ok(cu!(ipc::cuIpcGetMemHandle(out(&mut handle), address)));
    handle
}

/// Opens memory of another process.
pub(crate) fn open(handle: &IpcHandle) -> Result<u64, Code> {
    let mut address = 0;
    match cu!(ipc::cuIpcOpenMemHandle_v2(out(&mut address), *handle, 1)) {
        Code::Success => Ok(address),
        code => Err(code),
    }
}

/// The variable that carries an IPC handle to a child.
pub(crate) const HANDLE: &str = "VGPU_TEST_HANDLE";

/// In a child: opens what the parent exported.
pub(crate) fn open_given() -> Result<u64, Code> {
    open(&unhex(&std::env::var(HANDLE).unwrap()))
}

/// In a child: says something to the parent.
pub(crate) fn say(text: &str) {
    eprintln!("SAY {text}");
}

/// Waits until a child says something; what it said.
#[track_caller]
pub(crate) fn hear(child: &mut Child) -> String {
    let stderr = child.stderr.as_mut().unwrap();
    let (mut line, mut all, mut byte) = (Vec::new(), String::new(), [0]);
    // The child's end closes the pipe, so this wait ends with it; the child itself waits at most a minute.
    while stderr.read(&mut byte).unwrap() == 1 {
        line.push(byte[0]);
        if byte[0] == b'\n' {
            let text = String::from_utf8_lossy(&line).into_owned();
            if let Some(said) = text.strip_prefix("SAY ") {
                return said.trim().to_owned();
            }
            all += &text;
            line.clear();
        }
    }
    panic!("the child ended without a word:\n{all}")
}

/// In a child: waits until the parent closes its end, at most a minute.
pub(crate) fn until_told() {
    std::thread::spawn(|| {
        std::thread::sleep(Duration::from_secs(60));
        std::process::exit(3);
    });
    let _ = std::io::stdin().read(&mut [0]);
}
