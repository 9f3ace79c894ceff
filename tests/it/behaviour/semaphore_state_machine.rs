//! Semaphores against a model in memory: sequences of whatever can be done with two semaphores over three
//! sessions, in transactions and outside. After each step the answer was the model's, and every row of every
//! session's view is as the model has it.
//!
//! The model does not foresee which of several free slots is granted, nor what the database's clock shows:
//! it takes both over from the database after it has checked that they are possible. Leases end when a step
//! sets their end back, never because time passes.

use std::any::Any;
use std::cell::RefCell;
use std::rc::Rc;

use proptest_state_machine::{ReferenceStateMachine, StateMachineTest};

use crate::support::property::{check_property, config};
use crate::support::{Backend, tables};

mod acquisition;
mod locks;
mod maintenance;
mod model;
mod renewal;
mod steps;
mod system;

use steps::{Shape, Step, Steps};
use system::{Sessions, System};

/// The largest number of steps of a sequence; the smallest is a quarter of it.
const STEPS: usize = 40;

/// Sequences on a server.
const CASES: u32 = 40;

/// And where there is none, and a step takes a tenth of the time.
const CASES_WITHOUT_SERVER: u32 = 200;

pub(crate) fn semaphores_behave_as_their_model<B: Backend>() {
    DATABASE.set(Some(Rc::new(Database::<B> {
        idle: RefCell::new(None),
        backend: B::new(),
    })));
    let config = config(if B::ONE_WRITER {
        CASES_WITHOUT_SERVER
    } else {
        CASES
    });
    let steps = Steps::<B>::sequential_strategy(STEPS / 4..=STEPS);
    check_property(config.clone(), &steps, |(shape, steps, seen)| {
        Machine::<B>::test_sequential(config.clone(), shape, steps, seen);
        Ok(())
    });
    // What is thread-local is dropped too late for a panic to be seen.
    DATABASE.take();
}

/// One database for all cases. Its sessions go first.
struct Database<B: Backend> {
    idle: RefCell<Option<Sessions<B>>>,
    backend: B,
}

thread_local! {
    /// The `Database` of the test on this thread: the library does not hand one on to a case.
    static DATABASE: RefCell<Option<Rc<dyn Any>>> = const { RefCell::new(None) };
}

fn database<B: Backend>() -> Rc<Database<B>> {
    let database = DATABASE
        .with_borrow(Option::clone)
        .expect("set by the test");
    database.downcast().expect("of this engine")
}

struct Machine<B>(std::marker::PhantomData<B>);

impl<B: Backend> StateMachineTest for Machine<B> {
    type SystemUnderTest = System<B>;
    type Reference = Steps<B>;

    fn init_test(_: &Shape) -> System<B> {
        let database = database::<B>();
        // A case that fails takes its sessions with it: whatever it left open is closed.
        let idle = database.idle.take();
        let mut sessions = idle.unwrap_or_else(|| Sessions::of(&database.backend));
        tables::clear::<B>(sessions.witness());
        System::new(sessions)
    }

    fn apply(mut system: System<B>, _: &Shape, step: Step) -> System<B> {
        system.apply(&step);
        system.assert_rows();
        system
    }

    fn teardown(system: System<B>, _: Shape) {
        let sessions = system.end();
        database::<B>().idle.replace(Some(sessions));
    }
}
