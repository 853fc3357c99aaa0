use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use super::boost::Boost;
use super::engine::queue::account::Limits;
use super::engine::wait::report::Stall;
use super::engine::wait::stall::Watch;
use super::engine::{Core, Settings};
use super::error::BuildError;
use super::stats::Stats;
use crate::fence::Mode;

/// An RCU group: the readers that the reclamation of a set of objects waits for.
///
/// A `Domain` is a cheap handle; clone and share it freely. Domains are independent: a slow reader of one never
/// delays another, and a thread may have readers of several. Readers and reclaimers are handles, too. When
/// the last handle is dropped, everything that still waits is freed.
///
/// ```
/// use stillpoint::rcu::Domain;
///
/// let domain = Domain::new();
/// let config = domain.cell("first");
/// let reader = domain.reader();
/// assert_eq!(config.protect(&reader).as_deref(), Some(&"first"));
/// ```
///
/// An object that owns a handle of the domain that it is retired to keeps the domain alive until a reclaimer frees the
/// object. Let objects own cells instead: cells are not handles.
///
/// The properties and figures of a domain:
///
/// ```
/// use stillpoint::{fence::Mode, rcu::Domain};
///
/// let (routes, sessions) = (Domain::builder().name("routes").build()?, Domain::new());
/// assert_eq!(routes.name(), "routes");
/// assert_ne!(routes.id(), sessions.id());
/// assert_eq!(routes.fence_mode(), Mode::best());
///
/// let _reader = routes.reader();
/// assert_eq!((routes.stats().readers, sessions.stats().readers), (1, 0));
/// # Ok::<(), stillpoint::rcu::BuildError>(())
/// ```
#[derive(Clone)]
pub struct Domain {
    core: Arc<Core>,
}

