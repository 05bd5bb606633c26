//! Tables of single decisions, and whole lives of clusters by chance.

use proptest::prelude::*;

use super::*;

const PATIENCE: Duration = Duration::from_secs(600);

#[test]
fn the_voter_target_is_odd_and_never_above_either_number() {
    let cases = [
        (3, 0, 0),
        (0, 5, 0),
        (3, 1, 1),
        (3, 2, 1),
        (3, 3, 3),
        (3, 4, 3),
        (5, 4, 3),
        (4, 9, 3),
        (5, 5, 5),
        (1, 9, 1),
    ];
    for (voters, registered, target) in cases {
        assert_eq!(voter_target(voters, registered), target, "min({voters}, {registered})");
    }
}

#[test]
fn only_a_single_voter_that_is_me_is_sole() {
    let members = |ids: &[u64]| Membership::new(vec![BTreeSet::from_iter(ids.iter().copied())], ());
    assert!(is_sole_voter(&members(&[1]), 1));
    assert!(!is_sole_voter(&members(&[1]), 2));
    assert!(!is_sole_voter(&members(&[1, 2]), 1));
    assert!(!is_sole_voter(&members(&[]), 1));
}

#[test]
fn an_entry_says_whose_and_where() {
    let named = entry(Some(&"n-1".parse().unwrap()), "host:1");
    assert_eq!((node(&named), address(&named)), (Some("n-1".parse().unwrap()), "host:1"));
    let bare = entry(None, "host:1");
    assert_eq!((node(&bare), address(&bare)), (None, "host:1"));
}

/// Members by letters: `V` voter, `L` learner; then `g` gone, `n` new, `s` silent beyond patience, `q` silent for a
/// while, `b` far behind, `m` moved, `d` draining. Ids from 1; the leader is the first.
fn seen(members: &str, target: usize) -> Observed {
    let members = members.split_whitespace().zip(1..).map(|(word, id)| {
        let has = |c| word.contains(c);
        let standing = match (has('g'), has('n')) {
            (true, _) => Standing::Gone,
            (_, true) => Standing::New,
            _ => Standing::Registered(if has('m') { "new:1" } else { "old:1" }.to_owned()),
        };
        let unheard = match (has('s'), has('q')) {
            (true, _) => PATIENCE,
            (_, true) => PATIENCE / 2,
            _ => Duration::ZERO,
        };
        let node = Some(format!("n-{id}").parse().unwrap());
        let address = "old:1".to_owned();
        let (voter, caught_up, draining) = (has('V'), !has('b'), has('d'));
        (id, Member { voter, node, address, standing, caught_up, draining, unheard })
    });
    let members = members.collect();
    Observed { me: 1, unfinished: None, members, target, asking: Vec::new(), patience: PATIENCE }
}

fn voters(ids: &[u64]) -> Option<Change> {
    Some(Change::Voters(ids.iter().copied().collect()))
}

fn remove(ids: &[u64]) -> Option<Change> {
    Some(Change::Remove(ids.iter().copied().collect()))
}

#[test]
fn each_situation_has_its_change() {
    let cases = [
        ("a sole voter with a node too few to grow", "V L", 1, None),
        ("two learners complete three voters at once", "V L L", 3, voters(&[1, 2, 3])),
        ("one that is behind is waited for", "V L Lb", 3, None),
        ("one that has not registered does not vote", "V L Ln", 3, None),
        ("one that is silent does not become a voter", "V L Lq", 3, None),
        ("three stay three", "V V V L", 3, None),
        ("a voter silent for a while keeps its vote", "V V Vq L", 3, None),
        ("a voter silent for long gives it to a learner", "V V Vs L", 3, voters(&[1, 2, 4])),
        ("but not if nobody takes it", "V V Vs Lb", 3, None),
        ("a voter that is gone is replaced first", "V Vs Vg L", 3, voters(&[1, 2, 4])),
        ("a voter that is gone is replaced", "V V Vg L", 3, voters(&[1, 2, 4])),
        ("too many voters: the highest goes", "V V V", 1, voters(&[1])),
        ("too many voters: the silent one goes first", "V Vq V V V", 3, voters(&[1, 3, 4])),
        ("too many voters: the one gone goes first of all", "V Vg Vq V V", 3, voters(&[1, 4, 5])),
        ("a learner that is gone leaves", "V V V Lg", 3, remove(&[4])),
        ("a learner that never registered leaves after long silence", "V V V Lns", 3, remove(&[4])),
        ("a silent learner that registered stays", "V V V Ls", 3, None),
        ("a member that moved is looked for there", "V V Vm", 3, entry_of(3)),
        ("nothing without a healthy majority", "V Vq Vq L Lg", 3, None),
        ("the only vote, of a node that drains, goes to one that does not", "Vd Ld L", 1, voters(&[3])),
        ("but not to one that is behind", "Vd Lb", 1, None),
        ("nor to one that is silent", "Vd Lq", 1, None),
        ("nor to one that drains, too", "Vd Ld", 1, None),
        ("one vote of several stays with a node that drains", "V Vd V L", 3, None),
        ("a lost voter has a stand-in though the number should grow", "V V Vs L", 5, voters(&[1, 2, 4])),
    ];
    for (what, members, target, change) in cases {
        assert_eq!(next(&seen(members, target)), change, "{what}: {members}");
    }
}

