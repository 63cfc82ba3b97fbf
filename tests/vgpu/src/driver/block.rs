//! The bytes of one allocation, with their shadow.
//!
//! Device memory is a memfd, so that other processes can open it and nothing is left behind by a killed one:
//!
//! ```text
//! 0        the header: a magic number, the size, who has it open
//! 4096     the data, rounded up to pages
//! ...      the shadow: one byte for every 4 bytes of data
//! ```

use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::sync::atomic::{AtomicU8, AtomicU32, AtomicU64, Ordering};

use rustix::fs::{FallocateFlags, MemfdFlags, fallocate, fstat, memfd_create};
use rustix::io::Errno;

use super::mapping::Mapping;
use crate::machine::SHADOW_INIT;

/// What new memory holds.
pub(super) const POISON: u8 = 0xCB;

const PAGE: u64 = 4096;
const MAGIC: u64 = u64::from_le_bytes(*b"cpkvvgpu");
const MAX_OPENERS: usize = 128;

/// The first page of a memfd.
///
/// | word | who writes | who reads | at rest |
/// |---|---|---|---|
/// | `magic`, `bytes` | the owner, before it exports | openers | as written |
/// | `freed` | the owner, when it frees | openers, when they open | 0 |
/// | `openers[i]` | an opener: 0 to its process id when it opens, back to 0 when it closes | the owner, when it frees | 0 |
#[repr(C)]
struct Header {
    magic: AtomicU64,
    bytes: AtomicU64,
    freed: AtomicU32,
    openers: [AtomicU32; MAX_OPENERS],
}

const _: () = assert!(size_of::<Header>() <= PAGE as usize);

/// One allocation's bytes. They stay mapped as long as anybody holds the block.
pub(super) struct Block {
    data: *mut u8,
    bytes: u64,
    shadow: *const AtomicU8,
    header: Option<*const Header>,
    file: Option<OwnedFd>,
    /// The slot in `openers` that this process holds.
    opened_as: Option<usize>,
    /// What the pointers point into.
    _maps: Vec<Mapping>,
}

// SAFETY: the pointers lead into mappings that the block owns (or into registered host memory, which its owner keeps);
// the header and the shadow are atomics, and who accesses the data answers for it.
unsafe impl Send for Block {}
// SAFETY: as above.
unsafe impl Sync for Block {}

fn pages(bytes: u64) -> u64 {
    bytes.next_multiple_of(PAGE)
}

fn shadow_bytes(bytes: u64) -> u64 {
    bytes.div_ceil(4)
}

impl Block {
    /// New device memory: poisoned, and marked as never written.
    pub(super) fn device(bytes: u64) -> Result<Block, Errno> {
        let file = memfd_create("cpkv-vgpu", MemfdFlags::CLOEXEC)?;
        // Reserved now, so that a full machine gives an error and not a SIGBUS later.
        fallocate(&file, FallocateFlags::empty(), 0, PAGE + pages(bytes) + pages(shadow_bytes(bytes)))?;
        let block = Block::map(file, bytes, false)?;
        if let Some(header) = block.header() {
            header.magic.store(MAGIC, Ordering::Relaxed);
            header.bytes.store(bytes, Ordering::Release);
        }
        // SAFETY: the mapping is at least that long, and nobody else knows it yet.
        unsafe { block.data.write_bytes(POISON, bytes as usize) };
        Ok(block)
    }

    /// Device memory of another process. `lossy`: what this process writes there does not reach the owner.
    pub(super) fn open(file: OwnedFd, bytes: u64, lossy: bool) -> Result<Block, Errno> {
        if fstat(&file)?.st_size as u64 != PAGE + pages(bytes) + pages(shadow_bytes(bytes)) {
            return Err(Errno::INVAL);
        }
        let mut block = Block::map(file, bytes, lossy)?;
        let header = block.header().ok_or(Errno::INVAL)?;
        if header.magic.load(Ordering::Relaxed) != MAGIC || header.bytes.load(Ordering::Acquire) != bytes {
            return Err(Errno::INVAL);
        }
        if header.freed.load(Ordering::Acquire) != 0 {
            return Err(Errno::STALE);
        }
        let me = std::process::id();
        let free = header.openers.iter().position(|slot| {
            let seen = slot.load(Ordering::Relaxed);
            // A slot of a process that died without closing is free too.
            let usable = seen == 0 || !alive(seen);
            usable && slot.compare_exchange(seen, me, Ordering::AcqRel, Ordering::Relaxed).is_ok()
        });
        block.opened_as = Some(free.ok_or(Errno::NOSPC)?);
        Ok(block)
    }

    fn map(file: OwnedFd, bytes: u64, lossy: bool) -> Result<Block, Errno> {
        let whole = PAGE + pages(bytes) + pages(shadow_bytes(bytes));
        let mut map = Mapping::shared(file.as_fd(), whole as usize)?;
        if lossy {
            map.make_private(file.as_fd(), PAGE as usize, pages(bytes) as usize)?;
        }
        let start = map.start();
        Ok(Block {
            data: start.wrapping_add(PAGE as usize),
            bytes,
            shadow: start.wrapping_add((PAGE + pages(bytes)) as usize).cast::<AtomicU8>(),
            header: Some(start.cast::<Header>()),
            file: Some(file),
            opened_as: None,
            _maps: vec![map],
        })
    }

