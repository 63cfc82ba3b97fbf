//! What one process tells the others: its name, what its memory is, and NIXL's own metadata. Pure.

use xxhash_rust::xxh3::xxh3_64;

use crate::device::MemoryKind;

/// The first bytes; the digit is the version of this layout.
const MAGIC: [u8; 8] = *b"cpkvnxl1";

/// `[magic: 8][check: 8][memory: 1][device: 8][name bytes: 4][agent bytes: 4]`, little endian; name, agent and NIXL's
/// metadata follow. The check covers all behind it.
const HEADER_BYTES: usize = 33;

/// An engine, as its peers know it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Metadata {
    /// The name that its owner gave it: a process that is started anew has the same.
    pub(super) name: String,
    /// Its name in NIXL: another one each time.
    pub(super) agent: String,
    /// What its memory is.
    pub(super) memory: MemoryKind,
    /// The device that its memory belongs to.
    pub(super) device_id: u64,
    /// NIXL's metadata.
    pub(super) nixl: Vec<u8>,
}

impl Metadata {
    /// Its bytes; `None` where a name is absurdly long.
    pub(super) fn encode(&self) -> Option<Vec<u8>> {
        let mut body =
            Vec::with_capacity(HEADER_BYTES + self.name.len() + self.agent.len() + self.nixl.len());
        body.push(match self.memory {
            MemoryKind::Host => 0,
            MemoryKind::Cuda => 1,
        });
        body.extend_from_slice(&self.device_id.to_le_bytes());
        for text in [&self.name, &self.agent] {
            body.extend_from_slice(&u32::try_from(text.len()).ok()?.to_le_bytes());
        }
        body.extend_from_slice(self.name.as_bytes());
        body.extend_from_slice(self.agent.as_bytes());
        body.extend_from_slice(&self.nixl);
        let check = xxh3_64(&body).to_le_bytes();
        Some([&MAGIC[..], &check[..], &body].concat())
    }

    /// What `bytes` say, if they are whole and of this layout. NIXL is not shown others: it trusts what it reads.
    pub(super) fn decode(bytes: &[u8]) -> Option<Self> {
        let (magic, rest) = bytes.split_first_chunk::<8>()?;
        let (check, body) = rest.split_first_chunk::<8>()?;
        if *magic != MAGIC || u64::from_le_bytes(*check) != xxh3_64(body) {
            return None;
        }
        let (kind, rest) = body.split_first()?;
        let memory = match kind {
            0 => MemoryKind::Host,
            1 => MemoryKind::Cuda,
            _ => return None,
        };
        let (device_id, rest) = rest.split_first_chunk::<8>()?;
        let (name_bytes, rest) = rest.split_first_chunk::<4>()?;
        let (agent_bytes, rest) = rest.split_first_chunk::<4>()?;
        let (name, rest) = text(rest, u32::from_le_bytes(*name_bytes))?;
        let (agent, nixl) = text(rest, u32::from_le_bytes(*agent_bytes))?;
        let device_id = u64::from_le_bytes(*device_id);
        Some(Self { name, agent, memory, device_id, nixl: nixl.to_vec() })
    }
}

/// The text of `bytes` bytes at the start, and what follows.
fn text(from: &[u8], bytes: u32) -> Option<(String, &[u8])> {
    let (text, rest) = from.split_at_checked(bytes as usize)?;
    Some((std::str::from_utf8(text).ok()?.to_owned(), rest))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn some() -> Metadata {
        Metadata {
            name: "decode 3".to_owned(),
            agent: "decode 3#0123".to_owned(),
            memory: MemoryKind::Cuda,
            device_id: 5,
            nixl: vec![0, 1, 255, 7],
        }
    }

    #[test]
    fn metadata_come_back_whole_and_no_damaged_ones_do() {
        let bytes = some().encode().unwrap();
        assert_eq!(Metadata::decode(&bytes), Some(some()));
        for cut in 0..bytes.len() {
            assert_eq!(Metadata::decode(&bytes[..cut]), None, "cut at {cut}");
            let mut damaged = bytes.clone();
            damaged[cut] ^= 1;
            assert_eq!(Metadata::decode(&damaged), None, "byte {cut}");
        }
        assert_eq!(Metadata::decode(b"nixlSerDes|Agent"), None);
    }

    #[test]
    fn empty_parts_are_kept() {
        let empty = Metadata { name: String::new(), agent: String::new(), nixl: Vec::new(), ..some() };
        assert_eq!(Metadata::decode(&empty.encode().unwrap()), Some(empty));
    }
}
