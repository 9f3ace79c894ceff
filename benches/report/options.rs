//! The options that the benchmarks with a report have in common.

use std::env;
use std::thread;

use anyhow::{Context, Result, bail};
use serde_json::{Map, Value, json};

use crate::support::engine_filter::{Engine, selected_engines};

/// The parts of a benchmark, by their names in `--only`.
pub(crate) trait Part: Copy + PartialEq + 'static {
    const NAMES: &'static [(&'static str, Self)];
}

/// The value of an option.
pub(crate) type NextValue<'a> = &'a mut dyn FnMut() -> Result<String>;

pub(crate) struct CommonOptions<P> {
    pub(crate) backends: Vec<Engine>,
    parts: Vec<P>,
    pub(crate) rounds: Option<usize>,
    pub(crate) quick: bool,
    pub(crate) json: bool,
}

impl<P: Part> CommonOptions<P> {
    /// Parses the command line. Prints `help` and returns `None` if the user asks for it.
    ///
    /// `own` gets each option that this type does not have, and returns whether the benchmark has it.
    pub(crate) fn from_arguments(
        help: &str,
        mut own: impl FnMut(&str, NextValue<'_>) -> Result<bool>,
    ) -> Result<Option<Self>> {
        let mut arguments = env::args().skip(1);
        let mut backends = None;
        let mut parts: Vec<P> = P::NAMES.iter().map(|(_, part)| *part).collect();
        let mut rounds = None;
        let mut quick = false;
        let mut json = false;
        while let Some(argument) = arguments.next() {
            let mut value = || {
                arguments
                    .next()
                    .with_context(|| format!("{argument} needs a value"))
            };
            match argument.as_str() {
                "--backends" => backends = Some(value()?),
                "--only" => parts = value()?.split(',').map(parse).collect::<Result<_>>()?,
                "--rounds" => rounds = Some(value()?.parse()?),
                "--quick" => quick = true,
                "--json" => json = true,
                "--help" | "-h" => {
                    print!("{help}");
                    return Ok(None);
                }
                // From `cargo bench`.
                "--bench" => {}
                other => {
                    if !own(other, &mut value)? {
                        bail!("no option {other}\n\n{help}");
                    }
                }
            }
        }
        Ok(Some(Self {
            backends: selected_engines(backends.as_deref())?,
            parts,
            rounds,
            quick,
            json,
        }))
    }

    pub(crate) fn has(&self, part: P) -> bool {
        self.parts.contains(&part)
    }

    pub(crate) fn quick_or<T>(&self, quick: T, full: T) -> T {
        if self.quick { quick } else { full }
    }

    /// A sentence for the report that is no measurement.
    pub(crate) fn remark(&self) -> &'static str {
        self.quick_or(" `--quick`: too short to judge by.", "")
    }

    /// Prints all figures on one line, if the user asks for them.
    pub(crate) fn print_json(&self, own: Value) -> Result<()> {
        if !self.json {
            return Ok(());
        }
        let mut all = Map::new();
        all.insert("cpus".into(), thread::available_parallelism()?.get().into());
        all.insert("quick".into(), json!(self.quick));
        if let Value::Object(own) = own {
            all.extend(own);
        }
        println!("{}", Value::Object(all));
        Ok(())
    }
}

fn parse<P: Part>(name: &str) -> Result<P> {
    let known = P::NAMES.iter().find(|(known, _)| *known == name);
    known.map(|(_, part)| *part).with_context(|| {
        let names: Vec<_> = P::NAMES.iter().map(|(name, _)| *name).collect();
        format!("no part {name:?}; there are {}", names.join(", "))
    })
}
