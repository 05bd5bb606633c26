//! Request numbers: what makes a retried command recognisable (I9).
//!
//! Invariant: a number is given out once per session, counts as open until its answer is known here, and
//! `lowest_unanswered` never passes an open number, so the state keeps every answer that may still be asked for. Pure;
//! owned by the proposer.

use std::collections::BTreeSet;

use weir_api::SessionId;

use super::command::RequestId;

/// The proposing session's numbers.
#[derive(Debug, Default)]
pub(super) struct Requests {
    session: Option<SessionId>,
    over: bool,
    last: u64,
    open: BTreeSet<u64>,
}

/// Why there is no number.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum NoNumber {
    /// No session has begun yet.
    NoSession,
    /// The session has ended.
    Over,
}

impl Requests {
    /// A session begins; numbers start at 1.
    pub(super) fn begin(&mut self, session: SessionId) {
        *self = Self { session: Some(session), ..Self::default() };
    }

    /// Says whether [`Self::take`] would give a number.
    pub(super) fn check(&self) -> Result<&SessionId, NoNumber> {
        match &self.session {
            None => Err(NoNumber::NoSession),
            Some(_) if self.over => Err(NoNumber::Over),
            Some(session) => Ok(session),
        }
    }

    /// The next number.
    pub(super) fn take(&mut self) -> Result<RequestId, NoNumber> {
        let session = self.check()?.clone();
        self.last += 1;
        self.open.insert(self.last);
        let lowest_unanswered = self.open.first().copied().unwrap_or(self.last);
        Ok(RequestId { session, number: self.last, lowest_unanswered })
    }

    /// The answer to this number is known.
    pub(super) fn settle(&mut self, request: &RequestId) {
        if self.session.as_ref() == Some(&request.session) {
            self.open.remove(&request.number);
        }
    }

    /// This session has ended.
    pub(super) fn end(&mut self, session: &SessionId) {
        if self.session.as_ref() == Some(session) {
            self.over = true;
        }
    }
}

#[cfg(test)]
mod tests {
    use weir_api::NodeEpoch;

    use super::*;

    fn session(epoch: u64) -> SessionId {
        SessionId { node: "n".parse().unwrap(), epoch: NodeEpoch(epoch) }
    }

    #[test]
    fn the_lowest_unanswered_waits_for_the_slowest() {
        let mut requests = Requests::default();
        assert_eq!(requests.take(), Err(NoNumber::NoSession));
        requests.begin(session(1));
        let [a, b, c] = [(); 3].map(|()| requests.take().unwrap());
        assert_eq!((a.number, b.number, c.number), (1, 2, 3));
        assert_eq!(c.lowest_unanswered, 1);
        requests.settle(&b);
        assert_eq!(requests.take().unwrap().lowest_unanswered, 1);
        requests.settle(&a);
        assert_eq!(requests.take().unwrap().lowest_unanswered, 3);
    }

    #[test]
    fn another_session_has_numbers_of_its_own() {
        let mut requests = Requests::default();
        requests.begin(session(1));
        let old = requests.take().unwrap();
        requests.begin(session(2));
        let new = requests.take().unwrap();
        assert_eq!(new.number, 1);
        requests.settle(&old);
        assert_eq!(requests.take().unwrap().lowest_unanswered, 1);
        requests.end(&session(1));
        assert!(requests.take().is_ok());
        requests.end(&session(2));
        assert_eq!(requests.take(), Err(NoNumber::Over));
    }
}
