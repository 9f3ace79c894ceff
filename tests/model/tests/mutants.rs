//! Every mistake is found by the invariant that is there for it. That these tests fail when an invariant asks for
//! nothing is what makes `protocol.rs` worth something.

use lease_model::action::Action;
use lease_model::config::{Config, Mutant};
use lease_model::effect::next;
use lease_model::invariant::Invariant;
use lease_model::protocol::{Goal, Protocol};
use lease_model::state::State;
use lease_model::{search, trace};

/// Where the path ends.
fn end(config: &Config, path: &[Action]) -> State {
    path.iter().fold(State::initial(config), |state, &action| {
        let after = next(config, &state, action).expect("a step that changes something");
        after.canonical(config).0
    })
}

fn assert_broken(config: Config, invariant: Invariant) {
    let path = search::shortest(config, invariant)
        .unwrap_or_else(|| panic!("{:?} does not break {invariant:?}", config.mutant));
    let lines = trace::describe(&config, &path);
    assert_eq!(lines.len(), path.len() + 1, "a line for each step");
    println!("{:?}:\n{}", config.mutant, lines.join("\n"));
    let model = Protocol {
        config,
        goal: Goal::Violations(invariant),
    };
    let kept = invariant.condition();
    assert!(
        !kept(&model, &end(&config, &path)),
        "{invariant:?}: {lines:?}"
    );
    assert!(kept(&model, &end(&config, &path[..path.len() - 1])));
}

macro_rules! broken {
    ($($name:ident: $mutant:ident breaks $invariant:ident;)*) => {
        $(#[test]
        fn $name() {
            let (config, invariant) = Mutant::$mutant.breaks();
            assert_eq!(invariant, Invariant::$invariant);
            assert_broken(config, invariant);
        })*

        #[test]
        fn every_mutant_and_every_invariant_is_tested() {
            let mutants = [$(Mutant::$mutant),*];
            assert_eq!(mutants, Mutant::ALL);
            let invariants = [$(Invariant::$invariant,)* Invariant::HolderImpliesRow];
            for invariant in Invariant::ALL {
                assert!(invariants.contains(&invariant), "nothing breaks {invariant:?}");
            }
        }
    };
}

broken! {
    no_fence_check: NoFenceCheck breaks NoStaleWrite;
    renew_without_token: RenewWithoutToken breaks OneHolderPerSlot;
    release_without_token: ReleaseWithoutToken breaks OneHolderPerSlot;
    deadline_after_reply: DeadlineAfterReply breaks OneHolderPerSlot;
    count_before_lock: CountBeforeLock breaks NoGrantBeyondPermits;
    holders_above_ignored: HoldersAboveIgnored breaks NoGrantBeyondPermits;
    take_without_compare: TakeWithoutCompare breaks OneHolderPerSlot;
    take_without_fence: TakeWithoutFence breaks FencesGrow;
    lost_guard_revived: LostGuardRevived breaks LostForEver;
    process_clock: ProcessClock breaks OneHolderPerSlot;
    fence_by_clock: FenceByClock breaks FencesGrow;
    fence_of_own_slot: FenceOfOwnSlot breaks FencesGrow;
    purge_forgets_fences: PurgeForgetsFences breaks FencesGrow;
    expiry_ignored: ExpiryIgnored breaks FreeSlotIsFound;
}

/// Before two believe to hold a slot, one believes it without reason.
#[test]
fn a_deadline_after_the_reply_is_not_backed() {
    let config = Config::SLOTS.with(Mutant::DeadlineAfterReply);
    assert_broken(config, Invariant::HolderImpliesRow);
}

/// What fences are for: equal ones let a stale write through.
#[test]
fn fences_that_do_not_grow_let_a_stale_write_through() {
    let config = Config::WRITES.with(Mutant::FenceByClock);
    assert_broken(config, Invariant::NoStaleWrite);
}
