//! Counts the closures of this process that run at the same time, and those that do not run to their end.

use std::sync::atomic::{AtomicUsize, Ordering};

use tokio::sync::watch;

/// Closures of which at most a number may run at a time.
#[derive(Debug)]
pub(crate) struct Witness {
    most: usize,
    inside: AtomicUsize,
    violations: AtomicUsize,
    cut_off: AtomicUsize,
    /// How many have begun.
    begun: watch::Sender<usize>,
}

impl Witness {
    pub(crate) fn new(most: usize) -> Self {
        Self {
            most,
            inside: AtomicUsize::new(0),
            violations: AtomicUsize::new(0),
            cut_off: AtomicUsize::new(0),
            begun: watch::Sender::new(0),
        }
    }

    /// Does what a closure does.
    pub(crate) async fn watch<T>(&self, work: impl Future<Output = T>) -> T {
        let mut inside = self.enter();
        let done = work.await;
        inside.has_ended = true;
        done
    }

    fn enter(&self) -> Inside<'_> {
        if self.inside.fetch_add(1, Ordering::SeqCst) >= self.most {
            self.violations.fetch_add(1, Ordering::SeqCst);
        }
        self.begun.send_modify(|begun| *begun += 1);
        Inside {
            witness: self,
            has_ended: false,
        }
    }

    /// How often a closure began while too many others ran.
    pub(crate) fn violations(&self) -> usize {
        self.violations.load(Ordering::SeqCst)
    }

    /// How many closures were dropped before their end.
    pub(crate) fn cut_off(&self) -> usize {
        self.cut_off.load(Ordering::SeqCst)
    }

    /// Tells when the next closure begins.
    pub(crate) fn begun(&self) -> watch::Receiver<usize> {
        self.begun.subscribe()
    }
}

/// A closure that runs.
struct Inside<'a> {
    witness: &'a Witness,
    has_ended: bool,
}

/// The closure has ended, or its future is dropped.
impl Drop for Inside<'_> {
    fn drop(&mut self) {
        if !self.has_ended {
            self.witness.cut_off.fetch_add(1, Ordering::SeqCst);
        }
        self.witness.inside.fetch_sub(1, Ordering::SeqCst);
    }
}

#[cfg(test)]
mod tests {
    use std::future::pending;
    use std::time::Duration;

    use tokio::time::timeout;

    use super::Witness;

    #[test]
    fn one_too_many_is_a_violation() {
        let witness = Witness::new(2);
        let first = witness.enter();
        let second = witness.enter();
        drop(first);
        let third = witness.enter();
        assert_eq!(witness.violations(), 0);
        let _fourth = witness.enter();
        assert_eq!(witness.violations(), 1);
        drop((second, third));
    }

    #[tokio::test]
    async fn dropped_closure_is_cut_off() {
        let witness = Witness::new(1);
        witness.watch(async {}).await;
        assert_eq!(witness.cut_off(), 0);
        let begun = witness.begun();
        let dropped = timeout(Duration::ZERO, witness.watch(pending::<()>())).await;
        assert!(dropped.is_err());
        assert_eq!((witness.cut_off(), witness.violations()), (1, 0));
        assert!(begun.has_changed().expect("a witness"));
    }
}
