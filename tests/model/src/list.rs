//! A short vector without allocation.
//!
//! Invariant: items past the length are the default, so that equal lists are equal bytes. Used by `state`.

use std::fmt;
use std::hash::{Hash, Hasher};
use std::ops::{Deref, DerefMut};

/// At most `N` items.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct List<T, const N: usize> {
    length: u8,
    items: [T; N],
}

impl<T: Copy + Default, const N: usize> Default for List<T, N> {
    fn default() -> Self {
        Self { length: 0, items: [T::default(); N] }
    }
}

impl<T: Copy + Default, const N: usize> List<T, N> {
    /// No more fit.
    pub fn is_full(&self) -> bool {
        self.len() == N
    }

    /// Adds at the end. The caller has looked at `is_full`.
    pub fn push(&mut self, item: T) {
        self.items[usize::from(self.length)] = item;
        self.length += 1;
    }

    /// Keeps the first `length`.
    pub fn truncate(&mut self, length: u8) {
        while self.length > length {
            self.length -= 1;
            self.items[usize::from(self.length)] = T::default();
        }
    }

    /// Drops the first `n`.
    pub fn drop_front(&mut self, n: u8) {
        self.items.rotate_left(usize::from(n));
        self.length -= n;
        self.items[usize::from(self.length)..].fill(T::default());
    }

    /// Keeps those that `keep` says.
    pub fn retain(&mut self, keep: impl Fn(&T) -> bool) {
        let before = *self;
        *self = Self::default();
        before.iter().filter(|item| keep(item)).for_each(|item| self.push(*item));
    }

    /// The length as the model counts.
    pub fn count(&self) -> u8 {
        self.length
    }
}

impl<T, const N: usize> Deref for List<T, N> {
    type Target = [T];
    fn deref(&self) -> &[T] {
        &self.items[..usize::from(self.length)]
    }
}

impl<T, const N: usize> DerefMut for List<T, N> {
    fn deref_mut(&mut self) -> &mut [T] {
        &mut self.items[..usize::from(self.length)]
    }
}

/// What is past the length says nothing.
impl<T: Hash, const N: usize> Hash for List<T, N> {
    fn hash<H: Hasher>(&self, state: &mut H) {
        state.write_u8(self.length);
        self.iter().for_each(|item| item.hash(state));
    }
}

impl<T: fmt::Debug, const N: usize> fmt::Debug for List<T, N> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.iter()).finish()
    }
}
