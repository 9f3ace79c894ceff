//! Reads the text of certain elements of an XML document.

use ::xml::common::{Position, TextPosition};
use ::xml::name::OwnedName;
use ::xml::reader::{Error, ErrorKind, XmlEvent};
use ::xml::{Encoding, ParserConfig};
use anyhow::{Result, anyhow, bail, ensure};

/// Returns, for each name, the text of the root's first child with that name (as written, with its prefix). Reads the
/// whole document, which must be well-formed.
pub(crate) fn first_children<const N: usize>(xml: &str, names: [&str; N]) -> Result<[String; N]> {
    let mut reader = ParserConfig::new()
        .allow_multiple_root_elements(false)
        // The text is decoded.
        .override_encoding(Some(Encoding::Utf8))
        .ignore_invalid_encoding_declarations(true)
        .create_reader(xml.as_bytes());
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
        ErrorKind::Syntax(reason) => reason.lines().next().unwrap_or_default(),
        // A text has neither errors of reading nor of UTF-8.
        _ => "unexpected end",
    };
    anyhow!("it is not well-formed XML, {place}: {reason}")
}

fn place(position: TextPosition) -> String {
    // They begin with 0.
    format!("line {}, column {}", position.row + 1, position.column + 1)
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

    fn refusal(xml: &str) -> String {
        format!("{:#}", first_children(xml, ["id", "at"]).unwrap_err())
    }

    #[test]
    fn finds_the_first_children_of_the_root_by_qualified_name() {
        let [id, date] = first_children(INVOICE, ["cbc:ID", "cbc:IssueDate"]).unwrap();
        assert_eq!(id, "A & <B> C");
        assert_eq!(date, "2020-10-01");
    }

    #[test]
    fn keeps_spaces_and_takes_line_ends_as_xml_does() {
        let [id, at] = first_children("<r><id> a\r\nb </id><at/></r>", ["id", "at"]).unwrap();
        assert_eq!((id.as_str(), at.as_str()), (" a\nb ", ""));
        let [id, at] = first_children("<r><id> \n</id><at/></r>", ["id", "at"]).unwrap();
        assert_eq!((id.as_str(), at.as_str()), (" \n", ""));
    }

    #[test]
    fn says_which_element_is_missing() {
        assert_eq!(refusal("<r><id>1</id></r>"), "the root has no child <at>");
        assert_eq!(refusal("<id>1</id>"), "the root has no child <id>");
    }

    #[test]
    fn refuses_elements_inside_of_a_wanted_one() {
        assert_eq!(
            refusal("<r>\n<id>1<b/></id><at>2</at></r>"),
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
            let refusal = refusal(xml);
            let begin = format!("it is not well-formed XML, {place}: ");
            let reason = refusal.strip_prefix(&begin);
            let is_text = |reason: &str| reason.starts_with(char::is_alphabetic);
            assert!(reason.is_some_and(is_text), "{xml:?}: {refusal}");
        }
    }
}
