use std::cmp::Ordering::{Equal, Less};
use std::fmt;
use std::marker::PhantomData;
use std::mem;
use std::ops::Deref;

use stillpoint::rcu::link::{Atomic, Owned, ProtectedLink, Shared, Unprotected};
use stillpoint::rcu::{Domain, Reader, Reclaimer, Region};
use stillpoint_sys::sync::atomic::Ordering;

use crate::busted::{self, Variant};
use crate::chain::{end_chain, Link};
use crate::orders;
use crate::watch::Watch;

/// The tag of a link whose node is removed. The link does not change any more.
const MARK: usize = 1;

/// For the end of a walk, the other way round than its steps compare: so the compiler does not make one comparison with three results of
/// the two, which would be in each step.
#[inline(always)]
fn is_equal<K: Ord>(key: &K, found: &K) -> bool {
    key.cmp(found) == Equal
}

/// Whether the link has the mark. Of the tag, it looks at this bit only: so the address, which the next step waits for, is not computed
/// from the tag.
#[inline(always)]
fn has_mark<K, V>(link: Shared<'_, Node<K, V>>) -> bool {
    link.tag() & MARK != 0
}

#[cfg_attr(stillpoint_loom, repr(align(256)))]
struct Node<K, V> {
    key: K,
    value: V,
    next: Atomic<Node<K, V>>,
    watch: Watch,
}

impl<K, V> Node<K, V> {
    /// Whether the node has been removed.
    fn is_marked(&self) -> bool {
        // Relaxed: the link is not followed.
        has_mark(self.next.load(Ordering::Relaxed, &Unprotected))
    }
}

impl<K, V> Link for Node<K, V> {
    fn next(&mut self) -> &mut Atomic<Self> {
        &mut self.next
    }

    fn end(node: Owned<Self>) {
        drop(node);
    }
}

/// A map in the order of its keys: the linked list of T. Harris and M. Michael. Every call takes a step for each smaller key. So
/// it is meant for few keys, and for learning.
///
/// It is read in two ways. [`get_in`](List::get_in) and [`iter_in`](List::iter_in) walk in a region, over nodes that are removed
/// meanwhile: a reader on an unlinked node goes on to the next node. These walks never start again, and hold up everything that is
/// retired meanwhile. [`get`](List::get) protects its way hand over hand, three nodes at a time, and holds up nothing else. If
/// it meets a removed node, it unlinks that node first, or starts again. Writers do the same. Lock-free.
///
/// ```
/// use stillpoint::rcu::Domain;
/// use stillpoint_structures::List;
///
/// let domain = Domain::new();
/// let list = List::new_in(&domain);
/// let (reader, mut reclaimer) = (domain.reader(), domain.reclaimer());
/// for (key, value) in [(2, "two"), (3, "three"), (1, "one")] {
///     list.insert(key, value, &reader, &mut reclaimer).expect("there is no such key");
/// }
///
/// let guard = reader.pin();
/// assert_eq!(list.get_in(&3, &guard), Some(&"three"));
/// assert!(list.iter_in(&guard).map(|(key, _)| key).eq(&[1, 2, 3]));
/// drop(guard);
///
/// let removed = list.remove(&3, &reader, &mut reclaimer).expect("it is there");
/// assert_eq!((removed.key(), *removed), (&3, "three")); // protected as long as this value exists
/// assert!(list.get(&3, &reader).is_none());
/// drop(removed);
/// reclaimer.poll();
/// ```
///
/// References cannot outlive the region (or the reader) and the list:
///
/// ```compile_fail,E0505
/// # use stillpoint::rcu::Domain;
/// # use stillpoint_structures::List;
/// # let domain = Domain::new();
/// # let list = List::<u32, u32>::new_in(&domain);
/// # let reader = domain.reader();
/// let guard = reader.pin();
/// let value = list.get_in(&1, &guard);
/// drop(list);
/// assert_eq!(value, None);
/// ```
/// ```
/// # use stillpoint::rcu::Domain;
/// # use stillpoint_structures::List;
/// # let domain = Domain::new();
/// # let list = List::<u32, u32>::new_in(&domain);
/// # let reader = domain.reader();
/// let guard = reader.pin();
/// let value = list.get_in(&1, &guard);
/// assert_eq!(value, None);
/// drop(list);
/// ```
pub struct List<K: Send + Sync + 'static, V: Send + Sync + 'static> {
    head: Atomic<Node<K, V>>,
    domain: Domain,
}

