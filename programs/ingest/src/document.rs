//! A document: its id, its version, and its text.

use anyhow::{Context, Result, anyhow, bail, ensure};
use chrono::{DateTime, Datelike, NaiveDateTime, TimeDelta, Timelike};
use diesel::Queryable;
use diesel_locks::ObjectId;
use sha2::{Digest as _, Sha256};
use xml::ParserConfig;
use xml::common::{Position, TextPosition};
use xml::name::OwnedName;
use xml::reader::{Error, ErrorKind, XmlEvent};

use crate::source::Elements;

/// The SHA-256 of a document.
pub(crate) type Digest = Vec<u8>;

/// Determines which of two documents with the same id is newer. The order is total: by timestamp, then by digest, so
/// that the result does not depend on the order of arrival.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Queryable)]
pub(crate) struct Version {
    pub(crate) timestamp: NaiveDateTime,
    pub(crate) digest: Digest,
}

#[derive(Clone, Debug)]
pub(crate) struct Document {
    pub(crate) id: String,
    pub(crate) version: Version,
    pub(crate) body: Vec<u8>,
}

impl Document {
    /// Reads a document. An error is the reason to reject it.
    pub(crate) fn read(body: Vec<u8>, elements: &Elements) -> Result<Self> {
        let [id, at] = first_children(&body, [&elements.id, &elements.timestamp])?;
        ObjectId::from(&id).validate()?;
        let timestamp =
            timestamp(&at).with_context(|| format!("<{}> can't be used", elements.timestamp))?;
        let digest = Sha256::digest(&body).to_vec();
        Ok(Self {
            id,
            version: Version { timestamp, digest },
            body,
        })
    }
}

/// Returns, for each name, the text of the root's first child with that name (as written, with its prefix). Reads the
/// whole document, which must be well-formed.
fn first_children<const N: usize>(xml: &[u8], names: [&str; N]) -> Result<[String; N]> {
    let mut reader = ParserConfig::new()
        .allow_multiple_root_elements(false)
        .create_reader(xml);
    let mut texts = [const { None }; N];
    let mut wanted: Option<usize> = None;
    let mut depth = 0_usize;
    loop {
        match reader.next().map_err(|error| not_well_formed(&error))? {
            XmlEvent::StartElement { name, .. } => {
                if let Some(index) = wanted {
                    let place = place(reader.position());
                    bail!("<{}> holds other elements, {place}", names[index]);
                }
                depth += 1;
                wanted = (depth == 2)
                    .then(|| names.iter().position(|wanted| is_written(&name, wanted)))
                    .flatten()
                    .filter(|index| texts[*index].is_none());
                if let Some(index) = wanted {
                    texts[index] = Some(String::new());
                }
            }
            XmlEvent::EndElement { .. } => {
                depth -= 1;
                wanted = None;
            }
            XmlEvent::Characters(part) | XmlEvent::CData(part) | XmlEvent::Whitespace(part) => {
                if let Some(text) = wanted.and_then(|index| texts[index].as_mut()) {
                    text.push_str(&part);
                }
            }
            XmlEvent::EndDocument => break,
            _ => {}
        }
    }
    for (name, text) in names.iter().zip(&texts) {
        ensure!(text.is_some(), "the root has no child <{name}>");
    }
    Ok(texts.map(Option::unwrap_or_default))
}

/// Whether the name is written so, with its prefix.
fn is_written(name: &OwnedName, wanted: &str) -> bool {
    let (prefix, local_name) = match wanted.split_once(':') {
        Some((prefix, local_name)) => (Some(prefix), local_name),
        None => (None, wanted),
    };
    name.prefix.as_deref() == prefix && name.local_name == local_name
}

fn not_well_formed(error: &Error) -> anyhow::Error {
    let place = place(error.position());
    let reason = match error.kind() {
        ErrorKind::Syntax(reason) => reason.lines().next().unwrap_or_default().to_owned(),
        ErrorKind::Io(error) => error.to_string(),
        ErrorKind::Utf8(error) => error.to_string(),
        _ => "unexpected end".to_owned(),
    };
    anyhow!("it is not well-formed XML, {place}: {reason}")
}

fn place(position: TextPosition) -> String {
    // They begin with 0.
    format!("line {}, column {}", position.row + 1, position.column + 1)
}

