//! What this crate remembers of a connection while a closure runs, found by an address.
//!
//! The connection is borrowed meanwhile and can't move, so that its address identifies it in this process. The thread does not:
//! a task may continue on another one after each `.await`.

use std::collections::BTreeMap;
use std::sync::Mutex;

use crate::rt::lock;

pub(crate) struct Entries<T>(Mutex<BTreeMap<usize, T>>);

impl<T: Copy> Entries<T> {
    pub(crate) const fn new() -> Self {
        Self(Mutex::new(BTreeMap::new()))
    }

    pub(crate) fn enter<P>(&'static self, place: &P, entry: T) -> Entered<T> {
        let address = address(place);
        let outer = lock(&self.0).insert(address, entry);
        Entered {
            entries: self,
            address,
            outer,
        }
    }

    pub(crate) fn of<P>(&self, place: &P) -> Option<T> {
        lock(&self.0).get(&address(place)).copied()
    }
}

fn address<P>(place: &P) -> usize {
    std::ptr::from_ref(place).addr()
}

pub struct Entered<T: Copy + 'static> {
    entries: &'static Entries<T>,
    address: usize,
    outer: Option<T>,
}

impl<T: Copy> Drop for Entered<T> {
    fn drop(&mut self) {
        let mut entries = lock(&self.entries.0);
        match self.outer {
            Some(outer) => entries.insert(self.address, outer),
            None => entries.remove(&self.address),
        };
    }
}
