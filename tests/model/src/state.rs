//! Everything at one moment.

use crate::config::{Config, MOST_PROCESSES, MOST_SLOTS};
use crate::database::{Database, Fence, Number, Token};
use crate::invariant::Violations;
use crate::process::Process;

/// The slot whose holders write.
pub const WRITTEN: Number = 0;

/// What is written to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Resource {
    /// The fence that it keeps.
    pub fence: Fence,
    /// The newest grant that has written: for the invariant alone.
    pub newest: Token,
}

/// A write on its way, sent when the guard was held.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Write {
    /// What it carries.
    pub fence: Fence,
    /// Which grant it is of: for the invariant alone.
    pub token: Token,
}

/// Everything.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct State {
    /// The slots.
    pub database: Database,
    /// The processes that request slots, in no order.
    pub processes: [Process; MOST_PROCESSES],
    /// What the holders of the slot [`WRITTEN`] write to.
    pub resource: Resource,
    /// A write that is late. One is enough: a stale write takes a late one and one of a later grant, and that
    /// may as well arrive at once.
    pub late: Option<Write>,
    /// The invariants that a step has broken.
    pub violations: Violations,
}

impl State {
    /// No rows and no process.
    pub fn initial(config: &Config) -> Self {
        let mut processes = [Process::Absent; MOST_PROCESSES];
        processes[MOST_PROCESSES - config.processes..].fill(Process::Idle);
        Self {
            database: Database::default(),
            processes,
            resource: Resource::default(),
            late: None,
            violations: Violations::default(),
        }
    }

    /// The state that represents all equivalent ones, and the new place of each process: fences and
    /// tokens are only compared, so that their ranks will do; processes differ by nothing but their names.
    pub fn canonical(mut self, config: &Config) -> (Self, [usize; MOST_PROCESSES]) {
        if !config.writes {
            self.forget_what_only_writes_need();
        }
        if config.fences {
            self.rank_fences(None, 2);
        }
        for number in 0..MOST_SLOTS {
            if !config.fences {
                self.rank_fences(Some(number), 1);
            }
            let mut tokens = Ranks::default();
            self.each_token(number, |token| tokens.note(*token));
            self.each_token(number, |token| *token = tokens.of(*token));
        }
        let mut order: [usize; MOST_PROCESSES] = std::array::from_fn(|index| index);
        order.sort_by_key(|&index| self.processes[index]);
        self.processes = order.map(|index| self.processes[index]);
        (self, order)
    }

    /// The fence of a grant, and which of two tokens that are not the row's any more is the older one.
    fn forget_what_only_writes_need(&mut self) {
        let rows = self.database.rows;
        let forget = |token: &mut Token, number: Number| {
            if *token < rows[number].newest {
                *token = 0;
            }
        };
        for process in &mut self.processes {
            match process {
                Process::Granted { slot, .. } | Process::Holding { slot, .. } => {
                    slot.fence = rows[slot.number].fence;
                    forget(&mut slot.token, slot.number);
                }
                Process::Releasing { number, token } => forget(token, *number),
                _ => {}
            }
        }
    }

    /// Of one slot, or of all.
    fn rank_fences(&mut self, of: Option<Number>, times: u8) {
        let mut fences = Ranks::default();
        self.each_fence(of, |fence| fences.note(*fence));
        self.each_fence(of, |fence| *fence = fences.of(*fence) * times);
    }

    fn each_fence(&mut self, of: Option<Number>, mut visit: impl FnMut(&mut Fence)) {
        let all = of.is_none();
        let of = |number| all || of == Some(number);
        for (number, row) in self.database.rows.iter_mut().enumerate() {
            if of(number) {
                visit(&mut row.fence);
                visit(&mut row.largest);
            }
        }
        if of(WRITTEN) {
            visit(&mut self.resource.fence);
            self.late
                .iter_mut()
                .for_each(|write| visit(&mut write.fence));
        }
        for process in &mut self.processes {
            match process {
                Process::Taking {
                    number,
                    seen,
                    after,
                    ..
                } if of(*number) => {
                    visit(seen);
                    if all {
                        visit(after);
                    }
                }
                Process::Granted { slot, .. } | Process::Holding { slot, .. } if of(slot.number) => {
                    visit(&mut slot.fence);
                }
                _ => {}
            }
        }
    }

    fn each_token(&mut self, of: Number, mut visit: impl FnMut(&mut Token)) {
        visit(&mut self.database.rows[of].newest);
        if of == WRITTEN {
            visit(&mut self.resource.newest);
            self.late
                .iter_mut()
                .for_each(|write| visit(&mut write.token));
        }
        for process in &mut self.processes {
            match process {
                Process::Granted { slot, .. } | Process::Holding { slot, .. }
                    if slot.number == of =>
                {
                    visit(&mut slot.token);
                }
                Process::Releasing { number, token } if *number == of => visit(token),
                _ => {}
            }
        }
    }
}

/// Values below 64, and how many of them are smaller than one.
#[derive(Clone, Copy, Default)]
struct Ranks(u64);

impl Ranks {
    fn note(&mut self, value: u8) {
        self.0 |= 1 << value;
    }

    fn of(self, value: u8) -> u8 {
        let smaller = self.0 & ((1 << value) - 1);
        u8::try_from(smaller.count_ones()).unwrap_or(u8::MAX)
    }
}