impl Domain {
    /// A domain in the best fence mode that this process may use: see [`Mode::best`].
    #[expect(
        clippy::new_without_default,
        reason = "a domain has an identity: two defaults would not be equal"
    )]
    pub fn new() -> Self {
        Self { core: Core::new(Settings { mode: Mode::best(), ..Settings::default() }) }
    }

    /// Builds a domain with a name, a fence mode, limits, boosting of preempted readers, or a hook for stalls.
    pub fn builder() -> DomainBuilder {
        DomainBuilder {
            name: None,
            mode: None,
            limits: Limits::NONE,
            boost: Boost::Off,
            boost_after: BOOST_AFTER,
            boost_fallback: None,
            watch: None,
        }
    }

    /// The domains of the process that have a handle: for a page of metrics. The [default domain](super::default_domain) is
    /// among them once it was used.
    ///
    /// Each one that the iterator returns is a handle, too. If it becomes the last one, its drop frees what is left in the domain, as
    /// any last handle's. After a `fork` meanwhile, a domain that another thread was just looking at is never freed in the child. Takes time in proportion to the number of domains. Allocates nothing.
    ///
    /// ```
    /// use stillpoint::rcu::Domain;
    ///
    /// let domain = Domain::builder().name("routes").build()?;
    /// let cell = domain.cell(1);
    /// assert!(Domain::all().any(|domain| domain.name() == "routes"));
    /// drop(domain);
    /// assert!(!Domain::all().any(|domain| domain.name() == "routes"), "a cell is no handle");
    /// # drop(cell);
    /// # Ok::<(), stillpoint::rcu::BuildError>(())
    /// ```
    #[cfg(not(stillpoint_loom))]
    pub fn all() -> impl Iterator<Item = Self> {
        super::engine::directory::all().map(|core| Self { core })
    }

    /// The name given to the builder, or `domain-` and a number.
    pub fn name(&self) -> &str {
        self.core.name()
    }

    /// A number that no other domain of the process has, had or will have.
    pub fn id(&self) -> u64 {
        self.core.id()
    }

    /// Panics unless `core` is this domain.
    #[inline(always)]
    #[track_caller]
    pub(super) fn verify(&self, core: &Core) {
        if !std::ptr::eq(core, &*self.core) {
            self.reject_member(core);
        }
    }

    #[cold]
    #[inline(never)]
    #[track_caller]
    fn reject_member(&self, other: &Core) -> ! {
        panic!(
            "a reader or a reclaimer of domain `{other}` was used with a structure of domain `{own}`; pass one of `{own}`",
            other = other.name(),
            own = self.name()
        )
    }

    /// How readers and writers are ordered.
    pub fn fence_mode(&self) -> Mode {
        self.core.protocol.mode
    }

    /// What is done about preempted region readers: see [`Boost`].
    pub fn boost(&self) -> Boost {
        Boost::of(self.core.boosting())
    }

    /// What the domain has done so far, and what readers hold now.
    ///
    /// Looks at every reader, at its protected loads, and at as many reclaimers as there ever were at the same time. Frees nothing.
    /// Issues no fence, so it interrupts no core, however often it is called, and may miss what a reader has taken within the last
    /// microseconds.
    ///
    /// ```
    /// use stillpoint::rcu::Domain;
    ///
    /// let domain = Domain::new();
    /// let (cell, reader) = (domain.cell(1), domain.reader());
    /// let held = cell.protect(&reader);
    /// let mut reclaimer = domain.reclaimer();
    /// reclaimer.retire(cell.take().expect("never empty here"))?;
    /// reclaimer.poll();
    /// assert_eq!((domain.stats().pinned, domain.stats().ready), (1, 0));
    /// drop(held);
    /// let stats = domain.stats(); // no thread has polled since
    /// assert_eq!((stats.pending, stats.pinned, stats.ready, stats.oldest), (1, 0, 1, None));
    /// # Ok::<(), stillpoint::rcu::RetireError<i32>>(())
    /// ```
    pub fn stats(&self) -> Stats {
        Stats::of(&self.core)
    }

    /// On Linux, in the child of a `fork`: releases the readers of the parent's other threads. These threads do not exist in
    /// the child, so their readers would keep everything alive. The objects that they protected count as released. Readers of
    /// the calling thread stay as they are, with what they hold. Futures of the parent must be polled again in the child: their
    /// wakers are discarded.
    ///
    /// ```no_run
    /// # let domain = stillpoint::rcu::Domain::new();
    /// // SAFETY: nothing but async-signal-safe functions is called in the child before this.
    /// if unsafe { libc::fork() } == 0 {
    ///     // SAFETY: this is the only thread of the child, and it uses no reference that another thread has lent it.
    ///     unsafe { domain.reset_after_fork() };
    /// }
    /// ```
    ///
    /// # Safety
    /// - The calling thread is the only thread of the process, and the copy of the thread that called `fork`. Neither this
    ///   call nor `fork` comes from a signal handler that has interrupted this library.
    /// - From now on the child uses no reference that was borrowed through a reader of another thread: through its guard,
    ///   its [`Protected`](super::Protected), its [`QsbrReader`](super::QsbrReader), or a view that is bound to one of
    ///   them. The child may free these objects at once. The borrow checker does not see this. Such a reference is a
    ///   plain `&T`. Its thread may lend it to the thread that forks (to a scoped thread, for example), or store it where
    ///   all threads find it: a reader that was leaked lends for `'static`. References into such objects count as well, and
    ///   so does everything that owns or borrows one of these references. What the calling thread has borrowed through
    ///   readers of its own stays valid.
    ///
    /// A child that must go on with such references does not call this function. Then nothing that the parent's threads held is
    /// freed in it.
    #[cfg(target_os = "linux")]
    pub unsafe fn reset_after_fork(&self) {
        // SAFETY: the caller is the only thread of the process, has interrupted no call of the library, and uses no reference that another
        // thread's reader lent.
        unsafe { self.core.reset_after_fork() }
    }

    #[inline(always)]
    pub(crate) fn core(&self) -> &Arc<Core> {
        &self.core
    }
}

impl fmt::Debug for Domain {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Domain").field("name", &self.name()).field("fence_mode", &self.fence_mode()).finish()
    }
}

/// Makes a [`Domain`].
///
/// ```
/// use stillpoint::{fence::Mode, rcu::Domain};
///
/// let domain = Domain::builder().name("routes").fence(Mode::Symmetric).build()?;
/// assert_eq!(domain.name(), "routes");
/// # Ok::<(), stillpoint::rcu::BuildError>(())
/// ```
#[derive(Debug, Clone)]
pub struct DomainBuilder {
    pub(super) name: Option<String>,
    mode: Option<Mode>,
    limits: Limits,
    boost: Boost,
    boost_after: Duration,
    boost_fallback: Option<Boost>,
    watch: Option<Watch>,
}

