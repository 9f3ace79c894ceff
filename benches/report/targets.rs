//! The targets, and whether they are met.

use anyhow::Result;
use serde_json::{Value, json};

use crate::common_options::{CommonOptions, Part};
use crate::samples::Figure;

/// What a part found: figures for `--json`, and targets to judge by them.
#[derive(Default)]
pub(crate) struct Findings {
    pub(crate) figures: Vec<Value>,
    pub(crate) targets: Vec<Target>,
}

impl Findings {
    pub(crate) fn add(&mut self, other: Self) {
        self.figures.extend(other.figures);
        self.targets.extend(other.targets);
    }

    /// Prints the targets and whether they are met, and everything as JSON if the user asks for it. `judged` says what is
    /// special about some of the targets.
    pub(crate) fn report<P: Part>(
        &self,
        options: &CommonOptions<P>,
        versions: &[String],
        judged: &str,
    ) -> Result<()> {
        print(&self.targets, options.quick, judged);
        let targets = self.targets.iter().map(|it| it.json(options.quick));
        options.print_json(json!({
            "versions": versions,
            "figures": self.figures,
            "targets": targets.collect::<Vec<_>>(),
        }))
    }
}

#[derive(Clone, Copy, Debug)]
pub(crate) enum Limit {
    AtMost(f64),
    AtLeast(f64),
}

pub(crate) struct Target {
    pub(crate) text: String,
    pub(crate) ratio: Figure,
    pub(crate) limit: Limit,
}

impl Target {
    fn limit(&self) -> String {
        match self.limit {
            Limit::AtMost(limit) => format!("≤ {limit:.2}"),
            Limit::AtLeast(limit) => format!("≥ {limit:.2}"),
        }
    }

    fn verdict(&self, quick: bool) -> &'static str {
        let met = match self.limit {
            Limit::AtMost(limit) => self.ratio.value <= limit,
            Limit::AtLeast(limit) => self.ratio.value >= limit,
        };
        match (quick, met) {
            (true, _) => "not judged",
            (false, true) => "PASS",
            (false, false) => "MISS",
        }
    }

    fn json(&self, quick: bool) -> Value {
        json!({
            "target": self.text,
            "ratio": self.ratio.value,
            "least": self.ratio.least,
            "greatest": self.ratio.greatest,
            "limit": self.limit(),
            "verdict": self.verdict(quick),
        })
    }
}

/// As a table in Markdown.
fn print(targets: &[Target], quick: bool, judged: &str) {
    println!("\n## Targets\n");
    println!("The range is that of the same ratio in each fifth of the rounds. {judged}\n");
    println!("| target | ratio | range | limit | |");
    println!("|---|---|---|---|---|");
    for target in targets {
        let Figure {
            value,
            least,
            greatest,
        } = target.ratio;
        println!(
            "| {} | {value:.2} | {least:.2} to {greatest:.2} | {} | {} |",
            target.text,
            target.limit(),
            target.verdict(quick)
        );
    }
}
