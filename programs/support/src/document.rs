//! Reads XML documents.

use anyhow::{Context, Result, anyhow, bail, ensure};
use chrono::{DateTime, Datelike, NaiveDateTime, SubsecRound, Timelike};
use xml::ParserConfig;
use xml::name::OwnedName;
use xml::reader::XmlEvent;

/// Returns, for each name, the text of the root's first child with that name (as written, with its prefix). Reads the
/// whole document, which must be well-formed.
pub fn first_children<const N: usize>(xml: &[u8], names: [&str; N]) -> Result<[String; N]> {
    let mut reader = ParserConfig::new()
        .allow_multiple_root_elements(false)
        .create_reader(xml);
    let mut texts = [const { None }; N];
    let mut wanted: Option<usize> = None;
    let mut depth = 0_usize;
    loop {
        match reader.next().context("it is not well-formed XML")? {
            XmlEvent::StartElement { name, .. } => {
                if let Some(index) = wanted {
                    bail!("<{}> holds other elements", names[index]);
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

/// Reads an `xs:date` or `xs:dateTime` as a time in UTC, in whole microseconds, which all databases can store.
pub fn timestamp(text: &str) -> Result<NaiveDateTime> {
    let text = text.trim();
    let dated = match (
        text.contains('T'),
        text.split_at_checked("2020-10-01".len()),
    ) {
        (false, Some((date, zone))) => format!("{date}T00:00:00{zone}"),
        _ => text.to_owned(),
    };
    let moment = DateTime::parse_from_rfc3339(&dated)
        .map(|moment| moment.naive_utc())
        .or_else(|_| NaiveDateTime::parse_from_str(&dated, "%Y-%m-%dT%H:%M:%S%.f"))
        .ok()
        // A leap second, which neither has.
        .filter(|moment| moment.nanosecond() < 1_000_000_000)
        .ok_or_else(|| anyhow!("{text:?} is neither an xs:date nor an xs:dateTime"))?;
    ensure!(
        (1000..=9999).contains(&moment.year()),
        "{text:?} is outside of the years 1000 to 9999"
    );
    Ok(moment.trunc_subsecs(6))
}

#[cfg(test)]
mod tests {
    use super::*;

    const INVOICE: &str = r#"<?xml version="1.0"?>
        <Invoice xmlns="urn:i" xmlns:cbc="urn:c" xmlns:cac="urn:a">
          <cac:Reference><cbc:ID>nested</cbc:ID></cac:Reference>
          <ID>other name</ID>
          <cbc:ID scheme="x">A &amp; <![CDATA[<B>]]><!-- no --> &#x43;</cbc:ID>
          <cbc:ID>second</cbc:ID>
          <cbc:IssueDate>2020-10-01</cbc:IssueDate>
        </Invoice>"#;

    #[test]
    fn finds_the_first_children_of_the_root_by_qualified_name() {
        let [id, date] = first_children(INVOICE.as_bytes(), ["cbc:ID", "cbc:IssueDate"]).unwrap();
        assert_eq!(id, "A & <B> C");
        assert_eq!(date, "2020-10-01");
    }

    #[test]
    fn refuses_elements_in_a_wanted_one_and_says_where_a_document_is_not_well_formed() {
        for (xml, reason) in [
            ("<r><id>1<b/></id></r>", "<id> holds other elements"),
            ("<r/><r/>", "it is not well-formed XML: 1:5 "),
            (
                "<r><id>1</id>\n<at>2</at>",
                "it is not well-formed XML: 2:11 ",
            ),
        ] {
            let refusal = first_children(xml.as_bytes(), ["id", "at"]).unwrap_err();
            assert!(format!("{refusal:#}").starts_with(reason), "{refusal:#}");
        }
    }

    #[test]
    fn reads_dates_and_times_with_and_without_zone_to_the_microsecond() {
        for (text, read) in [
            (" 2020-10-01\n", "2020-10-01 00:00:00"),
            ("2020-10-01+02:00", "2020-09-30 22:00:00"),
            ("2020-10-01Z", "2020-10-01 00:00:00"),
            ("2020-10-01T12:30:00", "2020-10-01 12:30:00"),
            ("2020-10-01T12:30:00-01:00", "2020-10-01 13:30:00"),
            ("2020-10-01T12:30:00.1234567Z", "2020-10-01 12:30:00.123456"),
        ] {
            assert_eq!(timestamp(text).unwrap().to_string(), read);
        }
    }

    #[test]
    fn refuses_what_is_no_timestamp() {
        for text in [
            "",
            "yesterday",
            "2020-13-01",
            "01/10/2020",
            "2020-10-01T25:00:00",
            "2020-10-01T23:59:60Z",
            "2020-10-01T23:59:60",
            "zehnter Oktöber",
        ] {
            let refusal = timestamp(text).unwrap_err().to_string();
            assert!(
                refusal.ends_with("is neither an xs:date nor an xs:dateTime"),
                "{refusal}"
            );
        }
        assert!(timestamp("0999-12-31").is_err());
    }
}