/// Reads an `xs:date` or `xs:dateTime` as a time in UTC, in whole microseconds, which all databases can store.
fn timestamp(text: &str) -> Result<NaiveDateTime> {
    let text = text.trim();
    let dated = match (
        text.contains('T'),
        text.split_at_checked("2020-10-01".len()),
    ) {
        (false, Some((date, zone))) => format!("{date}T00:00:00{zone}"),
        _ => text.to_owned(),
    };
    let (dated, more) = match end_of_day(&dated) {
        Some(begin) => (begin, TimeDelta::days(1)),
        None => (dated, TimeDelta::zero()),
    };
    let moment = DateTime::parse_from_rfc3339(&dated)
        .map(|moment| moment.naive_utc())
        .or_else(|_| NaiveDateTime::parse_from_str(&dated, "%Y-%m-%dT%H:%M:%S%.f"))
        .ok()
        // A leap second, which neither has.
        .filter(|moment| moment.nanosecond() < 1_000_000_000)
        .and_then(|moment| moment.checked_add_signed(more))
        .ok_or_else(|| anyhow!("{text:?} is neither an xs:date nor an xs:dateTime"))?;
    ensure!(
        (1000..=9999).contains(&moment.year()),
        "{text:?} is outside of the years 1000 to 9999"
    );
    DateTime::from_timestamp_micros(moment.and_utc().timestamp_micros())
        .map(|moment| moment.naive_utc())
        .with_context(|| format!("{text:?} is out of range"))
}

