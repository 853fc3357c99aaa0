//! The settings of the scenarios: which thread runs on which CPU of this machine.

use stillpoint_harness::error::Stop;
use stillpoint_harness::flags::LengthFlags;

use crate::experiment::in_scenario;
use crate::reclaim::names::{GROUPS, ONE_CORE, OWN_CORE, SPREAD};

/// Where the reader is that sleeps in its sections.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Slow {
    /// Among the readers of the contender that is measured.
    Same,
    /// In a second contender of the same kind, with a domain of its own if the scheme has several.
    Other,
}

impl Slow {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Same => "same group",
            Self::Other => "other group",
        }
    }
}

/// A scenario with its readers and CPUs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Setting {
    pub(crate) scenario: &'static str,
    /// The CPU of each reader.
    pub(crate) reader_cpus: Vec<usize>,
    /// The CPU of the writer, and of the thread that reclaims for it where a contender has one.
    pub(crate) writer_cpu: usize,
    /// The number of CPUs that readers run on.
    pub(crate) cores: usize,
    /// A reader besides, on the CPU of the first one.
    pub(crate) slow: Option<Slow>,
}

impl Setting {
    fn new(scenario: &'static str, readers: usize, cpus: &[usize], writer_cpu: usize) -> Self {
        let reader_cpus = cpus.iter().copied().cycle().take(readers).collect();
        Self { scenario, reader_cpus, writer_cpu, cores: cpus.len(), slow: None }
    }

    pub(crate) fn readers(&self) -> usize {
        self.reader_cpus.len()
    }
}

const SPREAD_READERS: usize = 8;

/// The settings of the scenarios that were asked for, or else of all, on `cpus`; and a line for each scenario that
/// needs more CPUs. The numbers of readers are those that were asked for, those with a bar, or those of whole curves.
///
/// A scenario that was asked for by name and needs more CPUs is an error.
pub(crate) fn settings(
    cpus: &[usize],
    scenarios: &[String],
    readers: &[usize],
    length: &LengthFlags,
) -> Result<(Vec<Setting>, Vec<String>), Stop> {
    let (mut settings, mut left_out) = (Vec::new(), Vec::new());
    let asked = |name: &str| in_scenario(name, scenarios);
    let Some((&writer, others)) = cpus.split_last() else {
        return Err(Stop::usage("no CPU was chosen to measure on"));
    };

    if asked(OWN_CORE) {
        let doubling: Vec<usize> = doubling_up_to(others.len());
        let counts = length.asked_or(readers, &usual_own_core(others.len()), &doubling);
        let fitting: Vec<usize> = counts.iter().copied().filter(|&count| count <= others.len()).collect();
        if fitting.is_empty() {
            let needed = counts.iter().min().map_or(2, |count| count + 1);
            left_out.push(format!(
                "{OWN_CORE} needs {needed} CPUs or more, and there {} {}",
                if cpus.len() == 1 { "is" } else { "are" },
                cpus.len()
            ));
        }
        settings
            .extend(fitting.into_iter().map(|count| Setting::new(OWN_CORE, count, &others[..count], writer)));
    }
    if asked(ONE_CORE) {
        match others.first() {
            Some(&cpu) => settings.extend(
                length
                    .asked_or(readers, &[8, 16], &[1, 2, 4, 8, 16, 32])
                    .into_iter()
                    .map(|count| Setting::new(ONE_CORE, count, &[cpu], writer)),
            ),
            None => left_out.push(format!("{ONE_CORE} needs 2 CPUs or more, and there is 1")),
        }
    }
    if asked(SPREAD) {
        let mut over = doubling_up_to(cpus.len().min(SPREAD_READERS));
        if length.quick && over.len() > 1 {
            over.remove(0); // on one CPU, all readers would compete with the writer
        }
        for count in length.asked_or(readers, &[SPREAD_READERS], &[SPREAD_READERS]) {
            // A reader runs on one CPU: more CPUs than readers would be the same setting again.
            let mut over: Vec<usize> = over.iter().map(|&cores| cores.min(count)).collect();
            over.dedup();
            for cores in over {
                let cpus = &cpus[cpus.len() - cores..];
                settings.push(Setting::new(SPREAD, count, cpus, writer));
            }
        }
    }
    // Only by name: it has a second structure for each contender.
    if asked(GROUPS) && !scenarios.is_empty() {
        if !readers.is_empty() {
            return Err(Stop::usage(format!(
                "{GROUPS} has one fast reader and a slow one: leave --readers out"
            )));
        }
        match others.first() {
            Some(&cpu) => settings.extend(
                [Slow::Same, Slow::Other]
                    .map(|slow| Setting { slow: Some(slow), ..Setting::new(GROUPS, 1, &[cpu], writer) }),
            ),
            None => left_out.push(format!("{GROUPS} needs 2 CPUs or more, and there is 1")),
        }
    }

    if !left_out.is_empty() && (!scenarios.is_empty() || settings.is_empty()) {
        return Err(Stop::usage(left_out.join("; ")));
    }
    Ok((settings, left_out))
}

