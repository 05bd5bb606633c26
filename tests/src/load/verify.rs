//! After a restart: settles what is unsure, asks again what was acknowledged, reads everything back, and judges.

use std::sync::atomic::Ordering;
use std::time::Duration;

use anyhow::{Result, bail, ensure};
use futures::future::try_join_all;

use super::Load;
use super::slot::{Belief, Slot};
use crate::checker;
use crate::client::Client;
use crate::history::{Outcome, Refusal};
use crate::record::Record;
use crate::recorded::{Append, Recorded};
use crate::rng::Rng;
use crate::wait;

impl Load {
    /// Everything that a client may still hold the node to. Fails with each broken promise.
    pub async fn verify(&self, address: &str, rng: &mut Rng) -> Result<()> {
        let client = self.recorded(address);
        // Side by side: over a slow bucket most of a round is waiting.
        let slots = self.slots.iter().map(|slot| self.reckon(&client, slot, rng.fork()));
        let family = Client::new(address, self.shape.deadline);
        let mut kin = self.family.lock().await;
        tokio::try_join!(try_join_all(slots), kin.verify(&family, self.shape.patience))?;
        self.judge()
    }

    async fn reckon(&self, client: &Recorded, slot: &Slot, mut rng: Rng) -> Result<()> {
        self.settle(client, slot).await?;
        self.ask_again(client, slot, &mut rng).await?;
        // Everything now and then, else a part: what is older was read before.
        let from = if rng.one_in(4) { 0 } else { rng.below(slot.verified.load(Ordering::Relaxed) + 1) };
        read_back(client, slot, from).await
    }

    /// Every open stream takes an append, within a time: none is stuck.
    pub async fn touch_all(&self, address: &str, rng: &mut Rng) -> Result<()> {
        let client = self.recorded(address);
        for slot in &self.slots {
            let what = format!("an append to {}", slot.name.text);
            wait::until(&what, self.shape.patience, || {
                let append = Append { record: Some(self.record(rng)), ..Append::default() };
                let (client, slot) = (&client, slot);
                async move {
                    let settled = match client.append(&slot.name, &append).await {
                        Outcome::Refused(Refusal::Missing | Refusal::Closed { .. }) => true,
                        outcome => matches!(outcome, Outcome::Appended { .. }),
                    };
                    Ok(settled.then_some(()))
                }
            })
            .await?;
        }
        Ok(())
    }

    /// Appends large records until the node says that it cannot take more for now.
    pub async fn press_until_refused(&self, address: &str, rng: &mut Rng, deadline: Duration) -> Result<()> {
        // One refusal may be of the moment: a stream on its way out, the metadata log short of room for a create.
        const IN_A_ROW: u32 = 8;
        let client = self.recorded(address);
        let end = tokio::time::Instant::now() + deadline;
        let mut refused = 0;
        while tokio::time::Instant::now() < end {
            let slot = &self.slots[rng.index(self.slots.len())];
            let record = Some(Record { pad: 500_000, elements: 1, ..self.record(rng) });
            let outcome = client.append(&slot.name, &Append { record, ..Append::default() }).await;
            match outcome {
                Outcome::Unknown | Outcome::Refused(Refusal::Unavailable | Refusal::NotSent) => refused += 1,
                Outcome::Appended { .. } => refused = 0,
                _ => {}
            }
            if refused == IN_A_ROW {
                return Ok(());
            }
        }
        bail!("still taking appends after {deadline:?}")
    }

    /// The verdict on what clients have seen so far, all of it read back.
    pub fn judge(&self) -> Result<()> {
        verdict(checker::check(&self.history.account()))
    }

    /// The verdict when not everything could be read back: on what was answered.
    pub fn judge_answers(&self) -> Result<()> {
        let mut found = checker::check(&self.history.account());
        found.retain(|v| v.kind != checker::Kind::Harness);
        verdict(found)
    }

    /// Looks whether the stream is there; a 503 is only for a while.
    async fn settle(&self, client: &Recorded, slot: &Slot) -> Result<()> {
        let what = format!("an answer for {}", slot.name.text);
        let outcome = wait::until(&what, self.shape.patience, || async {
            let outcome = client.head(&slot.name).await;
            let wait = matches!(
                outcome,
                Outcome::Unknown | Outcome::Refused(Refusal::Unavailable | Refusal::NotSent)
            );
            Ok((!wait).then_some(outcome))
        })
        .await?;
        slot.believe(match outcome {
            Outcome::Found { closed: true, .. } => Belief::Closed,
            Outcome::Found { .. } => Belief::Open,
            Outcome::Refused(Refusal::Missing) => Belief::Absent,
            other => bail!("HEAD of {} after a restart: {other:?}", slot.name.text),
        });
        Ok(())
    }

    /// Producers repeat what was acknowledged and what was not; old sequence numbers are tried.
    async fn ask_again(&self, client: &Recorded, slot: &Slot, rng: &mut Rng) -> Result<()> {
        for producer in &slot.producers {
            let mut producer = producer.lock().await;
            if slot.belief() == Belief::Open && producer.waiting.is_some() {
                let outcome = self.send_waiting(client, slot, &mut producer).await;
                let settled = producer.waiting.is_none();
                ensure!(settled, "a retry on {} after a restart: {outcome:?}", slot.name.text);
            }
            // On a closed stream only the request that closed it is still known as a duplicate.
            if let Some(accepted) = producer.accepted.clone().filter(|_| slot.belief() == Belief::Open) {
                let outcome = client.append(&slot.name, &accepted).await;
                let repeated = matches!(outcome, Outcome::Appended { duplicate: true, .. });
                ensure!(repeated, "an accepted request on {} again: {outcome:?}", slot.name.text);
            }
        }
        let sequence = slot.sequence.lock().await;
        if let (Belief::Open, Some(seq)) = (slot.belief(), sequence.accepted) {
            let (record, seq) = (Some(self.record(rng)), Some(seq));
            client.append(&slot.name, &Append { record, seq, ..Append::default() }).await;
        }
        Ok(())
    }
}

async fn read_back(client: &Recorded, slot: &Slot, from: u64) -> Result<()> {
    let outcome = client.read_all(&slot.name, from).await;
    let absent = slot.belief() == Belief::Absent;
    match outcome {
        Outcome::Read(r) if r.up_to_date || r.closed => {
            slot.saw(r.next);
            slot.verified.store(r.next, Ordering::Relaxed);
        }
        Outcome::Refused(Refusal::Missing) if absent => {}
        other => bail!("reading {} back: {other:?}", slot.name.text),
    }
    Ok(())
}

fn verdict(found: Vec<checker::Violation>) -> Result<()> {
    if found.is_empty() {
        return Ok(());
    }
    let shown: Vec<String> = found.iter().take(12).map(ToString::to_string).collect();
    bail!("{} broken promises:\n{}", found.len(), shown.join("\n"))
}
