//! Reads the time of change of an XML document.

use chrono::DateTime;
use xml::ParserConfig;
use xml::reader::XmlEvent;

/// Why a document is refused.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Refusal {
    /// It is not XML.
    Malformed(String),
    /// It is XML without a usable time of change.
    Untimed(String),
    /// It has a document type, which can declare entities that expand without end, or that name files.
    DocumentType,
}

/// The attribute of the root with the time of change.
const ATTRIBUTE: &str = "changed";

/// Reads the attribute `changed` of the root, an RFC 3339 time, as microseconds since 1970. Reads the whole document,
/// which must be well-formed.
pub(crate) fn changed_us(xml: &str) -> Result<i64, Refusal> {
    let parser = ParserConfig::new().allow_multiple_root_elements(false);
    let mut root = None;
    for event in parser.create_reader(xml.as_bytes()) {
        match event {
            Ok(XmlEvent::Doctype { .. }) => return Err(Refusal::DocumentType),
            Ok(XmlEvent::StartElement { attributes, .. }) if root.is_none() => {
                root = Some(attributes);
            }
            Ok(_) => {}
            Err(error) => {
                let reason = format!("the body is not well-formed XML: {error}");
                return Err(Refusal::Malformed(reason));
            }
        }
    }
    let mut attributes = root.into_iter().flatten();
    let changed = attributes.find(|it| it.name.borrow().to_repr() == ATTRIBUTE);
    let text = changed.map(|changed| changed.value).ok_or_else(|| {
        Refusal::Untimed(format!("the root element has no attribute {ATTRIBUTE:?}"))
    })?;
    let time = DateTime::parse_from_rfc3339(text.trim()).map_err(|_| {
        Refusal::Untimed(format!(
            "{ATTRIBUTE}={text:?} is no time as 2026-01-31T12:00:00Z"
        ))
    })?;
    Ok(time.timestamp_micros())
}

#[cfg(test)]
mod tests {
    use super::{Refusal, changed_us};

    #[test]
    fn reads_the_time_of_the_root() {
        let whole =
            "<?xml version='1.0'?><a changed='1970-01-01T00:00:01.5Z'><b changed='x'>&amp;</b></a>";
        assert_eq!(changed_us(whole), Ok(1_500_000));
        let east = "<a changed='1970-01-01T01:00:00+01:00'/>";
        assert_eq!(changed_us(east), Ok(0));
    }

    #[test]
    fn refuses_what_is_not_xml() {
        for text in [
            "",
            "hello",
            "<a>",
            "<a></b>",
            "<a/><b/>",
            "<a/>text",
            "<a>&who;</a>",
        ] {
            let refused = changed_us(text);
            assert!(
                matches!(refused, Err(Refusal::Malformed(_))),
                "{text}: {refused:?}"
            );
        }
    }

    #[test]
    fn refuses_a_document_type() {
        let text = "<!DOCTYPE a [<!ENTITY b 'c'>]><a changed='1970-01-01T00:00:00Z'/>";
        assert_eq!(changed_us(text), Err(Refusal::DocumentType));
    }

    #[test]
    fn refuses_a_root_without_a_time() {
        for text in [
            "<a/>",
            "<a changed='yesterday'/>",
            "<a><b changed='1970-01-01T00:00:00Z'/></a>",
        ] {
            let refused = changed_us(text);
            assert!(
                matches!(refused, Err(Refusal::Untimed(_))),
                "{text}: {refused:?}"
            );
        }
    }
}
