//! Decodes the bytes of an XML document.

use std::borrow::Cow;

use anyhow::{Context, Result};
use encoding_rs::{Encoding, UTF_8};

/// Decodes a document by its byte order mark, otherwise by its declaration, otherwise as UTF-8.
pub(crate) fn decode(bytes: &[u8]) -> Result<Cow<'_, str>> {
    let (encoding, mark) = match Encoding::for_bom(bytes) {
        Some(found) => found,
        None => (declared(bytes)?.unwrap_or(UTF_8), 0),
    };
    encoding
        .decode_without_bom_handling_and_without_replacement(&bytes[mark..])
        .with_context(|| format!("it is not valid {}", encoding.name()))
}

/// The encoding that the XML declaration names, if there is one.
fn declared(bytes: &[u8]) -> Result<Option<&'static Encoding>> {
    let Some(declaration) = bytes
        .strip_prefix(b"<?xml")
        .and_then(|rest| rest.split(|byte| *byte == b'>').next())
    else {
        return Ok(None);
    };
    let declaration = String::from_utf8_lossy(declaration);
    let Some((_, value)) = declaration.split_once("encoding") else {
        return Ok(None);
    };
    let label = value.split(['"', '\'']).nth(1).unwrap_or_default();
    Encoding::for_label(label.as_bytes())
        .map(Some)
        .with_context(|| format!("the encoding {label:?} is not known"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_utf8_with_and_without_mark() {
        assert_eq!(decode("<a>é</a>".as_bytes()).unwrap(), "<a>é</a>");
        assert_eq!(decode("\u{feff}<a/>".as_bytes()).unwrap(), "<a/>");
    }

    #[test]
    fn reads_what_the_declaration_or_the_mark_names() {
        let latin = b"<?xml version='1.0' encoding='ISO-8859-1'?><a>\xe9</a>";
        assert!(decode(latin).unwrap().ends_with("<a>é</a>"));
        let utf16 = b"\xff\xfe<\0a\0/\0>\0";
        assert_eq!(decode(utf16).unwrap(), "<a/>");
    }

    #[test]
    fn refuses_unknown_encodings_and_wrong_bytes() {
        let unknown = decode(b"<?xml version=\"1.0\" encoding=\"klingon\"?><a/>").unwrap_err();
        assert_eq!(unknown.to_string(), "the encoding \"klingon\" is not known");
        let wrong = decode(b"<a>\xff</a>").unwrap_err();
        assert_eq!(wrong.to_string(), "it is not valid UTF-8");
    }
}
