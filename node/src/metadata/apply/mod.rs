//! Temporary stand-in: replaced by the state machine's own branch.

use std::sync::Arc;

use crate::metadata::command::*;
use crate::metadata::state::*;

pub fn apply(state: &mut State, batch: &Batch) -> Vec<Outcome> {
    state.time_ms = state.time_ms.max(batch.time_ms);
    batch.commands.iter().map(|e| one(state, e)).collect()
}

fn one(state: &mut State, e: &Envelope) -> Outcome {
    let Some(request) = &e.request else { return effect(state, &e.command) };
    let no = state.sessions.iter().find(|(_, s)| s.id == request.session).map(|(no, _)| *no);
    let Some(no) = no else { return Err(Refusal::SessionNotCurrent) };
    let session = state.sessions.get_mut(&no).expect("found");
    if request.number < session.lowest_unanswered {
        return Err(Refusal::StaleRequest);
    }
    session.lowest_unanswered = request.lowest_unanswered;
    let gone: Vec<u64> = session.answers.range(..request.lowest_unanswered).map(|(k, _)| *k).collect();
    for k in gone {
        session.answers.remove(&k);
    }
    if let Some(a) = session.answers.get(&request.number) {
        return a.as_ref().clone();
    }
    if matches!(e.command, Command::EndSession) {
        state.sessions.remove(&no);
        return Ok(Answer::SessionEnded { clean: true });
    }
    let outcome = effect(state, &e.command);
    let session = state.sessions.get_mut(&no).expect("found");
    session.answers.insert(request.number, Arc::new(outcome.clone()));
    outcome
}

fn effect(state: &mut State, c: &Command) -> Outcome {
    match c {
        Command::Found { uid, identity, size } => {
            let made = || Cluster { uid: *uid, identity: identity.clone(), size: *size, format: 1 };
            Ok(Answer::Founded { uid: state.cluster.get_or_insert_with(made).uid })
        }
        Command::Register(r) => {
            let no = SessionNo(state.next.session);
            state.next.session += 1;
            let old: Vec<_> = state
                .sessions
                .iter()
                .filter(|(_, s)| s.id.node == r.session.node)
                .map(|(no, _)| *no)
                .collect();
            for no in old {
                state.sessions.remove(&no);
            }
            state.sessions.insert(
                no,
                Session {
                    id: r.session.clone(),
                    assigned: 0,
                    open: 0,
                    wal_start: 0,
                    boot_id: None,
                    raft_id: r.raft_id,
                    ended: None,
                    claim: None,
                    answers: Default::default(),
                    lowest_unanswered: 1,
                },
            );
            Ok(Answer::Registered { slots: r.slots, format: 1 })
        }
        Command::Create { name, .. } => {
            if let Some(stream) = state.names.get(name) {
                return Ok(Answer::Exists { stream: *stream });
            }
            let stream = weir_api::StreamId(state.next.stream);
            state.next.stream += 1;
            state.names.insert(name.clone(), stream);
            let owner = state.sessions.values().next().expect("one").id.clone();
            Ok(Answer::Created { stream, owner })
        }
        _ => Err(Refusal::NoSuchStream),
    }
}