/// Longer than nearly all sections, and than a grace period without preempted readers.
const BOOST_AFTER: Duration = Duration::from_micros(50);

impl DomainBuilder {
    /// Sets the name that reports and panics use.
    pub fn name(mut self, name: impl Into<String>) -> Self {
        self.name = Some(name.into());
        self
    }

    /// Sets the fence mode. Without this call: [`Mode::best`].
    pub fn fence(mut self, mode: Mode) -> Self {
        self.mode = Some(mode);
        self
    }

    /// Sets what to do about region readers that block a grace period because they wait for a CPU: see [`Boost`]. Without this
    /// call: nothing.
    pub fn boost(mut self, boost: Boost) -> Self {
        self.boost = boost;
        self
    }

    /// Sets the boost to use if this process may not use the one that [`boost`](DomainBuilder::boost) asks for. Without this call,
    /// [`build`](DomainBuilder::build) then fails. [`Domain::boost`] returns the one in use.
    pub fn boost_fallback(mut self, boost: Boost) -> Self {
        self.boost_fallback = Some(boost);
        self
    }

    /// Sets how long a grace period is blocked before readers are boosted; 50 µs by default.
    pub fn boost_after(mut self, threshold: Duration) -> Self {
        self.boost_after = threshold;
        self
    }

    /// Objects that may wait to be freed in the whole domain at a time, at least 1; unlimited by default.
    ///
    /// Everything counts that was retired and is not freed: what waits in reclaimers, what was handed to background
    /// reclaimers, what was left to the domain, removed entries of tables. Threads that retire at the same time do not
    /// exceed the limit together. What cannot be refused (a [`Retired`](super::Retired) that is dropped, a deferred
    /// call, an entry of a table) is taken in beyond the limit: [`Stats::beyond_limits`](super::Stats::beyond_limits) counts it.
    ///
    /// An object's room is given back when its destructor has run. What the destructor did happens before the next reservation of
    /// this room.
    ///
    /// Reclaimers draw room for 64 objects at a time, and keep up to 127 unused places as long as objects wait in them.
    /// If there is room for at most 1,024 more, they draw one by one and keep none. Unused places count towards the limit, so
    /// nothing that can be refused is taken in beyond it. A limit of at most 1,024 is reached exactly. With a higher limit, each
    /// reclaimer that is not polled, and in which something waits, may hold 127 places back. A retire handle draws room for one
    /// object at a time.
    ///
    /// ```
    /// use stillpoint::rcu::limits::RetireErrorKind;
    /// use stillpoint::rcu::Domain;
    ///
    /// let domain = Domain::builder().max_pending(1).build()?;
    /// let (first, second) = (domain.cell(1), domain.cell(2));
    /// let reader = domain.reader();
    /// let guard = reader.pin();
    /// let (mut one, mut another) = (domain.reclaimer(), domain.reclaimer());
    /// one.retire(first.take().unwrap()).expect("there is room for one");
    /// let error = another.retire(second.take().unwrap()).expect_err("but not for two");
    /// assert_eq!(error.kind(), RetireErrorKind::DomainFull);
    ///
    /// drop(guard);
    /// assert_eq!(one.poll(), 1);
    /// another.retire(error.into_inner()).expect("there is room again");
    /// # Ok::<(), stillpoint::rcu::BuildError>(())
    /// ```
    pub fn max_pending(mut self, objects: usize) -> Self {
        self.limits.objects = objects.max(1);
        self
    }

    /// Bytes that may wait to be freed in the whole domain at a time, without what the objects own elsewhere; unlimited
    /// by default. See [`max_pending`](DomainBuilder::max_pending).
    pub fn max_pending_bytes(mut self, bytes: usize) -> Self {
        self.limits.bytes = bytes;
        self
    }

