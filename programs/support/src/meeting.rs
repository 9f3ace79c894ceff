//! A point at which threads wait for each other, once.

use crossbeam_utils::sync::WaitGroup;

/// A thread's part in a meeting. It counts as arrived when it is dropped: after an error the others must not wait for ever.
pub struct Meeting(Option<WaitGroup>);

impl Meeting {
    /// A part for each of so many threads.
    pub fn of(threads: usize) -> Vec<Self> {
        let all = WaitGroup::new();
        (0..threads).map(|_| Self(Some(all.clone()))).collect()
    }

    /// Waits until all have arrived. Returns at once if it has waited before.
    pub fn wait(&mut self) {
        if let Some(all) = self.0.take() {
            all.wait();
        }
    }
}
