//! Writes the warnings of diesel-locks to standard error.

use std::fmt::{Debug, Write};

use anyhow::Result;
use tracing::field::Field;
use tracing::{Event, Level, Subscriber};
use tracing_subscriber::filter::Targets;
use tracing_subscriber::layer::{Context, Layer, SubscriberExt};

/// Writes those of all threads from now on.
pub(crate) fn install() -> Result<()> {
    let of_diesel_locks = Targets::new().with_target("diesel_locks", Level::WARN);
    let warnings = Warnings.with_filter(of_diesel_locks);
    let subscriber = tracing_subscriber::registry().with(warnings);
    Ok(tracing::subscriber::set_global_default(subscriber)?)
}

struct Warnings;

impl<S: Subscriber> Layer<S> for Warnings {
    fn on_event(&self, event: &Event<'_>, _: Context<'_, S>) {
        let mut text = event.metadata().target().to_owned();
        event.record(&mut |field: &Field, value: &dyn Debug| {
            // Writing to a text does not fail.
            let _ = write!(text, " {field}={value:?}");
        });
        // A wait that has timed out is an answer.
        if !text.contains(" outcome=\"timed_out\"") {
            crate::log(&text);
        }
    }
}
