//! Reads the time of change of an XML document.

use chrono::DateTime;
use quick_xml::Reader;
use quick_xml::escape::resolve_xml_entity;
use quick_xml::events::{BytesStart, Event};

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
    let malformed =
        |reason: &str| Refusal::Malformed(format!("the body is not well-formed XML: {reason}"));
    let mut reader = Reader::from_str(xml);
    let mut depth = 0_usize;
    let mut root = None;
    loop {
        let event = reader
            .read_event()
            .map_err(|error| malformed(&error.to_string()))?;
        match event {
            Event::Start(tag) | Event::Empty(tag) if depth == 0 && root.is_some() => {
                return Err(malformed(&format!("<{}> is a second root", tag.name().0)));
            }
            Event::Start(tag) => {
                if depth == 0 {
                    root = Some(attribute(&tag)?);
                }
                depth += 1;
            }
            Event::Empty(tag) if depth == 0 => root = Some(attribute(&tag)?),
            Event::End(_) => depth = depth.saturating_sub(1),
            Event::Text(text) if depth == 0 && !text.trim_ascii().is_empty() => {
                return Err(malformed("text outside of the root element"));
            }
            Event::DocType(_) => return Err(Refusal::DocumentType),
            Event::CData(_) | Event::GeneralRef(_) if depth == 0 => {
                return Err(malformed("text outside of the root element"));
            }
            Event::GeneralRef(reference)
                if !reference.is_char_ref() && resolve_xml_entity(&reference).is_none() =>
            {
                return Err(malformed("an entity that is not XML's own"));
            }
            Event::Eof => break,
            _ => {}
        }
    }
    if depth > 0 {
        return Err(malformed(&format!("{depth} elements are not closed")));
    }
    let text = root.ok_or_else(|| malformed("no root element"))?;
    let text = text.ok_or_else(|| {
        Refusal::Untimed(format!("the root element has no attribute {ATTRIBUTE:?}"))
    })?;
    let time = DateTime::parse_from_rfc3339(text.trim()).map_err(|_| {
        Refusal::Untimed(format!(
            "{ATTRIBUTE}={text:?} is no time as 2026-01-31T12:00:00Z"
        ))
    })?;
    Ok(time.timestamp_micros())
}

fn attribute(root: &BytesStart<'_>) -> Result<Option<String>, Refusal> {
    let malformed =
        |reason: String| Refusal::Malformed(format!("the body is not well-formed XML: {reason}"));
    let mut found = None;
    for attribute in root.attributes() {
        let attribute = attribute.map_err(|error| malformed(error.to_string()))?;
        if attribute.key.0 == ATTRIBUTE {
            found = Some(attribute.value.to_string());
        }
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::{Refusal, changed_us};

    #[test]
    fn reads_the_time_of_the_root() {
        let whole =
            "<?xml version='1.0'?><a changed='1970-01-01T00:00:01.5Z'><b changed='x'>&amp;</b></a>";
        assert_eq!(changed_us(whole), Ok(1_500_000));
        assert_eq!(
            changed_us("<a changed='1970-01-01T01:00:00+01:00'/>"),
            Ok(0)
        );
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
            "<a x='1' x='2'/>",
            "<a changed='1970-01-01T00:00:00Z'>&who;</a>",
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
        for doctype in [
            "<!DOCTYPE a>",
            "<!DOCTYPE a SYSTEM 'file:///etc/passwd'>",
            "<!DOCTYPE a [<!ENTITY b 'c'><!ENTITY d '&b;&b;'>]>",
        ] {
            let text = format!("{doctype}<a changed='1970-01-01T00:00:00Z'/>");
            assert_eq!(changed_us(&text), Err(Refusal::DocumentType), "{doctype}");
        }
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