/// What a walk protects: the node before, the current one, and the next one. References to these values take turns. Moving the values
/// at each step would make the walk slower by more than half.
type Links<'r, K, V> = [ProtectedLink<'r, Node<K, V>>; 3];

/// The first node whose key is not less than the key that was sought.
struct Place<'p, 'r, K, V> {
    /// The link to that node: the head of the list, or a link in the protected node before.
    link: &'p Atomic<Node<K, V>>,
    current: &'p mut ProtectedLink<'r, Node<K, V>>,
    /// The node after it, if the key was found.
    next: &'p mut ProtectedLink<'r, Node<K, V>>,
    is_found: bool,
}

fn unprotected<K, V>(reader: &Reader) -> Links<'_, K, V> {
    [(); 3].map(|()| ProtectedLink::null(reader))
}

impl<K: Ord + Send + Sync + 'static, V: Send + Sync + 'static> List<K, V> {
    /// An empty list, read and reclaimed in `domain`.
    pub fn new_in(domain: &Domain) -> Self {
        Self { head: Atomic::null(), domain: domain.clone() }
    }

    /// Walks hand over hand to the place of `key`. Unlinks marked nodes on the way; they go to
    /// `reclaimer`, or are left to the domain.
    fn seek<'p, 'r>(
        &'p self,
        key: &K,
        links: &'p mut Links<'r, K, V>,
        mut reclaimer: Option<&mut Reclaimer>,
    ) -> Place<'p, 'r, K, V> {
        let [mut before, mut current, mut next] = links.each_mut();
        'restart: loop {
            let mut link = &self.head;
            current.load(link);
            // Only the two loads of `current` are looked at here. A link that was `next` has been looked at; to do it again at each step
            // would make the walk slower by a fifth.
            'again: loop {
                if has_mark(current.shared()) && !busted::is(Variant::ListMarkIgnored) {
                    continue 'restart; // the node before is removed
                }
                let mut node = current.shared().as_ptr().cast::<Node<K, V>>();
                loop {
                    // SAFETY: the link to the node has no mark, and is the head or in a protected node. This reference, and `link`,
                    // which is made from it below, are used only while one of the three values protects the node.
                    let Some(reached) = (unsafe { node.as_ref() }) else {
                        return Place { link, current, next, is_found: false };
                    };
                    reached.watch.look();
                    let following = next.load(&reached.next);
                    if has_mark(following) && !busted::is(Variant::ListMarkIgnored) {
                        if !self.unlink(
                            link,
                            current.shared(),
                            following.with_tag(0),
                            reclaimer.as_deref_mut(),
                        ) {
                            continue 'restart;
                        }
                        // A slot does not protect what was loaded from a marked link.
                        current.load(link);
                        continue 'again;
                    }
                    if reached.key.cmp(key) != Less {
                        return Place { link, current, next, is_found: is_equal(key, &reached.key) };
                    }
                    (link, node) = (&reached.next, following.as_ptr().cast());
                    (before, current, next) = (current, next, before);
                }
            }
        }
    }

    /// Unlinks a marked node, and retires it. Returns false if the link before it no longer leads to it without a mark: another
    /// thread has unlinked the node or inserted one before it, or the node before it is marked as well.
    fn unlink(
        &self,
        link: &Atomic<Node<K, V>>,
        node: Shared<'_, Node<K, V>>,
        next: Shared<'_, Node<K, V>>,
        reclaimer: Option<&mut Reclaimer>,
    ) -> bool {
        let order = orders::list_unlink();
        if link.compare_exchange(node, next, order, Ordering::Relaxed, &Unprotected).is_err() {
            return false;
        }
        match reclaimer {
            // SAFETY: the exchange above, which succeeds only once, has unlinked the node. Readers are of the domain.
            Some(reclaimer) => unsafe { node.retire(reclaimer) },
            // SAFETY: the exchange has unlinked the node, and the domain that gets it is that of the readers.
            None => drop(unsafe { node.into_retired(&self.domain) }),
        }
        true
    }

    /// The entry of `key`, protected. It holds up nothing else.
    ///
    /// # Panics
    /// If `reader` belongs to another domain. Also if a comparison of keys panics, as in all methods that take a key.
    pub fn get<'a>(&'a self, key: &K, reader: &'a Reader) -> Option<Entry<'a, K, V>> {
        reader.verify(&self.domain);
        let mut links = unprotected(reader);
        let place = self.seek(key, &mut links, None);
        place.is_found.then(|| Entry::new(self, place.current, reader))
    }

    /// The value of `key`, within a region.
    ///
    /// # Panics
    /// If `region` belongs to another domain.
    pub fn get_in<'g, R: Region>(&'g self, key: &K, region: &'g R) -> Option<&'g V> {
        region.verify(&self.domain);
        let mut link = &self.head;
        loop {
            let shared = link.load(orders::list_follow(), region);
            // SAFETY: the list keeps the contract of links, and the region is of its domain. So what was reached from the head
            // may be followed, marked or not.
            let node = unsafe { shared.as_ref() }?;
            node.watch.look();
            if node.key.cmp(key) != Less {
                return (is_equal(key, &node.key) && !node.is_marked()).then_some(&node.value);
            }
            link = &node.next;
        }
    }

    /// All entries within a region, in the order of their keys. Entries that are inserted or removed meanwhile may or may not be seen.
    ///
    /// # Panics
    /// If `region` belongs to another domain.
    pub fn iter_in<'g, R: Region>(&'g self, region: &'g R) -> Iter<'g, K, V> {
        region.verify(&self.domain);
        Iter { link: &self.head, region: PhantomData }
    }

    /// Inserts an entry. `reclaimer` takes nodes that others have removed and not unlinked yet.
    ///
    /// # Errors
    /// If the key exists already. The error hands key and value back.
    ///
    /// # Panics
    /// If `reader` or `reclaimer` belongs to another domain. If the reclaimer is full, this call may free other objects. If one
    /// of their destructors panics, so does this call, with that panic. If `K::cmp` panics, so does this call. Key and value
    /// are then dropped, unless they were inserted already.
    pub fn insert(&self, key: K, value: V, reader: &Reader, reclaimer: &mut Reclaimer) -> Result<(), (K, V)> {
        reader.verify(&self.domain);
        reclaimer.verify(&self.domain);
        let mut new = Owned::new(Node { key, value, next: Atomic::null(), watch: Watch::new() });
        let mut links = unprotected(reader);
        loop {
            let place = self.seek(&new.key, &mut links, Some(reclaimer));
            if place.is_found {
                let Node { key, value, .. } = *new.into_box();
                return Err((key, value));
            }
            // Relaxed: the exchange publishes it.
            new.next.store(place.current.shared(), Ordering::Relaxed);
            new.watch.touch();
            let (current, order) = (place.current.shared(), orders::list_insert());
            match place.link.compare_exchange(current, new, order, Ordering::Relaxed, &Unprotected) {
                Ok(_) => return Ok(()),
                Err(error) => new = error.new,
            }
        }
    }

    /// Removes an entry, which can still be read; `None` if there is none. Its node goes to `reclaimer`, as do nodes that others have
    /// removed and not unlinked yet.
    ///
    /// # Panics
    /// As [`insert`](List::insert). The entry may have been removed by then: it is lost.
    pub fn remove<'a>(
        &'a self,
        key: &K,
        reader: &'a Reader,
        reclaimer: &mut Reclaimer,
    ) -> Option<Entry<'a, K, V>> {
        reader.verify(&self.domain);
        reclaimer.verify(&self.domain);
        let mut links = unprotected(reader);
        loop {
            let Place { link, current, next, is_found } = self.seek(key, &mut links, Some(reclaimer));
            if !is_found {
                return None;
            }
            // SAFETY: the node was read from a link without a mark.
            let node = unsafe { current.as_ref() }.expect("a key that was found has a node");
            // The next node is protected: the exchange compares only addresses. If that node were freed meanwhile, another node could be
            // at its address, and the link would get a pointer that was made from the freed one.
            let marked = next.shared().with_tag(MARK);
            if busted::is(Variant::ListUnlinkFirst)
                && !self.unlink(link, current.shared(), next.shared(), Some(reclaimer))
            {
                continue;
            }
            // Relaxed: publishes nothing, and the thread that unlinks has set the mark or has read it: see step 7.
            let order = Ordering::Relaxed;
            if node
                .next
                .compare_exchange(next.shared(), marked, order, Ordering::Relaxed, &Unprotected)
                .is_err()
            {
                continue;
            }
            if !busted::is(Variant::ListUnlinkFirst) {
                // If the exchange fails, another walk to the key unlinks the node, unless another thread does.
                if !self.unlink(link, current.shared(), next.shared(), Some(reclaimer)) {
                    let _ = self.seek(key, &mut unprotected(reader), Some(reclaimer));
                }
            }
            return Some(Entry::new(self, current, reader));
        }
    }
}

