//! What one connection does: random actions on random streams until it is told to stop.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use super::Load;
use super::slot::{Belief, Producer, Slot};
use crate::history::{Outcome, Refusal, Stamp};
use crate::recorded::{Append, From, Recorded};
use crate::rng::Rng;

/// How long a worker holds back when the node cannot be reached or has no time.
const PAUSE: Duration = Duration::from_millis(5);

impl Load {
    /// Writers and readers.
    pub(super) async fn work(&self, client: &Recorded, mut rng: Rng, stop: &AtomicBool) {
        while !stop.load(Ordering::SeqCst) {
            let slot = &self.slots[rng.index(self.slots.len())];
            let outcome = self.act(client, slot, &mut rng).await;
            if let Some(Outcome::Refused(Refusal::NotSent | Refusal::Unavailable) | Outcome::Unknown) =
                outcome
            {
                tokio::time::sleep(PAUSE).await;
            }
        }
    }

    /// A reader that follows one stream's tail after the other.
    pub(super) async fn follow(&self, client: &Recorded, mut rng: Rng, stop: &AtomicBool) {
        while !stop.load(Ordering::SeqCst) {
            let slot = &self.slots[rng.index(self.slots.len())];
            let mut from = if rng.one_in(4) { From::Now } else { From::At(slot.seen()) };
            for _ in 0..rng.between(1, 20) {
                let outcome = client.long_poll(&slot.name, from).await;
                match outcome {
                    Outcome::Read(r) if !r.closed && !stop.load(Ordering::SeqCst) => from = From::At(r.next),
                    Outcome::Read(_) => break,
                    _ => {
                        tokio::time::sleep(PAUSE).await;
                        break;
                    }
                }
            }
        }
    }

    async fn act(&self, client: &Recorded, slot: &Slot, rng: &mut Rng) -> Option<Outcome> {
        let closed = slot.belief() == Belief::Closed;
        let renew = if closed { 6 } else { self.shape.delete_one_in };
        if slot.belief() == Belief::Absent || !slot.calm && rng.one_in(renew) {
            return self.renew(client, slot, rng).await;
        }
        Some(match rng.below(100) {
            0..45 => {
                let record = Some(self.record(rng));
                self.plain(client, slot, Append { record, ..Append::default() }).await
            }
            45..72 => return self.produce(client, slot, rng).await,
            72..77 => self.sequenced(client, slot, rng).await?,
            77..84 => client.read_all(&slot.name, rng.below(slot.seen() + 1)).await,
            84..86 => client.read(&slot.name, From::Now).await,
            86..95 => client.head(&slot.name).await,
            95..98 => self.create_again(client, slot, closed).await?,
            _ if slot.calm || rng.below(4) > 0 => client.head(&slot.name).await,
            _ => {
                let record = rng.one_in(2).then(|| self.record(rng));
                self.plain(client, slot, Append { record, closes: true, ..Append::default() }).await
            }
        })
    }

    async fn plain(&self, client: &Recorded, slot: &Slot, append: Append) -> Outcome {
        let outcome = client.append(&slot.name, &append).await;
        learn(slot, &outcome);
        outcome
    }

    /// Deletes the stream, if it is there, and creates it anew. One at a time for a name.
    async fn renew(&self, client: &Recorded, slot: &Slot, rng: &mut Rng) -> Option<Outcome> {
        let mut life = slot.life.try_lock().ok()?;
        if matches!(slot.belief(), Belief::Open | Belief::Closed) {
            // No producer is in the middle of a request: its outcome would belong to two lives.
            let _producers = (slot.producers[0].lock().await, slot.producers[1].lock().await);
            let _sequence = slot.sequence.lock().await;
            let outcome = client.delete(&slot.name).await;
            match outcome {
                Outcome::Deleted | Outcome::Refused(Refusal::Missing) => slot.believe(Belief::Absent),
                Outcome::Unknown => slot.believe(Belief::Unsure),
                _ => {}
            }
            if slot.belief() != Belief::Absent || rng.one_in(4) {
                return Some(outcome);
            }
        }
        if slot.belief() != Belief::Absent {
            return None;
        }
        *life += 1;
        slot.reborn(*life).await;
        let first = rng.one_in(2).then(|| self.record(rng));
        let closed = !slot.calm && rng.one_in(20);
        let outcome = client.create(&slot.name, first, closed).await;
        match outcome {
            Outcome::Created { closed: true, .. } => slot.believe(Belief::Closed),
            Outcome::Created { .. } => slot.believe(Belief::Open),
            Outcome::Unknown => slot.believe(Belief::Unsure),
            _ => {}
        }
        Some(outcome)
    }

    /// A create of what is there already. It must not race a delete: it would be a birth.
    async fn create_again(&self, client: &Recorded, slot: &Slot, closed: bool) -> Option<Outcome> {
        let _life = slot.life.try_lock().ok()?;
        if !matches!(slot.belief(), Belief::Open | Belief::Closed) {
            return None;
        }
        let outcome = client.create(&slot.name, None, closed).await;
        if outcome == Outcome::Unknown {
            slot.believe(Belief::Unsure);
        }
        Some(outcome)
    }

    async fn produce(&self, client: &Recorded, slot: &Slot, rng: &mut Rng) -> Option<Outcome> {
        let mut producer = slot.producers[rng.index(2)].try_lock().ok()?;
        if slot.belief() != Belief::Open {
            return None;
        }
        if producer.waiting.is_none() {
            let stamp = producer.stamp.as_mut()?;
            if stamp.seq > 0 && rng.one_in(30) {
                *stamp = Stamp { id: stamp.id.clone(), epoch: stamp.epoch + 1, seq: 0 };
            }
            let producer_stamp = Some(stamp.clone());
            let closes = !slot.calm && rng.one_in(100);
            let record = Some(self.record(rng));
            producer.waiting = Some(Append { record, producer: producer_stamp, seq: None, closes });
        }
        Some(self.send_waiting(client, slot, &mut producer).await)
    }

    /// Sends the producer's request once (again); the next number comes only after a definite answer to this one.
    pub(super) async fn send_waiting(
        &self,
        client: &Recorded,
        slot: &Slot,
        producer: &mut Producer,
    ) -> Outcome {
        let append = producer.waiting.clone().expect("called with a request");
        let outcome = client.append(&slot.name, &append).await;
        learn(slot, &outcome);
        match &outcome {
            Outcome::Appended { .. } => {
                producer.stamp.as_mut().expect("it sent one").seq += 1;
                producer.accepted = producer.waiting.take();
            }
            Outcome::Unknown | Outcome::Refused(Refusal::NotSent | Refusal::Unavailable) => {}
            _ => producer.waiting = None,
        }
        outcome
    }

    async fn sequenced(&self, client: &Recorded, slot: &Slot, rng: &mut Rng) -> Option<Outcome> {
        let mut sequence = slot.sequence.try_lock().ok()?;
        sequence.next += 1;
        let (record, seq) = (Some(self.record(rng)), Some(sequence.next));
        let outcome = self.plain(client, slot, Append { record, seq, ..Append::default() }).await;
        if matches!(outcome, Outcome::Appended { .. }) {
            sequence.accepted = seq;
        }
        Some(outcome)
    }
}

fn learn(slot: &Slot, outcome: &Outcome) {
    match outcome {
        Outcome::Appended { next, closed, .. } => {
            slot.saw(*next);
            if *closed {
                slot.learn_closed();
            }
        }
        Outcome::Refused(Refusal::Closed { .. }) => slot.learn_closed(),
        _ => {}
    }
}
