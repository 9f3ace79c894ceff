//! The warnings of cancelling, which the crate records by `tracing`.

use std::fmt::{Debug, Write};

use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tracing::field::{Field, Visit};
use tracing::{Event, Level, Subscriber};
use tracing_subscriber::layer::{Context, Layer, SubscriberExt};

/// Receives the warnings of all threads from now on, with their fields. May be called once in a process.
pub(crate) fn record() -> UnboundedReceiver<String> {
    let (sender, receiver) = unbounded_channel();
    let subscriber = tracing_subscriber::registry().with(Warnings(sender));
    tracing::subscriber::set_global_default(subscriber).expect("the only one");
    receiver
}

struct Warnings(UnboundedSender<String>);

impl<S: Subscriber> Layer<S> for Warnings {
    fn on_event(&self, event: &Event<'_>, _: Context<'_, S>) {
        let metadata = event.metadata();
        if metadata.target() == "diesel_locks::cancel" && *metadata.level() == Level::WARN {
            let mut text = Text::default();
            event.record(&mut text);
            // The test may have ended.
            let _ = self.0.send(text.0);
        }
    }
}

#[derive(Default)]
struct Text(String);

impl Visit for Text {
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        write!(self.0, "{}={value:?} ", field.name()).expect("a string");
    }
}