impl<K: Send + Sync + 'static, V: Send + Sync + 'static> Drop for List<K, V> {
    fn drop(&mut self) {
        // SAFETY: the caller owns the list, with all linked nodes; references into it borrow it. The link of a node
        // that is still linked may have a mark; the thread that marked it has not retired the node.
        unsafe { end_chain(&mut self.head) };
    }
}

stillpoint_sys::debug!([K: Send + Sync + 'static, V: Send + Sync + 'static] |this| List<K, V> {
    domain: this.domain.name(), ..
});

/// An entry of a [`List`], which is not freed as long as this value exists, even if it is removed. It dereferences to its value.
///
/// ```
/// use stillpoint_structures::List;
///
/// let domain = stillpoint::rcu::Domain::new();
/// let (reader, mut reclaimer) = (domain.reader(), domain.reclaimer());
/// let list = List::new_in(&domain);
/// list.insert("key", 1, &reader, &mut reclaimer).expect("the list is empty");
/// let entry = list.get(&"key", &reader).expect("it is there");
/// assert_eq!((*entry.key(), *entry), ("key", 1));
/// ```
pub struct Entry<'a, K: Send + Sync + 'static, V: Send + Sync + 'static> {
    node: ProtectedLink<'a, Node<K, V>>,
    /// The list, whose drop frees linked nodes at once.
    _list: &'a List<K, V>,
}

