//! Looks at objects, by the kind of reader and the age of the object: the "reader pipe" of the kernel's rcutorture.

use stillpoint_harness::output::say;

use super::hold::Kind;

/// The age at which an object stops ageing: the last column.
pub(crate) const OLDEST: u64 = 6;
const AGES: usize = OLDEST as usize + 1;

/// The titles of the columns.
const TITLES: [&str; AGES] = ["linked", "unlinked", "1 period", "2", "3", "4", "5 and more"];

/// The number of looks at objects, by kind of reader and age.
#[derive(Debug, Clone, Default)]
pub(crate) struct Looks([[u64; AGES]; Kind::ALL.len()]);

impl Looks {
    #[inline]
    pub(crate) fn add(&mut self, kind: Kind, age: u64) {
        self.0[kind as usize][age as usize] += 1;
    }

    pub(crate) fn merge(&mut self, other: &Self) {
        let others = other.0.as_flattened();
        self.0.as_flattened_mut().iter_mut().zip(others).for_each(|(sum, part)| *sum += part);
    }

    /// The ages that were never seen, although they had to be. A region reader must see two ages. A protected load
    /// may see all ages, and must see the first `protected` of them.
    pub(crate) fn missing(&self, protected: usize) -> Vec<String> {
        let seen = |kind: Kind| if kind == Kind::Protected { protected } else { 2 };
        let unseen = Kind::ALL.iter().flat_map(|&kind| {
            let ages = (0..seen(kind)).filter(move |&age| self.0[kind as usize][age] == 0);
            ages.map(move |age| format!("looks of a {} at an object of age {}", kind.text(), TITLES[age]))
        });
        unseen.collect()
    }

    /// Prints the looks, and how many objects were destroyed at each age.
    pub(crate) fn show(&self, destroyed: Option<&[u64; AGES]>) {
        let row = |numbers: &[u64]| numbers.iter().map(|number| format!("{number:>11}")).collect::<String>();
        say(format!(
            "  {:<26}{}",
            "looks at objects of age",
            TITLES.map(|age| format!("{age:>11}")).concat()
        ));
        for kind in
            Kind::ALL.into_iter().filter(|&kind| self.0[kind as usize].iter().any(|&looks| looks != 0))
        {
            say(format!("  {:<26}{}", kind.text(), row(&self.0[kind as usize])));
        }
        if let Some(destroyed) = destroyed {
            say(format!("  {:<26}{}", "destroyed at that age", row(destroyed)));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ages_that_nobody_saw_are_missing() {
        let mut looks = Looks::default();
        assert_eq!(looks.missing(3).len(), 7);
        let mut part = Looks::default();
        part.add(Kind::Protected, 2);
        part.add(Kind::Guard, 1);
        looks.merge(&part);
        looks.merge(&part);
        assert_eq!(looks.missing(3).len(), 5, "{:?}", looks.missing(3));
        assert_eq!(looks.missing(2).len(), 5, "the third age was seen");
        assert_eq!(looks.0[Kind::Protected as usize][2], 2);
    }
}
