//! The steps, and which of them can follow.

use std::marker::PhantomData;

use proptest::prelude::*;
use proptest::strategy::Union;
use proptest_state_machine::ReferenceStateMachine;

use crate::support::Backend;

/// Sessions 1 and 2 may have a transaction open, session 0 never has.
pub(super) const SESSIONS: usize = 3;

/// How many semaphores there are.
pub(super) const SEMAPHORES: usize = 2;

/// How a slot is requested without waiting.
#[derive(Clone, Copy, Debug)]
pub(super) enum How {
    /// By a method with `try_`.
    Try,
    /// By a method that waits, with `Wait::No`.
    WaitNo,
    /// By a method that waits, with a limit of zero.
    WaitZero,
}

/// One step. `on` is the session, `slot` counts those that were ever granted, from the last one back and over
/// again: many of them are copies that have been released, lost, or undone by a rollback.
#[derive(Clone, Debug)]
pub(super) enum Step {
    Begin {
        on: usize,
    },
    End {
        on: usize,
        commits: bool,
    },
    Acquire {
        on: usize,
        semaphore: usize,
        how: How,
        long: bool,
        kept: bool,
    },
    /// A slot of a transaction: of the one that is open, or of one of its own.
    Hold {
        on: usize,
        semaphore: usize,
        how: How,
        commits: bool,
    },
    Ensure {
        on: usize,
        slot: usize,
    },
    Refresh {
        on: usize,
        slot: usize,
        long: bool,
    },
    Release {
        on: usize,
        slot: usize,
    },
    /// The lease ends.
    Expire {
        slot: usize,
    },
    /// From now on the program asks with this number of permits.
    Permits {
        semaphore: usize,
        permits: u32,
    },
    Register {
        on: usize,
        semaphore: usize,
    },
    ReleaseAll {
        on: usize,
        semaphore: usize,
    },
    /// Of what has been unused for an hour (nothing), or at all.
    Purge {
        on: usize,
        old: bool,
    },
}

impl Step {
    fn on(&self) -> Option<usize> {
        match self {
            Self::Begin { on }
            | Self::End { on, .. }
            | Self::Acquire { on, .. }
            | Self::Hold { on, .. }
            | Self::Ensure { on, .. }
            | Self::Refresh { on, .. }
            | Self::Release { on, .. }
            | Self::Register { on, .. }
            | Self::ReleaseAll { on, .. }
            | Self::Purge { on, .. } => Some(*on),
            Self::Expire { .. } | Self::Permits { .. } => None,
        }
    }
}

/// Which sessions have a transaction open. The model itself is `super::model`: what follows from a step
/// depends on which slot the database chose.
#[derive(Clone, Debug, Default)]
pub(super) struct Shape {
    open: [bool; SESSIONS],
}

impl Shape {
    /// Sessions that can do something without having to wait for another.
    fn able<B: Backend>(&self) -> Vec<usize> {
        let open: Vec<_> = (0..SESSIONS).filter(|on| self.open[*on]).collect();
        if B::ONE_WRITER && !open.is_empty() {
            open
        } else {
            (0..SESSIONS).collect()
        }
    }
}

/// Makes sequences of steps.
pub(super) struct Steps<B>(PhantomData<B>);

impl<B: Backend> ReferenceStateMachine for Steps<B> {
    type State = Shape;
    type Transition = Step;

    fn init_state() -> BoxedStrategy<Shape> {
        Just(Shape::default()).boxed()
    }

    fn transitions(shape: &Shape) -> BoxedStrategy<Step> {
        let on = || proptest::sample::select(shape.able::<B>());
        let semaphore = || 0..SEMAPHORES;
        let slot = || prop_oneof![3 => 0..3_usize, 1 => 3..12_usize];
        let how =
            || prop_oneof![2 => Just(How::Try), 1 => Just(How::WaitNo), 1 => Just(How::WaitZero)];
        // InnoDB looks at more than 100 in another way.
        let permits = prop_oneof![12 => 1..3_u32, 8 => 3..5_u32, 1 => 101..103_u32];
        let mut steps = vec![
            (
                9,
                (
                    on(),
                    semaphore(),
                    how(),
                    any::<bool>(),
                    proptest::bool::weighted(0.2),
                )
                    .prop_map(|(on, semaphore, how, long, kept)| Step::Acquire {
                        on,
                        semaphore,
                        how,
                        long,
                        kept,
                    })
                    .boxed(),
            ),
            (
                3,
                (on(), semaphore(), how(), any::<bool>())
                    .prop_map(|(on, semaphore, how, commits)| Step::Hold {
                        on,
                        semaphore,
                        how,
                        commits,
                    })
                    .boxed(),
            ),
            (
                2,
                (on(), slot())
                    .prop_map(|(on, slot)| Step::Ensure { on, slot })
                    .boxed(),
            ),
            (
                4,
                (on(), slot(), any::<bool>())
                    .prop_map(|(on, slot, long)| Step::Refresh { on, slot, long })
                    .boxed(),
            ),
            (
                4,
                (on(), slot())
                    .prop_map(|(on, slot)| Step::Release { on, slot })
                    .boxed(),
            ),
            (4, slot().prop_map(|slot| Step::Expire { slot }).boxed()),
            (
                4,
                (semaphore(), permits)
                    .prop_map(|(semaphore, permits)| Step::Permits { semaphore, permits })
                    .boxed(),
            ),
            (
                1,
                (on(), semaphore())
                    .prop_map(|(on, semaphore)| Step::Register { on, semaphore })
                    .boxed(),
            ),
            (
                1,
                (on(), semaphore())
                    .prop_map(|(on, semaphore)| Step::ReleaseAll { on, semaphore })
                    .boxed(),
            ),
            (
                2,
                (on(), proptest::bool::weighted(0.2))
                    .prop_map(|(on, old)| Step::Purge { on, old })
                    .boxed(),
            ),
        ];
        for on in 1..SESSIONS {
            if shape.open[on] {
                let end = any::<bool>().prop_map(move |commits| Step::End { on, commits });
                steps.push((3, end.boxed()));
            } else if shape.able::<B>().contains(&on) {
                steps.push((4, Just(Step::Begin { on }).boxed()));
            }
        }
        Union::new_weighted(steps).boxed()
    }

    /// What was possible when the step was made, and may not be any more after others were left out.
    fn preconditions(shape: &Shape, step: &Step) -> bool {
        let able = step.on().is_none_or(|on| shape.able::<B>().contains(&on));
        able && match step {
            Step::Begin { on } => *on > 0 && !shape.open[*on],
            Step::End { on, .. } => shape.open[*on],
            _ => true,
        }
    }

    fn apply(mut shape: Shape, step: &Step) -> Shape {
        match step {
            Step::Begin { on } => shape.open[*on] = true,
            Step::End { on, .. } => shape.open[*on] = false,
            _ => {}
        }
        shape
    }
}
