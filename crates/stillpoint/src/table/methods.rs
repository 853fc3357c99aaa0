//! The methods that several views of a table have: each is written once.

/// The calls that look at the present entry and decide. The view has a `finder`, which returns the table's `Inner` for `$life` and a
/// [`Finder`](super::engine::change::Finder).
macro_rules! deciding {
    (
        $visibility:vis $self:ident, [$($receiver:tt)+], $life:lifetime,
        $entry:ty = $of_kept:expr, $pair:ty = $of_kept_pair:expr, $lent:ty = $lend:expr
    ) => {
        /// As [`Table::get_or_insert`](super::Table::get_or_insert).
        ///
        /// # Errors
        /// When the table is full: the pair is handed back.
        #[inline]
        $visibility fn get_or_insert($($receiver)+, key: K, value: V) -> Result<($entry, bool), Full<K, V>> {
            $self.get_or_insert_with(key, || value)
        }

        /// As [`Table::get_or_insert_with`](super::Table::get_or_insert_with).
        ///
        /// # Errors
        /// When the table is full: the pair is handed back.
        #[inline]
        $visibility fn get_or_insert_with(
            $($receiver)+,
            key: K,
            value: impl FnOnce() -> V,
        ) -> Result<($entry, bool), Full<K, V>> {
            let (inner, mut finder) = $self.finder();
            Ok(match inner.get_or_insert(&mut finder, key, value)? {
                Found::Inserted(kept) => ($of_kept(kept), true),
                Found::Present(kept, ..) => ($of_kept(kept), false),
            })
        }

        /// As [`Table::try_insert`](super::Table::try_insert).
        ///
        /// # Errors
        /// When the key is there, or the table is full: the pair is handed back.
        $visibility fn try_insert($($receiver)+, key: K, value: V) -> Result<$entry, TryInsertError<$entry, K, V>> {
            let mut value = Some(value);
            let inserted = $self.try_insert_with(key, || value.take().expect("called once"));
            inserted.map_err(|error| error.with(value))
        }

        /// As [`Table::try_insert_with`](super::Table::try_insert_with).
        ///
        /// # Errors
        /// When the key is there, or the table is full: the key is handed back, and the value if it was made.
        $visibility fn try_insert_with(
            $($receiver)+,
            key: K,
            value: impl FnOnce() -> V,
        ) -> Result<$entry, TryInsertError<$entry, K, V, Option<V>>> {
            let (inner, mut finder) = $self.finder();
            TryInsertError::check(inner.get_or_insert(&mut finder, key, value), $of_kept)
        }

        /// As [`Table::update`](super::Table::update).
        ///
        /// # Errors
        /// When the table is full, and no spare slot is left: the new pair is handed back.
        #[track_caller]
        #[doc(alias = "get_mut")]
        $visibility fn update<Q: Hash + Equivalent<K> + ?Sized>(
            $($receiver)+,
            key: &Q,
            value: impl FnMut(&V) -> V,
        ) -> Replaced<$life, K, V, S>
        where
            K: Clone,
        {
            let (inner, mut finder) = $self.finder();
            let old = inner.update(&mut finder, key, value)?;
            Ok(old.map(|entry| Removed::new(inner, entry)))
        }

        /// As [`Table::update_owned`](super::Table::update_owned).
        ///
        /// # Errors
        /// When the key is not there: it is handed back. When the table is full, and no spare slot is left: the new pair is handed
        /// back.
        #[track_caller]
        $visibility fn update_owned(
            $($receiver)+,
            key: K,
            value: impl FnMut(&V) -> V,
        ) -> Result<Removed<$life, K, V, S>, UpdateError<K, V>> {
            let (inner, mut finder) = $self.finder();
            match inner.update_owned(&mut finder, key, value) {
                Ok(Ok(old)) => Ok(Removed::new(inner, old)),
                Ok(Err(key)) => Err(UpdateError::Absent(key)),
                Err(pair) => Err(UpdateError::Full(pair.into())),
            }
        }

        /// As [`Table::update_or_insert`](super::Table::update_or_insert).
        ///
        /// # Errors
        /// When the table is full: the new pair is handed back.
        #[track_caller]
        #[doc(alias = "entry")]
        $visibility fn update_or_insert(
            $($receiver)+,
            key: K,
            update: impl FnMut(&V) -> V,
            value: V,
        ) -> Result<$entry, Full<K, V>> {
            $self.update_or_insert_with(key, update, || value)
        }

        /// As [`Table::update_or_insert_with`](super::Table::update_or_insert_with).
        ///
        /// # Errors
        /// When the table is full: the new pair is handed back.
        #[track_caller]
        $visibility fn update_or_insert_with(
            $($receiver)+,
            key: K,
            update: impl FnMut(&V) -> V,
            value: impl FnOnce() -> V,
        ) -> Result<$entry, Full<K, V>> {
            let (inner, mut finder) = $self.finder();
            Ok($of_kept(inner.update_or_insert(&mut finder, key, update, value)?))
        }

        /// As [`Table::compute`](super::Table::compute).
        ///
        /// # Errors
        /// When the table is full: the new pair is handed back.
        #[track_caller]
        $visibility fn compute<T>(
            $($receiver)+,
            key: K,
            mut function: impl FnMut(Option<$lent>) -> Operation<V, T>,
        ) -> Result<Compute<$pair, Removed<$life, K, V, S>, T>, Full<K, V>> {
            let (inner, mut finder) = $self.finder();
            let decide = |present: Option<&_>, _| function(present.map($lend));
            let computed = inner.compute(&mut finder, key, decide, Deciding::Compute)?;
            Ok(Compute::of(computed, $of_kept_pair, |entry| Removed::new(inner, entry)))
        }

        /// As [`Table::remove_if`](super::Table::remove_if).
        ///
        /// # Errors
        /// When `condition` does not hold: the entry, which stays in the table.
        #[track_caller]
        $visibility fn remove_if<Q: Hash + Equivalent<K> + ?Sized>(
            $($receiver)+,
            key: &Q,
            condition: impl FnMut(&K, &V) -> bool,
        ) -> Result<Option<Removed<$life, K, V, S>>, $pair> {
            let (inner, mut finder) = $self.finder();
            match inner.remove_if(&mut finder, key, condition) {
                Ok(old) => Ok(old.map(|entry| Removed::new(inner, entry))),
                Err(kept) => Err($of_kept_pair(kept)),
            }
        }
    };
}

pub(super) use deciding;
