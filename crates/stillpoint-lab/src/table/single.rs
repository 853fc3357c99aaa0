//! One contender at a time, in a new process for each round, so that no memory of other tables is left.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use stillpoint_harness::experiment::child::{self, OnInterrupt, Order};
use stillpoint_harness::experiment::control::{contender, with_control};
use stillpoint_harness::experiment::rounds::{Part, in_parts, in_turns};
use stillpoint_harness::output::json::Row;
use stillpoint_harness::output::progress::Progress;
use stillpoint_peers::table::{Dash, Map, Papaya, Scc, TableKey, TableValue};

use super::ours::Ours;
use super::{Plan, growth, mixes, service};

/// The contenders of growth and of the mixes. rte_hash is not one: it does not grow, and has neither keys of any length nor values of any size.
const CONTENDERS: &[&str] = &["stillpoint/table", "papaya", "dashmap", "scc"];

/// The figures of one contender in one round.
pub(super) type Figures = BTreeMap<String, f64>;

/// A setting of the measurement.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct Setting {
    /// Whether keys are texts of 16 characters with values of 64 bytes, instead of numbers.
    pub(super) texts: bool,
    pub(super) work: Work,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) enum Work {
    /// A table that grows from empty, and then loses half of its entries.
    Growth { entries: usize },
    /// The mix of that name.
    Mix { mix: String, threads: usize, capacity: usize },
    /// A web service's map.
    Service(service::Setting),
}

impl Setting {
    /// The contenders that can be measured.
    pub(super) fn contenders(&self) -> &'static [&'static str] {
        match self.work {
            Work::Service(_) => service::CONTENDERS,
            _ => CONTENDERS,
        }
    }

    /// The keys and values of a table that grows, in bytes; tables of mixes are smaller.
    pub(super) fn least_bytes(&self) -> usize {
        let entry = if self.texts { 16 + 64 } else { 8 + 8 };
        match self.work {
            Work::Growth { entries } => entries * entry,
            Work::Mix { .. } | Work::Service(_) => 0,
        }
    }

    /// A row without figures.
    pub(super) fn row(&self, contender: &str) -> Row {
        let (keys, value_bytes) = if self.texts { ("String", 64) } else { ("u64", 8) };
        let row = match &self.work {
            Work::Growth { entries } => Row::new("table", "growth", contender).with("entries", *entries),
            Work::Mix { mix, threads, capacity } => mixes::row(contender, mix, *threads, *capacity),
            Work::Service(setting) => setting.row(contender),
        };
        row.with("keys", keys).with("value_bytes", value_bytes).with("hasher", "foldhash")
    }
}

/// Gets one contender's figures from a child process.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Single {
    contender: String,
    setting: Setting,
    cpus: Vec<usize>,
    seed: u64,
}

impl Order for Single {
    const VARIABLE: &'static str = "STILLPOINT_BENCH_SINGLE_TABLE";
    const WORK: &'static str = "measures one table";
    const ON_INTERRUPT: OnInterrupt = OnInterrupt::End;

    type Answer = Figures;

    fn obey(self) -> Result<Figures, String> {
        match (&self.setting.work, self.setting.texts) {
            (Work::Service(setting), _) => service::measure(&self.contender, setting, &self.cpus, self.seed),
            (_, false) => self.with_pairs::<u64, u64>(),
            (_, true) => self.with_pairs::<String, [u64; 8]>(),
        }
    }
}

impl Single {
    fn with_pairs<K: TableKey, V: TableValue>(&self) -> Result<Figures, String> {
        match contender(&self.contender) {
            "stillpoint/table" => self.with_map::<K, V, Ours<K, V>>(),
            "papaya" => self.with_map::<K, V, Papaya<K, V>>(),
            "dashmap" => self.with_map::<K, V, Dash<K, V>>(),
            "scc" => self.with_map::<K, V, Scc<K, V>>(),
            name => Err(format!("no contender {name}")),
        }
    }

    fn with_map<K: TableKey, V: TableValue, M: Map<K, V>>(&self) -> Result<Figures, String> {
        match &self.setting.work {
            Work::Growth { entries } => growth::measure::<K, V, M>(*entries, &self.cpus),
            Work::Mix { mix, threads, capacity } => {
                mixes::measure::<K, V, M>(mix, *capacity, *threads, &self.cpus, self.seed)
            }
            Work::Service(_) => Err("a service has keys of its own".to_owned()),
        }
    }
}

/// The rows of all settings.
pub(super) fn run(plan: &Plan) -> Vec<Row> {
    let part = |setting: &Setting| {
        let here = plan.contenders.iter().filter(|name| setting.contenders().contains(&name.as_str()));
        Part { setting: setting.clone(), contenders: with_control(here.cloned().collect()) }
    };
    let parts: Vec<Part<Setting, String>> = plan.singles.iter().map(part).collect();
    let rows: usize = parts.iter().map(|part| part.contenders.len()).sum();
    let progress = Progress::new(rows * plan.rounds as usize);
    let measure = |Part { setting, contenders }: &Part<Setting, String>| {
        progress.stage(&format!("table: {}", caption(&setting.row(""))));
        let of_round = |contender: &String, &seed: &u64| {
            let (contender, setting) = (contender.clone(), setting.clone());
            let order = Single { contender, setting, cpus: plan.cpus.clone(), seed };
            let figures = child::ask(&order).map_err(|stop| stop.to_string());
            progress.step();
            figures?.ok_or_else(|| "it was cut short".to_owned())
        };
        let rounds = in_turns(contenders, plan.rounds, |round| plan.seed + round as u64, of_round);
        let row = |(name, rounds): (&String, Result<Vec<Figures>, String>)| {
            let row = setting.row(name).with("seed", plan.seed).with("rounds", plan.rounds);
            row.measured(rounds, |row, rounds| {
                for metric in rounds.iter().flat_map(Figures::keys) {
                    let of = |round: &Figures| round.get(metric).copied().unwrap_or_default();
                    let digits = if metric == "foreign_cpus" { 3 } else { 1 };
                    row.put_median(metric, digits, &rounds, of);
                    row.put_spread(metric, rounds.iter().map(of));
                }
            })
        };
        rounds.into_iter().map(row).collect()
    };
    in_parts(&parts, measure)
}

/// The setting of a row that is measured in a separate process, in words.
fn caption(row: &Row) -> String {
    let text = |name: &str| {
        row.params.get(name).map_or_else(String::new, |value| value.to_string().replace('"', ""))
    };
    let pairs = format!("keys {}, values of {} bytes", text("keys"), text("value_bytes"));
    match row.scenario.as_str() {
        service::SERVICE => {
            let [mix, entries, threads] = ["mix", "entries", "threads"].map(text);
            format!("a service, {mix}, {entries} {pairs}, threads: {threads}")
        }
        "growth" => format!("growth from 0 to {} entries, {pairs}", text("entries")),
        harness => format!("{harness}, {pairs}, capacity {}, threads: {}", text("capacity"), text("threads")),
    }
}
