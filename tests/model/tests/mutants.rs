//! Every mistake is found by the promise that is there for it. That these tests fail when a promise asks for
//! nothing is what makes `protocol.rs` worth something.

use lease_model::action::Action;
use lease_model::effect::next;
use lease_model::model::{Goal, Protocol};
use lease_model::promise::Promise;
use lease_model::setup::{Mutant, Setup};
use lease_model::state::State;
use lease_model::{search, story};

/// Where the path ends.
fn end(setup: &Setup, path: &[Action]) -> State {
    path.iter().fold(State::initial(setup), |state, &action| {
        let after = next(setup, &state, action).expect("a step that changes something");
        after.canonical(setup).0
    })
}

fn assert_broken(setup: Setup, promise: Promise) {
    let path = search::shortest(setup, promise)
        .unwrap_or_else(|| panic!("{:?} does not break {promise:?}", setup.mutant));
    let told = story::tell(&setup, &path);
    assert_eq!(told.len(), path.len() + 1, "a line for each step");
    println!("{:?}:\n{}", setup.mutant, told.join("\n"));
    let model = Protocol {
        setup,
        goal: Goal::Broken(promise),
    };
    let kept = promise.condition();
    assert!(!kept(&model, &end(&setup, &path)), "{promise:?}: {told:?}");
    assert!(kept(&model, &end(&setup, &path[..path.len() - 1])));
}

macro_rules! broken {
    ($($name:ident: $mutant:ident breaks $promise:ident;)*) => {
        $(#[test]
        fn $name() {
            let (setup, promise) = Mutant::$mutant.breaks();
            assert_eq!(promise, Promise::$promise);
            assert_broken(setup, promise);
        })*

        #[test]
        fn every_mutant_and_every_promise_is_here() {
            let mutants = [$(Mutant::$mutant),*];
            assert_eq!(mutants, Mutant::ALL);
            let promises = [$(Promise::$promise,)* Promise::BeliefIsBacked];
            for promise in Promise::ALL {
                assert!(promises.contains(&promise), "nothing breaks {promise:?}");
            }
        }
    };
}

broken! {
    no_fence_check: NoFenceCheck breaks NoStaleWrite;
    refresh_without_token: RefreshWithoutToken breaks OneHolderPerSlot;
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
    let setup = Setup::SLOTS.with(Mutant::DeadlineAfterReply);
    assert_broken(setup, Promise::BeliefIsBacked);
}

/// What fences are for: equal ones let a stale write through.
#[test]
fn fences_that_do_not_grow_let_a_stale_write_through() {
    let setup = Setup::WRITES.with(Mutant::FenceByClock);
    assert_broken(setup, Promise::NoStaleWrite);
}