/// The begin of the day, if this is its end, 24:00:00.
fn end_of_day(dated: &str) -> Option<String> {
    let (date, time) = dated.split_once('T')?;
    let rest = time.strip_prefix("24:00:00")?;
    let zone = match rest.strip_prefix('.') {
        Some(fraction) => fraction.strip_prefix('0')?.trim_start_matches('0'),
        None => rest,
    };
    (!zone.starts_with(|c: char| c.is_ascii_digit())).then(|| format!("{date}T00:00:00{zone}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read_bytes(body: &[u8]) -> Result<Document> {
        let elements = Elements {
            id: "id".to_owned(),
            timestamp: "at".to_owned(),
        };
        Document::read(body.to_vec(), &elements)
    }

    fn read(id: &str, timestamp: &str) -> Result<Document> {
        read_bytes(format!("<r><id>{id}</id><at>{timestamp}</at></r>").as_bytes())
    }

    #[test]
    fn documents_are_read_in_the_encoding_that_they_declare() {
        for (body, id) in [
            (&b"\xef\xbb\xbf<r><id>\xc3\xa9</id><at>2020-10-01</at></r>"[..], "\u{e9}"),
            (
                b"<?xml version='1.0' encoding='ISO-8859-1'?><r><id>\xe9</id><at>2020-10-01</at></r>",
                "\u{e9}",
            ),
            (
                b"<!DOCTYPE r [<!ENTITY who 'me'>]><r><id>&who;</id><at>2020-10-01</at></r>",
                "me",
            ),
        ] {
            assert_eq!(read_bytes(body).unwrap().id, id);
        }
        for body in [
            &b"<r><id>a\xff</id><at>2020-10-01</at></r>"[..],
            b"<?xml version='1.0' encoding='klingon'?><r><id>a</id><at>2020-10-01</at></r>",
            b"<r><id>&who;</id><at>2020-10-01</at></r>",
            b"<r><id>a</id><at>2020-10-01</at></r><r/>",
        ] {
            assert!(read_bytes(body).is_err(), "{body:?}");
        }
    }

    #[test]
    fn takes_ids_as_they_stand() {
        for id in [
            "061828591|01/10/2020|0|1.1|0|1",
            "018304 / 28865",
            " a",
            "á",
            &"ß".repeat(255),
        ] {
            assert_eq!(read(id, "2020-10-01").unwrap().id, id);
        }
    }

    #[test]
    fn newer_is_the_later_timestamp_then_the_greater_digest() {
        let version = |day: &str, digest: u8| Version {
            timestamp: timestamp(day).unwrap(),
            digest: vec![digest; 32],
        };
        assert!(version("2020-10-02", 1) > version("2020-10-01", 9));
        assert!(version("2020-10-01", 9) > version("2020-10-01", 1));
        assert_eq!(version("2020-10-01", 1), version("2020-10-01", 1));
    }

    const INVOICE: &str = r#"<?xml version="1.0"?>
        <Invoice xmlns="urn:i" xmlns:cbc="urn:c" xmlns:cac="urn:a">
          <cac:Reference><cbc:ID>nested</cbc:ID></cac:Reference>
          <ID>other name</ID>
          <cbc:ID scheme="x">A &amp; <![CDATA[<B>]]><!-- no --> &#x43;</cbc:ID>
          <cbc:ID>second</cbc:ID>
          <cbc:IssueDate>2020-10-01</cbc:IssueDate>
        </Invoice>"#;

    fn refusal_of_xml(xml: &str) -> String {
        format!(
            "{:#}",
            first_children(xml.as_bytes(), ["id", "at"]).unwrap_err()
        )
    }

    #[test]
    fn finds_the_first_children_of_the_root_by_qualified_name() {
        let [id, date] = first_children(INVOICE.as_bytes(), ["cbc:ID", "cbc:IssueDate"]).unwrap();
        assert_eq!(id, "A & <B> C");
        assert_eq!(date, "2020-10-01");
    }

    #[test]
    fn keeps_spaces_and_takes_line_ends_as_xml_does() {
        let [id, at] = first_children(b"<r><id> a\r\nb </id><at/></r>", ["id", "at"]).unwrap();
        assert_eq!((id.as_str(), at.as_str()), (" a\nb ", ""));
        let [id, at] = first_children(b"<r><id> \n</id><at/></r>", ["id", "at"]).unwrap();
        assert_eq!((id.as_str(), at.as_str()), (" \n", ""));
    }

    #[test]
    fn refuses_elements_inside_of_a_wanted_one() {
        assert_eq!(
            refusal_of_xml("<r>\n<id>1<b/></id><at>2</at></r>"),
            "<id> holds other elements, line 2, column 6"
        );
    }

    #[test]
    fn says_where_a_document_is_not_well_formed() {
        for (xml, place) in [
            ("", "line 1, column 1"),
            ("<r>\n <id>\x01</id><at>2</at></r>", "line 2, column 6"),
            ("<r>\r\n\r\n<é/>\u{fffe}</r>", "line 3, column 5"),
            ("<r><id>1</id>\n<at>2</at>", "line 2, column 11"),
        ] {
            let refusal = refusal_of_xml(xml);
            let begin = format!("it is not well-formed XML, {place}: ");
            let reason = refusal.strip_prefix(&begin);
            let is_text = |reason: &str| reason.starts_with(char::is_alphabetic);
            assert!(reason.is_some_and(is_text), "{xml:?}: {refusal}");
        }
    }

    fn read_timestamp(text: &str) -> String {
        timestamp(text).map_or_else(|error| error.to_string(), |moment| moment.to_string())
    }

    #[test]
    fn reads_dates_and_times_with_and_without_zone() {
        assert_eq!(read_timestamp("2020-10-01"), "2020-10-01 00:00:00");
        assert_eq!(read_timestamp(" 2020-10-01\n"), "2020-10-01 00:00:00");
        assert_eq!(read_timestamp("2020-10-01+02:00"), "2020-09-30 22:00:00");
        assert_eq!(read_timestamp("2020-10-01Z"), "2020-10-01 00:00:00");
        assert_eq!(read_timestamp("2020-10-01T12:30:00"), "2020-10-01 12:30:00");
        assert_eq!(
            read_timestamp("2020-10-01T12:30:00-01:00"),
            "2020-10-01 13:30:00"
        );
    }

    #[test]
    fn end_of_a_day_is_the_begin_of_the_next() {
        assert_eq!(read_timestamp("2020-12-31T24:00:00"), "2021-01-01 00:00:00");
        assert_eq!(
            read_timestamp("2020-10-01T24:00:00.00Z"),
            "2020-10-02 00:00:00"
        );
        assert_eq!(
            read_timestamp("2020-10-01T24:00:00+02:00"),
            "2020-10-01 22:00:00"
        );
    }

    #[test]
    fn cuts_off_what_is_finer_than_a_microsecond() {
        assert_eq!(
            read_timestamp("2020-10-01T12:30:00.1234567Z"),
            "2020-10-01 12:30:00.123456"
        );
    }

    #[test]
    fn refuses_what_is_no_timestamp() {
        let neither = "is neither an xs:date nor an xs:dateTime";
        for text in [
            "",
            "yesterday",
            "2020-13-01",
            "01/10/2020",
            "2020-10-01T25:00:00",
            "2020-10-01T24:00:01",
            "2020-10-01T24:00:00.5",
            "2020-10-01T24:00:00.05",
            "2020-10-01T24:00:00.",
            "2020-10-01T24:30:00Z",
            "2020-10-01T23:59:60Z",
            "2020-10-01T23:59:60",
            "zehnter Oktöber",
        ] {
            assert_eq!(read_timestamp(text), format!("{text:?} {neither}"));
        }
        assert!(read_timestamp("0999-12-31").contains("years 1000 to 9999"));
    }
}
