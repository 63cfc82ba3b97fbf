//! The peers that one endpoint knows.

use std::sync::Weak;

use super::super::PeerId;
use super::endpoint::Endpoint;

/// One peer.
#[derive(Debug)]
pub(super) struct Peer {
    pub(super) name: Box<str>,
    /// The instance that was added; nothing once that is gone.
    pub(super) target: Weak<Endpoint>,
    /// Registrations of the peer that its card told of.
    pub(super) num_known: u64,
    current: bool,
}

/// All peers that were ever added, by id.
#[derive(Debug, Default)]
pub(super) struct Peers(Vec<Peer>);

impl Peers {
    /// Adds a peer. Returns its id, and the id it had before.
    pub(super) fn add(
        &mut self,
        name: Box<str>,
        target: Weak<Endpoint>,
        num_known: u64,
    ) -> (PeerId, Option<PeerId>) {
        let before = self.0.iter_mut().zip(0..).find(|(peer, _)| peer.current && peer.name == name);
        let before = before.map(|(peer, id)| {
            peer.current = false;
            PeerId(id)
        });
        let id = PeerId(u32::try_from(self.0.len()).unwrap_or(u32::MAX));
        self.0.push(Peer { name, target, num_known, current: true });
        (id, before)
    }

    /// Forgets a peer; whether there was one.
    pub(super) fn remove(&mut self, peer: PeerId) -> bool {
        let peer = self.0.get_mut(peer.0 as usize).filter(|peer| peer.current);
        peer.map(|peer| peer.current = false).is_some()
    }

    /// A peer that is known now.
    pub(super) fn get(&self, peer: PeerId) -> Option<&Peer> {
        self.0.get(peer.0 as usize).filter(|peer| peer.current)
    }

    /// The name of a peer that is known, or was.
    pub(super) fn name(&self, peer: PeerId) -> Option<&str> {
        self.0.get(peer.0 as usize).map(|peer| &*peer.name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_peer_that_is_added_anew_has_a_new_id_and_its_old_one_is_refused() {
        let mut peers = Peers::default();
        let mut add = |name: &str| peers.add(name.into(), Weak::new(), 0);
        assert_eq!((add("a"), add("b")), ((PeerId(0), None), (PeerId(1), None)));
        assert_eq!(add("a"), (PeerId(2), Some(PeerId(0))));
        assert_eq!(add("a"), (PeerId(3), Some(PeerId(2))));
        assert!(peers.get(PeerId(0)).is_none() && peers.get(PeerId(2)).is_none());
        assert!(peers.get(PeerId(1)).is_some() && peers.get(PeerId(3)).is_some());
        assert_eq!(peers.name(PeerId(0)), Some("a"));
        assert!(peers.remove(PeerId(3)) && !peers.remove(PeerId(3)) && !peers.remove(PeerId(4)));
    }
}
