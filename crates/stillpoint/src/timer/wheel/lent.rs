/// The value as a callback gets it: given if the timer does not fire again, lent if it is armed again.
#[derive(Debug)]
pub(crate) enum Lent<'a, T> {
    Given(T),
    Lent(&'a mut T),
}

impl<T> Lent<'_, T> {
    #[inline]
    pub(crate) fn is_lent(&self) -> bool {
        matches!(self, Self::Lent(_))
    }

    #[inline]
    pub(crate) fn get_mut(&mut self) -> &mut T {
        match self {
            Self::Given(value) => value,
            Self::Lent(value) => value,
        }
    }

    /// A lent value stays where it is.
    #[inline]
    pub(crate) fn into_given(self) -> Option<T> {
        match self {
            Self::Given(value) => Some(value),
            Self::Lent(_) => None,
        }
    }
}