    /// Calls `hook` when a region reader has blocked a grace period for `threshold`, once for each section of a reader; and when
    /// the kernel has refused the domain's fence for `threshold` ([`Stall::fence_error`]).
    ///
    /// No thread watches for stalls. A call reports the reader in its way if its own grace period has been under way
    /// for the threshold. Such calls are [`synchronize`](Domain::synchronize) and the other waits,
    /// the polls of reclaimers and of futures, and [`BackgroundReclaimer::run`](super::BackgroundReclaimer::run). Calls that wait report before
    /// twice the threshold is over. Calls that poll report with the first poll after the threshold. Calls that check a token by
    /// hand ([`Domain::check`], [`Retired::try_free`](super::Retired::try_free)) report nothing. If several readers are in the
    /// way, one of them is reported, and the next one when the first has passed; [`Stall::others`] counts them all.
    ///
    /// A poll whose fence is refused reports that, if the first refusal since a fence succeeded is `threshold` ago: once until a
    /// fence succeeds, on any thread. Waits and futures return the error instead.
    ///
    /// Several threads may call the hook at a time, each for another section. The hook may use the domain; a call from
    /// within it can be reported only for another section. Like all code that the library runs for others, the hook must not
    /// wait in the library: calls that may wait are [refused](super::wait::SynchronizeError::Reentrant). **A panic** of the hook becomes a
    /// panic of the call that noticed the stall. Before it panics, that call frees everything that was ready. The hook must own
    /// no handle of the domain: the handle would keep the domain alive for ever.
    ///
    /// Without a stall, a poll with a grace period under way reads the clock once. Without a hook, the poll does not read it. With one
    /// of the features `metrics` and `tracing`, a domain without a hook behaves as if it had one that does nothing, with a threshold of
    /// 100 ms. [`Stats::stalls`](super::Stats::stalls) counts the calls.
    ///
    /// With the feature `tracing`, what the hook is called for is also an event with the target `stillpoint` and the level `WARN`, just
    /// before. So the subscriber is bound by what is said here of the hook. The first retirement that a limit refuses is an event as well, and so are the second, the
    /// fourth, the eighth, and so on.
    ///
    /// ```
    /// use std::sync::mpsc;
    /// use std::time::Duration;
    /// use stillpoint::rcu::wait::ReaderKind;
    /// use stillpoint::rcu::Domain;
    ///
    /// let (stalls, received) = mpsc::channel();
    /// let domain = Domain::builder()
    ///     .stall_hook(Duration::from_millis(2), move |stall| drop(stalls.send(stall.clone())))
    ///     .build()?;
    /// let reader = domain.reader();
    /// let guard = reader.pin();
    /// let other = domain.clone();
    /// std::thread::spawn(move || other.synchronize_timeout(Duration::from_millis(20)))
    ///     .join().unwrap().expect_err("the guard is in the way");
    /// assert_eq!(received.recv().unwrap().reader, ReaderKind::Guard);
    /// # drop(guard);
    /// # Ok::<(), stillpoint::rcu::BuildError>(())
    /// ```
    pub fn stall_hook(mut self, threshold: Duration, hook: impl Fn(&Stall) + Send + Sync + 'static) -> Self {
        self.watch = Some(Watch::new(threshold, Arc::new(hook)));
        self
    }

    /// Makes the domain.
    ///
    /// If [`Boost::Realtime`] is asked for, the calling thread is raised briefly, to find out whether this process may raise
    /// threads.
    ///
    /// # Errors
    /// If the process may not use the asymmetric fence mode, which was asked for, or may boost readers neither in the way that was asked for nor by the fallback.
    pub fn build(self) -> Result<Domain, BuildError> {
        let mode = self.mode.unwrap_or_else(Mode::best);
        // `best` has probed the asymmetric mode. If another thread is refused meanwhile, the domain notices as if it were later.
        if self.mode.is_some() || mode != Mode::Asymmetric {
            mode.probe().map_err(BuildError::Asymmetric)?;
        }
        let prepare = |boost: Boost| {
            boost.prepare(self.boost_after).map_err(|errno| BuildError::Boost { boost, errno })
        };
        let boost = match (prepare(self.boost), self.boost_fallback) {
            (Err(_), Some(fallback)) => prepare(fallback),
            (answer, _) => answer,
        };
        let boost = boost?;
        let settings = Settings { name: self.name, mode, limits: self.limits, boost, watch: self.watch };
        Ok(Domain { core: Core::new(settings) })
    }
}
