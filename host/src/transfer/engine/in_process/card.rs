//! What an endpoint tells its peers about itself: the engine's metadata. Pure.

use serde::{Deserialize, Serialize};
use xxhash_rust::xxh3::xxh3_64;

/// First bytes of a card.
const MAGIC: [u8; 8] = *b"cpkvmem1";

/// An endpoint, at one moment.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Card {
    /// The fabric: only its endpoints reach each other.
    pub(super) fabric: u64,
    /// The endpoint's name.
    pub(super) name: Box<str>,
    /// Which of the endpoints that had the name.
    pub(super) instance: u64,
    /// Registrations so far: memory that is registered later is unknown to whoever got this card.
    pub(super) num_registered: u64,
}

impl Card {
    /// Its bytes: magic, body, hash of both. `None` where it cannot be written down.
    pub(super) fn to_bytes(&self) -> Option<Vec<u8>> {
        let mut bytes = MAGIC.to_vec();
        serde_json::to_writer(&mut bytes, self).ok()?;
        let check = xxh3_64(&bytes);
        bytes.extend(check.to_le_bytes());
        Some(bytes)
    }

    /// The card that `bytes` hold, if they hold a whole one.
    pub(super) fn from_bytes(bytes: &[u8]) -> Option<Self> {
        let (text, check) = bytes.split_last_chunk()?;
        let body = text.strip_prefix(&MAGIC)?;
        (xxh3_64(text) == u64::from_le_bytes(*check)).then(|| serde_json::from_slice(body).ok())?
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_card_comes_back_whole_and_no_damaged_one_does() {
        let card = Card { fabric: 3, name: "prefill 0 \"é\"".into(), instance: 7, num_registered: 158 };
        let bytes = card.to_bytes().unwrap();
        assert_eq!(Card::from_bytes(&bytes), Some(card));
        for byte in 0..bytes.len() {
            let mut damaged = bytes.clone();
            damaged[byte] ^= 1;
            assert_eq!(Card::from_bytes(&damaged), None, "byte {byte}");
            assert_eq!(Card::from_bytes(&bytes[..byte]), None, "{byte} bytes");
        }
    }
}