/// One reader, and on larger machines the last number of figure A of the talk.
fn usual_own_core(room: usize) -> Vec<usize> {
    match room.min(8) {
        0 | 1 => vec![1],
        most => vec![1, most],
    }
}

/// 1, 2, 4, ... and `most` itself.
fn doubling_up_to(most: usize) -> Vec<usize> {
    let mut counts: Vec<usize> =
        std::iter::successors(Some(1), |count| Some(count * 2)).take_while(|&count| count < most).collect();
    counts.push(most.max(1));
    counts
}

#[cfg(test)]
mod tests {
    use super::*;

    const USUAL: LengthFlags = LengthFlags { quick: false, full: false, duration: None, rounds: None };
    const QUICK: LengthFlags = LengthFlags { quick: true, ..USUAL };
    const FULL: LengthFlags = LengthFlags { full: true, ..USUAL };

    fn of(cpus: &[usize], length: &LengthFlags) -> Vec<(&'static str, usize, usize)> {
        let (settings, _) = settings(cpus, &[], &[], length).unwrap();
        settings.iter().map(|s| (s.scenario, s.readers(), s.cores)).collect()
    }

    #[test]
    fn two_cpus_hold_every_scenario() {
        let quick = [(OWN_CORE, 1, 1), (ONE_CORE, 8, 1), (ONE_CORE, 16, 1), (SPREAD, 8, 2)];
        assert_eq!(of(&[0, 1], &QUICK), quick);
        let [own_core, eight, sixteen, spread] = quick;
        assert_eq!(of(&[0, 1], &USUAL), [own_core, eight, sixteen, (SPREAD, 8, 1), spread]);
        let whole = of(&[0, 1], &FULL);
        let one_core: Vec<usize> = whole.iter().filter(|s| s.0 == ONE_CORE).map(|s| s.1).collect();
        assert_eq!(one_core, [1, 2, 4, 8, 16, 32]);
    }

    #[test]
    fn groups_are_measured_only_by_name() {
        let named = |scenarios: &[String]| settings(&[0, 1], scenarios, &[], &FULL).unwrap().0;
        let slow: Vec<_> = named(&[GROUPS.to_owned()]).iter().map(|setting| setting.slow).collect();
        assert_eq!(slow, [Some(Slow::Same), Some(Slow::Other)]);
        assert!(named(&[]).iter().all(|setting| setting.slow.is_none()));
        assert!(settings(&[0], &[GROUPS.to_owned()], &[], &FULL).is_err());
        assert!(settings(&[0, 1], &[GROUPS.to_owned()], &[4], &FULL).is_err());
    }

    #[test]
    fn more_cpus_add_the_curve_of_figure_c() {
        let cpus: Vec<usize> = (0..16).collect();
        let usual = of(&cpus, &USUAL);
        let spread: Vec<usize> = usual.iter().filter(|s| s.0 == SPREAD).map(|s| s.2).collect();
        assert_eq!(spread, [1, 2, 4, 8]);
        assert!(usual.contains(&(OWN_CORE, 8, 8)));
    }

    #[test]
    fn the_writer_has_a_cpu_of_its_own_but_in_spread() {
        let (settings, left_out) = settings(&[3, 5, 7], &[], &[], &FULL).unwrap();
        assert!(left_out.is_empty());
        for setting in settings {
            assert_eq!(setting.writer_cpu, 7);
            assert_eq!(setting.reader_cpus.contains(&7), setting.scenario == SPREAD, "{setting:?}");
        }
    }

    #[test]
    fn spread_goes_round_robin() {
        let (settings, _) = settings(&[4, 6], &[SPREAD.to_owned()], &[3], &QUICK).unwrap();
        assert_eq!(settings[0].reader_cpus, [4, 6, 4]);
    }

    #[test]
    fn spread_uses_no_more_cpus_than_it_has_readers() {
        let cpus: Vec<usize> = (0..16).collect();
        let (settings, _) = settings(&cpus, &[SPREAD.to_owned()], &[1, 3], &QUICK).unwrap();
        let spread: Vec<(usize, usize)> = settings.iter().map(|s| (s.readers(), s.cores)).collect();
        assert_eq!(spread, [(1, 1), (3, 2), (3, 3)]);
    }

    #[test]
    fn one_cpu_leaves_out_what_it_cannot_hold() {
        let (settings, left_out) = settings(&[0], &[], &[], &USUAL).unwrap();
        assert_eq!(settings.iter().map(|s| s.scenario).collect::<Vec<_>>(), [SPREAD]);
        assert_eq!(left_out.len(), 2);
    }

    #[test]
    fn a_scenario_asked_for_by_name_must_fit() {
        let asked = [OWN_CORE.to_owned()];
        let message = settings(&[0, 1], &asked, &[8], &USUAL).unwrap_err().to_string();
        assert!(message.contains("own-core needs 9 CPUs"), "{message}");
        assert!(settings(&[0, 1], &asked, &[1, 8], &USUAL).is_ok(), "the fitting number was enough");
    }
}