impl<'a, K: Send + Sync + 'static, V: Send + Sync + 'static> Entry<'a, K, V> {
    fn new(list: &'a List<K, V>, found: &mut ProtectedLink<'a, Node<K, V>>, reader: &'a Reader) -> Self {
        Self { node: mem::replace(found, ProtectedLink::null(reader)), _list: list }
    }

    fn node(&self) -> &Node<K, V> {
        // SAFETY: the node was read from a link without a mark.
        unsafe { self.node.as_ref() }.expect("an entry has a node")
    }

    /// The key.
    pub fn key(&self) -> &K {
        &self.node().key
    }
}

impl<K: Send + Sync + 'static, V: Send + Sync + 'static> Deref for Entry<'_, K, V> {
    type Target = V;

    fn deref(&self) -> &V {
        &self.node().value
    }
}

impl<K, V> fmt::Debug for Entry<'_, K, V>
where
    K: fmt::Debug + Send + Sync + 'static,
    V: fmt::Debug + Send + Sync + 'static,
{
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Entry").field(self.key()).field(&**self).finish()
    }
}

/// The entries of a [`List`] within a region: see [`List::iter_in`].
///
/// ```
/// use stillpoint_structures::List;
///
/// let domain = stillpoint::rcu::Domain::new();
/// let (reader, mut reclaimer) = (domain.reader(), domain.reclaimer());
/// let list = List::new_in(&domain);
/// list.insert(2, "two", &reader, &mut reclaimer).expect("the list is empty");
/// list.insert(1, "one", &reader, &mut reclaimer).expect("there is no such key");
/// let guard = reader.pin();
/// assert_eq!(list.iter_in(&guard).collect::<Vec<_>>(), [(&1, &"one"), (&2, &"two")]);
/// ```
pub struct Iter<'g, K: Send + Sync + 'static, V: Send + Sync + 'static> {
    link: &'g Atomic<Node<K, V>>,
    /// The caller's region, which belongs to its thread.
    region: PhantomData<(&'g (), *const ())>,
}

impl<'g, K: Send + Sync + 'static, V: Send + Sync + 'static> Iterator for Iter<'g, K, V> {
    type Item = (&'g K, &'g V);

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            let shared: Shared<'g, _> = self.link.load(orders::list_follow(), &Unprotected);
            // SAFETY: the list keeps the contract of links, and its region is borrowed for `'g`, as in `get_in`.
            let node = unsafe { shared.as_ref() }?;
            node.watch.look();
            self.link = &node.next;
            if !node.is_marked() {
                return Some((&node.key, &node.value));
            }
        }
    }
}

stillpoint_sys::debug!([K: Send + Sync + 'static, V: Send + Sync + 'static] Iter<'_, K, V> { .. });