fn entry_of(id: u64) -> Option<Change> {
    Some(Change::Entry(id, Some(format!("n-{id}").parse().unwrap()), "new:1".into()))
}

#[test]
fn a_change_found_half_done_is_finished_before_anything_else() {
    let goal = BTreeSet::from([1, 4]);
    let half = Observed { unfinished: Some(goal.clone()), ..seen("V Vq Vq Lg", 3) };
    assert_eq!(next(&half), Some(Change::Voters(goal)));
}

#[test]
fn who_asks_is_admitted_as_a_learner_once() {
    let node: NodeId = "n-9".parse().unwrap();
    let asks = |members: &str, id| Observed {
        asking: vec![(id, node.clone(), "there:1".into())],
        ..seen(members, 1)
    };
    assert_eq!(next(&asks("V", 2)), Some(Change::Entry(2, Some(node.clone()), "there:1".into())));
    assert_eq!(next(&asks("V L", 2)), None);
}

proptest! {
    /// Whatever is seen: a change names few, keeps a majority that is there, never takes the leader's vote (but the only
    /// one, of a node that drains), never lets a
    /// voter leave, and repeated without anything new comes to rest.
    #[test]
    fn changes_are_careful_and_end(
        members in proptest::collection::vec((any::<bool>(), 0..4u8, 0..3u8, any::<bool>(), any::<bool>()), 1..9),
        target in 0..4usize,
    ) {
        let target = [0, 1, 3, 5][target];
        let word = |(i, (voter, standing, silence, caught_up, draining)): (usize, &(bool, u8, u8, bool, bool))| {
            let mut word = String::from(if *voter || i == 0 { "V" } else { "L" });
            word.push_str(["", "", "g", "n"][*standing as usize]);
            word.push_str(if i == 0 { "" } else { ["", "q", "s"][*silence as usize] });
            word.push_str(if *caught_up { "" } else { "b" });
            word.push_str(if *draining { "d" } else { "" });
            word
        };
        let words: Vec<String> = members.iter().enumerate().map(word).collect();
        let mut now = seen(&words.join(" "), target);
        let mut rounds = 0;
        while let Some(change) = next(&now) {
            rounds += 1;
            prop_assert!(rounds < 30, "it goes on and on: {change:?} of {now:?}");
            let before = now.voters();
            match change {
                Change::Voters(voters) => {
                    let hands_on = before.len() == 1 && now.members[&1].draining;
                    prop_assert!((voters.contains(&1) || hands_on) && now.majority_is_there(&voters));
                    prop_assert!(now.majority_is_there(&before));
                    if voters.len() < before.len() {
                        prop_assert!(voters.len() >= now.target.max(1));
                    } else if voters.len() == before.len() {
                        prop_assert_eq!(voters.difference(&before).count(), 1);
                    }
                    for id in voters.difference(&before) {
                        let new = &now.members[id];
                        prop_assert!(new.caught_up && matches!(new.standing, Standing::Registered(_)));
                    }
                    for (id, member) in &mut now.members {
                        member.voter = voters.contains(id);
                    }
                    if !voters.contains(&1) {
                        // Another leads from here on.
                        break;
                    }
                }
                Change::Remove(gone) => {
                    for id in gone {
                        let member = now.members.remove(&id).unwrap();
                        prop_assert!(!member.voter && !matches!(member.standing, Standing::Registered(_)));
                    }
                }
                Change::Entry(..) => prop_assert!(false, "nobody moved or asked"),
            }
        }
    }
}