    /// Pinned host memory, poisoned. Its shadow says "written": what the host writes leaves no mark.
    pub(super) fn host(bytes: u64) -> Result<Block, Errno> {
        let map = Mapping::anonymous(pages(bytes) as usize)?;
        // SAFETY: the mapping is at least that long, and nobody else knows it yet.
        unsafe { map.start().write_bytes(POISON, bytes as usize) };
        let mut block = Block::registered(map.start(), bytes)?;
        block._maps.push(map);
        Ok(block)
    }

    /// Host memory that somebody else owns and keeps until it is unregistered.
    pub(super) fn registered(data: *mut u8, bytes: u64) -> Result<Block, Errno> {
        let shadow = Mapping::anonymous(pages(shadow_bytes(bytes)) as usize)?;
        // SAFETY: the mapping is at least that long, and nobody else knows it yet.
        unsafe { shadow.start().write_bytes(SHADOW_INIT, shadow_bytes(bytes) as usize) };
        let start = shadow.start().cast::<AtomicU8>();
        Ok(Block {
            data,
            bytes,
            shadow: start,
            header: None,
            file: None,
            opened_as: None,
            _maps: vec![shadow],
        })
    }

    /// Its first byte in this process.
    pub(super) fn data(&self) -> *mut u8 {
        self.data
    }

    /// Its size.
    pub(super) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Its first shadow byte.
    pub(super) fn shadow(&self) -> *const AtomicU8 {
        self.shadow
    }

    /// The descriptor and the inode of its memfd.
    pub(super) fn file(&self) -> Option<(i32, u64)> {
        let file = self.file.as_ref()?;
        Some((file.as_raw_fd(), fstat(file).ok()?.st_ino))
    }

    /// The living processes other than this one that have it open.
    pub(super) fn openers(&self) -> Vec<u32> {
        let Some(header) = self.header() else { return Vec::new() };
        let me = std::process::id();
        let seen = header.openers.iter().map(|slot| slot.load(Ordering::Acquire));
        seen.filter(|&pid| pid != 0 && pid != me && alive(pid)).collect()
    }

    /// Says that the owner has freed it: it cannot be opened any more.
    pub(super) fn mark_freed(&self) {
        if let Some(header) = self.header() {
            header.freed.store(1, Ordering::Release);
        }
    }

    fn header(&self) -> Option<&Header> {
        // SAFETY: the pointer leads to the first page of a mapping that the block owns; the header is atomics only, so
        // any bytes are valid and shared access is sound.
        self.header.map(|header| unsafe { &*header })
    }
}

impl Drop for Block {
    fn drop(&mut self) {
        if let (Some(header), Some(slot)) = (self.header(), self.opened_as) {
            header.openers[slot].store(0, Ordering::Release);
        }
    }
}

/// Whether a process runs. One that has ended and was not waited for does not.
fn alive(pid: u32) -> bool {
    let Ok(stat) = std::fs::read_to_string(format!("/proc/{pid}/stat")) else { return false };
    // `pid (name) state ...`; the name may hold anything.
    let state = stat.rsplit_once(") ").and_then(|(_, rest)| rest.chars().next());
    !matches!(state, Some('Z' | 'X'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn new_memory_is_poisoned_and_marked_as_never_written() {
        let block = Block::device(5000).unwrap();
        for at in 0..5000 {
            // SAFETY: inside the block.
            assert_eq!(unsafe { block.data().wrapping_add(at).read() }, POISON);
        }
        // SAFETY: inside the shadow.
        assert_eq!(unsafe { &*block.shadow().wrapping_add(1249) }.load(Ordering::Relaxed), 0);
    }

    #[test]
    fn an_opened_block_is_the_same_bytes_until_its_writes_are_lost() {
        let block = Block::device(4096).unwrap();
        let file = || block.file.as_ref().unwrap().try_clone().unwrap();
        let open = Block::open(file(), 4096, false).unwrap();
        // SAFETY: inside the block.
        unsafe { open.data().write(7) };
        // SAFETY: as above.
        assert_eq!(unsafe { block.data().read() }, 7);
        let lossy = Block::open(file(), 4096, true).unwrap();
        // SAFETY: as above.
        assert_eq!(unsafe { lossy.data().read() }, 7);
        // SAFETY: as above.
        unsafe { lossy.data().write(8) };
        // SAFETY: as above.
        assert_eq!(unsafe { block.data().read() }, 7);
        assert_eq!(Block::open(file(), 8192, false).err(), Some(Errno::INVAL));
    }

    #[test]
    fn a_process_that_has_ended_is_not_alive() {
        assert!(alive(std::process::id()) && !alive(u32::MAX));
        let mut child = std::process::Command::new("true").spawn().unwrap();
        let deadline = std::time::Instant::now() + std::time::Duration::from_secs(20);
        while alive(child.id()) && std::time::Instant::now() < deadline {
            std::thread::yield_now();
        }
        assert!(!alive(child.id()), "a process that nobody waited for yet counts as alive");
        child.wait().unwrap();
    }

    #[test]
    fn an_opener_is_counted_until_it_closes() {
        let block = Block::device(100).unwrap();
        let open = Block::open(block.file.as_ref().unwrap().try_clone().unwrap(), 100, false).unwrap();
        let slots = |block: &Block| {
            block.header().unwrap().openers.iter().filter(|slot| slot.load(Ordering::Relaxed) != 0).count()
        };
        assert_eq!(slots(&block), 1);
        assert!(block.openers().is_empty(), "the process itself is no opener");
        drop(open);
        assert_eq!(slots(&block), 0);
    }
}
