//! Reads the text of certain elements of an XML document.

use anyhow::{Context, Result, bail, ensure};
use quick_xml::NsReader;
use quick_xml::escape::resolve_xml_entity;
use quick_xml::events::{BytesRef, BytesStart, Event};
use quick_xml::name::ResolveResult;

/// Returns, for each name, the text of the root's first child with that name (as written, with its prefix). Reads the
/// whole document, which must be well-formed.
pub(crate) fn first_children<const N: usize>(xml: &str, names: [&str; N]) -> Result<[String; N]> {
    let mut reader = NsReader::from_str(xml);
    reader.config_mut().expand_empty_elements = true;
    let mut texts = [const { None }; N];
    let mut wanted: Option<(usize, String)> = None;
    let mut depth = 0_usize;
    let mut rooted = false;
    let mut declares_entities = false;
    loop {
        match reader.read_event().context("it is not well-formed XML")? {
            Event::Start(tag) => {
                check_names(&reader, &tag).context("it is not well-formed XML")?;
                if let Some((index, _)) = &wanted {
                    bail!("<{}> holds other elements", names[*index]);
                }
                ensure!(depth > 0 || !rooted, "it is not well-formed XML: two roots");
                rooted = true;
                depth += 1;
                wanted = (depth == 2)
                    .then(|| names.iter().position(|name| *name == tag.name().0))
                    .flatten()
                    .filter(|index| texts[*index].is_none())
                    .map(|index| (index, String::new()));
            }
            Event::End(_) => {
                depth -= 1;
                if let Some((index, text)) = wanted.take() {
                    texts[index] = Some(text);
                }
            }
            Event::Text(text) => match &mut wanted {
                Some((_, wanted)) => wanted.push_str(&text.xml10_content()),
                None => ensure!(
                    depth > 0 || text.trim_ascii().is_empty(),
                    "it is not XML: text outside of the root element"
                ),
            },
            Event::CData(text) => {
                ensure!(depth > 0, "it is not XML: text outside of the root element");
                if let Some((_, wanted)) = &mut wanted {
                    wanted.push_str(&text.xml10_content());
                }
            }
            Event::GeneralRef(reference) => {
                ensure!(depth > 0, "it is not XML: text outside of the root element");
                match (character(&reference)?, &mut wanted) {
                    (Some(character), Some((_, wanted))) => wanted.push(character),
                    (Some(_), None) => {}
                    (None, None) if declares_entities => {}
                    (None, _) => bail!("the entity &{}; is not known", &*reference),
                }
            }
            Event::DocType(_) => declares_entities = true,
            Event::Eof => break,
            // Empty elements are reported as start and end.
            Event::Empty(_) | Event::Comment(_) | Event::Decl(_) | Event::PI(_) => {}
        }
    }
    ensure!(rooted, "it is not XML: no root element");
    ensure!(
        depth == 0,
        "it is not well-formed XML: {depth} elements are not closed"
    );
    for (name, text) in names.iter().zip(&texts) {
        ensure!(text.is_some(), "the root has no child <{name}>");
    }
    Ok(texts.map(Option::unwrap_or_default))
}

/// Checks that prefixes are declared, and that no attribute is repeated.
fn check_names(reader: &NsReader<&[u8]>, tag: &BytesStart) -> Result<()> {
    let undeclared = |resolved| match resolved {
        ResolveResult::Unknown(prefix) => bail!("the prefix {prefix:?} is not declared"),
        _ => Ok(()),
    };
    undeclared(reader.resolver().resolve_element(tag.name()).0)?;
    for attribute in tag.attributes() {
        undeclared(reader.resolver().resolve_attribute(attribute?.key).0)?;
    }
    Ok(())
}

/// The character of a reference; `None` for an entity that the document would have to declare.
fn character(reference: &BytesRef) -> Result<Option<char>> {
    if let Some(character) = reference.resolve_char_ref()? {
        return Ok(Some(character));
    }
    Ok(resolve_xml_entity(reference).and_then(|text| text.chars().next()))
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
    }

    #[test]
    fn says_which_element_is_missing() {
        assert_eq!(refusal("<r><id>1</id></r>"), "the root has no child <at>");
        assert_eq!(refusal("<id>1</id>"), "the root has no child <id>");
    }

    #[test]
    fn refuses_elements_inside_of_a_wanted_one() {
        assert_eq!(
            refusal("<r><id>1<b/></id><at>2</at></r>"),
            "<id> holds other elements"
        );
    }

    #[test]
    fn refuses_what_is_not_xml() {
        assert_eq!(refusal(""), "it is not XML: no root element");
        assert_eq!(
            refusal("hello"),
            "it is not XML: text outside of the root element"
        );
        assert_eq!(
            refusal("&amp;<r/>"),
            "it is not XML: text outside of the root element"
        );
        assert_eq!(
            refusal("<r><id>1</id><at>2</at>"),
            "it is not well-formed XML: 1 elements are not closed"
        );
        for broken in [
            "<r><id>1</at></r>",
            "<r><id>1</id><at>2</at></r><r/>",
            "<r><id>1</id><at>2</at></r",
            "<r><id a='1' a='2'>1</id><at>2</at></r>",
            "<r><id>1</id><at>2</at><x:y/></r>",
            "</r>",
        ] {
            assert!(
                refusal(broken).starts_with("it is not well-formed XML"),
                "{broken}"
            );
        }
        assert_eq!(
            refusal("<r><id>&who;</id></r>"),
            "the entity &who; is not known"
        );
    }
}
