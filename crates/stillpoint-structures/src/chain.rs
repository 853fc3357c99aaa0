//! The end of a structure: its nodes are dropped one by one, however many there are, and even if a destructor panics.

use stillpoint::rcu::link::{Atomic, Owned};

/// A node of a chain that ends with its structure.
pub(crate) trait Link: Sized {
    /// The link to the next node.
    fn next(&mut self) -> &mut Atomic<Self>;

    /// Drops the node, with what is left in it, when its structure ends.
    fn end(node: Owned<Self>);
}

struct Rest<N: Link>(Option<Owned<N>>);

impl<N: Link> Rest<N> {
    fn end_each(&mut self) {
        while let Some(mut node) = self.0.take() {
            // SAFETY: the caller of `end_chain` has exclusive use of the nodes.
            self.0 = unsafe { node.next().take_owned() };
            N::end(node);
        }
    }
}

impl<N: Link> Drop for Rest<N> {
    fn drop(&mut self) {
        self.end_each();
    }
}

/// Ends all nodes that the link leads to. If a destructor panics, the other nodes are still ended. A second panic then aborts, as
/// always while a thread unwinds.
///
/// # Safety
/// The caller has exclusive use of the nodes, and no thread retires them.
pub(crate) unsafe fn end_chain<N: Link>(link: &mut Atomic<N>) {
    // SAFETY: the caller has exclusive use of the nodes.
    Rest(unsafe { link.take_owned() }).end_each();
}
